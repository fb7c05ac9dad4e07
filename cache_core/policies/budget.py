"""How many evaluations to compute, instead of how much change to ignore."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from torch import Tensor

from ..planning import error_weights
from ..report import Evaluation
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
    left of the budget; so every deviation is made up for by what follows. The budget is kept to half an evaluation by
    computing once all that is left fits in, and by reusing once nothing does. Limits, and a score that is not finite,
    compute whatever the budget says.

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
    sigmas: tuple[float, ...] = field(default=(), repr=False)
    weights: tuple[float, ...] = field(default=(), repr=False)

    def begin(self, run: Run, order: int) -> None:
        self.sigmas, self.weights = run.sigmas, reference_profile(run.sigmas)
        self.limits.begin(run, order)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return self.limits.observe(signal)

    def decide(self, step: Step, score: float | None) -> Decision:
        if self.limits.limit(step) or score is None or not math.isfinite(score):
            return self.limits.decide(step, score)
        past = self.trace[:-1]
        coming = coming_steps(past, step, self.sigmas)
        spent = sum(not evaluation.reused for evaluation in past)
        budget = (len(past) + 1 + len(coming)) / self.speedup
        left, state = budget - spent, f"(budget {budget:.3g}, {spent} spent)"
        if left > len(coming) + 0.5:
            return Decision(False, f"the budget covers all that is left {state}")
        if left < 0.5 + sum(self.limits.forced(coming, reuse=True)):
            return Decision(True, f"the budget is spent {state}")
        watching = copy.copy(self.watching)
        watching.threshold = self._threshold(step, coming, left)
        decision = watching.decide(step, score)
        return Decision(decision.reuse, f"{decision.reason} {state}", decision.threshold)

    def _threshold(self, step: Step, coming: Sequence[Step], left: float) -> float:
        """What the score usually reaches after as many evaluations as can be afforded per computed one.

        Less half an evaluation, as scores are only seen once an evaluation.
        """
        forced = self.limits.forced(coming, reuse=False)
        free = sum(
            self.weights[each.index] for each, must in zip([step, *coming], [False, *forced], strict=True) if not must
        )
        affordable = free / self.weights[step.index] / (left - sum(forced))
        expected = self.watching.threshold / max(self.speedup - 0.5, 0.5)
        seen = [expected, *growths(self.trace[:-1])]
        return median(seen[-REMEMBERED:]) * (max(affordable, 1.0) - 0.5)

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
    return tuple(max(weight, least) or 1.0 for weight in weights)


def growths(past: Sequence[Evaluation]) -> Iterator[float]:
    """What the score grew by per evaluation, for each that has one: its value over the evaluations since a computed one."""
    since = 0
    for evaluation in past:
        since += 1
        if evaluation.signal is not None:
            yield evaluation.signal / since
        if not evaluation.reused:
            since = 0


def coming_steps(past: Sequence[Evaluation], step: Step, sigmas: Sequence[float]) -> list[Step]:
    """The evaluations that are still to come after the one at `step`, if steps go on as the one before did.

    Samplers with several evaluations a step have them in the middle of it (dpm_2) or at its ends (heun); at the last step,
    which ends at 0, those that have them in the middle leave them out.
    """
    seen = [*(evaluation.position for evaluation in past if evaluation.position is not None), step.position]
    here, before = ([at - index for at in seen if int(at) == index] for index in (step.index, step.index - 1))
    usual = max(before, here, key=len)
    last = len(sigmas) - 2
    positions: list[float] = []
    for index in range(step.index, last + 1):
        offsets = usual[len(here) :] if index == step.index else usual
        positions += [index + offset for offset in offsets if index < last or offset == 0]
    return [step_at(position, sigmas) for position in positions]


def step_at(position: float, sigmas: Sequence[float]) -> Step:
    """The reverse of `StepClock`."""
    high, low = sigmas[int(position) : int(position) + 2]
    return Step(position, len(sigmas) - 1, high + position % 1 * (low - high), low)
