"""What a policy is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ..types import Decision, Run, Step, Streams

TensorMap = Callable[[Tensor], Tensor]

StepPlan = Callable[[Run], frozenset[int]]
"""(run) -> the steps to compute, 0 .. run.steps - 1."""


class Policy(Protocol):
    """Decides for one branch of one run."""

    def begin(self, run: Run, order: int) -> None:
        """Called once, before the first evaluation; `order` is the index of the branch's conditioning."""

    def observe(self, signal: Tensor | None) -> Tensor | None:
        """Take in this evaluation's signal; returns the score (0-d, on its device) that `decide` will judge."""

    def decide(self, step: Step, score: float | None) -> Decision:
        """Propose; must not change what later decisions depend on. A score that is not finite must compute."""
        ...

    def computed(self, step: Step, value: Streams) -> None:
        """The blocks ran; `value` is what the predictor got, and later evaluations may reuse."""

    def reused(self, step: Step) -> None:
        """The stored result was used instead."""

    def map_tensors(self, move: TensorMap) -> None:
        """Replace every tensor kept between evaluations by `move(tensor)`."""


class Watching(Policy, Protocol):
    """Reuses while its score is below a threshold."""

    threshold: float


def below(score: float | None, threshold: float, what: str) -> Decision:
    """Reuse if `score < threshold`. A score that is missing or not finite computes."""
    if score is None or not math.isfinite(score):
        return Decision(False, "nothing to compare with")
    if score < threshold:
        return Decision(True, f"{what} {score:.4f} < {threshold:.4g}", threshold)
    return Decision(False, f"{what} {score:.4f} >= {threshold:.4g}", threshold)
