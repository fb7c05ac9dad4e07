"""How many evaluations to compute, instead of how much change to ignore."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median

from torch import Tensor

from ..planning import error_weights
from ..report import Evaluation
from ..schedule import StepClock
from ..types import Decision, Run, Step, Streams
from .limits import Guarded
from .policy import TensorMap, Watching

REMEMBERED = 5
"""Evaluations whose growth of the score counts: enough that one jump moves nothing, few enough to follow a trend."""

LEAST_WEIGHT = 0.25
"""Of the mean: where errors hardly count, a computed evaluation may be so many times rarer than on average, no more."""


@dataclass
class Budgeted:
    """A policy that watches a signal, with a threshold that moves so that 1 / `speedup` of all evaluations is computed.

    The score decides which ones: the threshold is what it would usually reach after as many evaluations as can be afforded
    from one computed to the next. That is what is left to come, weighted by how much an error counts there, over what is
    left of the budget; so every deviation is made up for by what follows. The budget is kept to half an evaluation by a
    threshold of 0 once all that is left fits in, and an infinite one once nothing does. Limits, and a score that is not
    finite, compute whatever the budget says.

    Args:
        watching: its own threshold is what the score is first expected to reach at this speedup.
        limits: those around `watching`.
        speedup: >= 1.
        trace: the run's evaluations so far, the present one the last. They are those of the whole run, so that a branch
            that begins later (another prompt, a control that ends) keeps to the same budget.

    Source: the aim, a soft ceiling by moving the threshold towards a reference profile, is SoftCap's; the rule is ours.
    """

    watching: Watching
    limits: Guarded
    speedup: float
    trace: Sequence[Evaluation]
    clock: StepClock = field(default_factory=lambda: StepClock(()), repr=False)
    weights: tuple[float, ...] = field(default=(), repr=False)
    expected: float = 0.0  # growth of the score per evaluation, before any was seen

    def begin(self, run: Run, order: int) -> None:
        self.clock, self.weights = StepClock(run.sigmas), reference_profile(run.sigmas)
        self.expected = self.watching.threshold / max(self.speedup - 0.5, 0.5)
        self.limits.begin(run, order)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return self.limits.observe(signal)

    def decide(self, step: Step, score: float | None) -> Decision:
        past = self.trace[:-1]
        seen = [evaluation.position for evaluation in past if evaluation.position is not None]
        coming = self.clock.coming([*seen, step.position])
        budget = (len(past) + 1 + len(coming)) / self.speedup
        spent = sum(not evaluation.reused for evaluation in past)
        self.watching.threshold = self._threshold(step, coming, budget - spent)
        decision = self.limits.decide(step, score)
        if decision.threshold is None:
            return decision
        return replace(decision, reason=f"{decision.reason} (budget {budget:.3g}, {spent} spent)")

    def _threshold(self, step: Step, coming: Sequence[Step], left: float) -> float:
        """What the score usually reaches after as many evaluations as can be afforded per computed one.

        Less half an evaluation, as scores are only seen once an evaluation.

        Args:
            left: how many evaluations may still be computed, this one included.
        """
        if left > len(coming) + 0.5:
            return 0.0
        if left < 0.5 + sum(self.limits.forced(coming, reuse=True)):
            return math.inf
        forced = self.limits.forced(coming, reuse=False)
        free = [step, *(each for each, must in zip(coming, forced, strict=True) if not must)]
        weight = sum(self.weights[each.index] for each in free) / self.weights[step.index]
        affordable = weight / (left - sum(forced))
        grown = [self.expected, *growths(self.trace[:-1])]
        return median(grown[-REMEMBERED:]) * (max(affordable, 1.0) - 0.5)

    def computed(self, step: Step, value: Streams) -> None:
        self.limits.computed(step, value)

    def reused(self, step: Step) -> None:
        self.limits.reused(step)

    def map_tensors(self, move: TensorMap) -> None:
        self.limits.map_tensors(move)


def reference_profile(sigmas: Sequence[float]) -> tuple[float, ...]:
    """How densely each step is worth computing, relative to the others.

    On the small model of this project (28 steps) this gave 1 to 11 dB more than the same density everywhere. Sigmas above
    1 are not of a flow; they become its times.
    """
    top = max(sigmas, default=0.0)
    counted = error_weights([sigma / (1 + sigma) for sigma in sigmas] if top > 1 else sigmas)
    weights = [max(weight, 0.0) for weight in counted]  # a sigma may rise
    least = LEAST_WEIGHT * mean(weights) if weights else 0.0
    return tuple(max(weight, least) or 1.0 for weight in weights) or (1.0,)


def growths(past: Sequence[Evaluation]) -> Iterator[float]:
    """What the score grew by per evaluation, for each that has one: its value over the evaluations since a computed one."""
    since = 0
    for evaluation in past:
        since += 1
        if evaluation.signal is not None:
            yield evaluation.signal / since
        if not evaluation.reused:
            since = 0
