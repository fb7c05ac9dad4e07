"""Policies whose decisions are known before sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from ..profiles import MagnitudeProfile
from ..types import Decision, Run, Step, Streams
from .policy import StepPlan, TensorMap


@dataclass
class MagnitudeBudget:
    """Reuse while the drift of the residual that a measured curve foretells stays within a budget.

    With R the product of the curve's ratios since the last computed evaluation, each reused one spends |1 - R|. What will
    be reused is known before sampling: it depends on the curve, the steps and the settings alone.

    Args:
        threshold: of the sum of |1 - R|.
        longest: at most this many reused evaluations in a row (K of the paper).
        retention: this first part of the whole schedule is computed.

    Source: MagCache, arXiv 2506.09045.
    """

    profile: MagnitudeProfile
    threshold: float
    longest: int
    retention: float
    ratios: tuple[float, ...] = field(default=(), repr=False)
    first: int = 0
    last: int = -1  # step of the last evaluation
    product: float = 1.0
    spent: float = 0.0
    in_a_row: int = 0

    def begin(self, run: Run, order: int) -> None:
        steps, skipped = (run.whole_steps, run.first_whole_step) if self.profile.whole else (run.steps, 0)
        self.ratios = self.profile.for_branch(order, max(steps, skipped + run.steps, 1))[skipped:]
        self.first = math.floor(self.retention * steps + 0.5) - skipped

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return None

    def decide(self, step: Step, score: float | None) -> Decision:
        if step.index < self.first:
            return Decision(False, "start of the schedule")
        _, spent, in_a_row = self._ahead(step)
        if in_a_row > self.longest:
            return Decision(False, f"{self.longest} reused in a row")
        sign = "<=" if spent <= self.threshold else ">"
        return Decision(spent <= self.threshold, f"foretold drift {spent:.4f} {sign} {self.threshold:g}")

    def computed(self, step: Step, value: Streams) -> None:
        self.product, self.spent, self.in_a_row, self.last = 1.0, 0.0, 0, step.index

    def reused(self, step: Step) -> None:
        self.product, self.spent, self.in_a_row = self._ahead(step)
        self.last = step.index

    def map_tensors(self, move: TensorMap) -> None:
        pass

    def _ahead(self, step: Step) -> tuple[float, float, int]:
        """(R, budget spent, reused in a row) if this evaluation is reused."""
        product = self.product * math.prod(self.ratios[self.last + 1 : step.index + 1])
        return product, self.spent + abs(1 - product), self.in_a_row + 1


@dataclass
class Scheduled:
    """Compute the steps of a plan, reuse the others."""

    plan: StepPlan
    steps: frozenset[int] = frozenset()

    def begin(self, run: Run, order: int) -> None:
        self.steps = self.plan(run)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return None

    def decide(self, step: Step, score: float | None) -> Decision:
        planned = step.index in self.steps
        return Decision(not planned, f"step {step.index} is {'' if planned else 'not '}in the plan")

    def computed(self, step: Step, value: Streams) -> None:
        pass

    def reused(self, step: Step) -> None:
        pass

    def map_tensors(self, move: TensorMap) -> None:
        pass
