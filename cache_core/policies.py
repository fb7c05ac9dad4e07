"""When to reuse.

A policy sees the evaluations of one branch in this order: `observe` (every evaluation, no host read), `decide` (only
if this branch leads the evaluation), then `computed` or `reused`, whichever really happened. A policy that only heard
its own proposals would drift as soon as something else forces a compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .distances import polynomial, relative_l1
from .types import Decision, Run, Step

TensorMap = Callable[[Tensor], Tensor]


class Policy(Protocol):
    """Decides for one branch of one run."""

    def begin(self, run: Run) -> None:
        """Called once, before the first evaluation."""

    def observe(self, signal: Tensor | None) -> Tensor | None:
        """Take in this evaluation's signal; returns the score (0-d, on its device) that `decide` will judge."""

    def decide(self, step: Step, score: float | None) -> Decision:
        """Propose; must not change what later decisions depend on. A score that is not finite must compute."""
        ...

    def computed(self, step: Step) -> None:
        """The blocks ran and their result is what later evaluations may reuse."""

    def reused(self, step: Step) -> None:
        """The stored result was used instead."""

    def map_tensors(self, move: TensorMap) -> None:
        """Replace every tensor kept between evaluations by `move(tensor)`."""


@dataclass
class AccumulatedChange:
    """Reuse while the rescaled changes since the last computed evaluation sum up to less than a threshold.

    Each evaluation adds `max(p(x), x / 2)`, where x is the relative L1 change of the signal against the evaluation
    before and p a polynomial fitted to (input change, output change) pairs. Fitted polynomials are not safe outside the
    range of their data: some fall below zero there and would freeze the sum for the rest of the run. So x is clipped to
    `fitted_range`, and half of x itself is always counted.

    Source: TeaCache, arXiv 2411.19108. The clip and the floor are ours.
    """

    threshold: float
    coefficients: Sequence[float] = (1.0, 0.0)  # identity: the change of the signal itself
    fitted_range: tuple[float, float] = (0.0, float("inf"))
    previous: Tensor | None = field(default=None, repr=False)
    total: Tensor | None = field(default=None, repr=False)

    def begin(self, run: Run) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        if signal is None:
            return None
        if self.previous is None or self.total is None or self.previous.shape != signal.shape:
            self.total = signal.new_full((), float("inf"), dtype=torch.float32)
        else:
            change = relative_l1(signal, self.previous)
            rescaled = polynomial(change.clamp(*self.fitted_range), self.coefficients)
            self.total = self.total + torch.maximum(rescaled, change / 2)
        self.previous = signal
        return self.total

    def decide(self, step: Step, score: float | None) -> Decision:
        return below(score, self.threshold, "accumulated change")

    def computed(self, step: Step) -> None:
        if self.total is not None:
            self.total = torch.zeros_like(self.total)

    def reused(self, step: Step) -> None:
        pass

    def map_tensors(self, move: TensorMap) -> None:
        if self.previous is not None:
            self.previous = move(self.previous)


@dataclass
class ChangeFromAnchor:
    """Reuse while the signal is within a threshold of its value at the last computed evaluation.

    Comparing with the anchor, not with the evaluation before, measures drift directly: slow change cannot slip through.

    Source: First Block Cache (ParaAttention, chengzeyi).
    """

    threshold: float
    anchor: Tensor | None = field(default=None, repr=False)
    current: Tensor | None = field(default=None, repr=False)

    def begin(self, run: Run) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        self.current = signal
        if signal is None:
            return None
        if self.anchor is None or self.anchor.shape != signal.shape:
            return signal.new_full((), float("inf"), dtype=torch.float32)
        return relative_l1(signal, self.anchor)

    def decide(self, step: Step, score: float | None) -> Decision:
        return below(score, self.threshold, "change since the last computed")

    def computed(self, step: Step) -> None:
        self.anchor, self.current = self.current, None

    def reused(self, step: Step) -> None:
        self.current = None

    def map_tensors(self, move: TensorMap) -> None:
        if self.anchor is not None:
            self.anchor = move(self.anchor)


@dataclass
class Guarded:
    """Another policy inside limits that hold whatever it proposes: last step, window and run length of reuse.

    Args:
        inner: the policy that decides where the limits allow reuse.
        max_consecutive: at most this many reused evaluations in a row; 0 means no limit.
    """

    inner: Policy
    max_consecutive: int = 0
    run: Run | None = field(default=None, repr=False)
    in_a_row: int = 0

    def begin(self, run: Run) -> None:
        self.run = run
        self.inner.begin(run)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return self.inner.observe(signal)

    def decide(self, step: Step, score: float | None) -> Decision:
        if step.is_last:
            return Decision(False, "last step")
        if self.run and not self.run.end_sigma <= step.sigma <= self.run.start_sigma:
            return Decision(False, "outside the start/end window")
        if self.max_consecutive and self.in_a_row >= self.max_consecutive:
            return Decision(False, f"{self.in_a_row} reused in a row")
        return self.inner.decide(step, score)

    def computed(self, step: Step) -> None:
        self.in_a_row = 0
        self.inner.computed(step)

    def reused(self, step: Step) -> None:
        self.in_a_row += 1
        self.inner.reused(step)

    def map_tensors(self, move: TensorMap) -> None:
        self.inner.map_tensors(move)


def below(score: float | None, threshold: float, what: str) -> Decision:
    """Reuse if `score < threshold`; written so that NaN, infinity and a missing score compute."""
    if score is not None and score < threshold:
        return Decision(True, f"{what} {score:.4f} < {threshold:g}")
    if score is None or score == float("inf"):
        return Decision(False, "nothing to compare with")
    return Decision(False, f"{what} {score:.4f} >= {threshold:g}")
