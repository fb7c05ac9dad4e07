"""A plan that is left when its forecasts turn out worse than they were in the run that it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ..forecasting import ForecastPlan
from ..predictors.fitted_line import FittedLine
from ..recording import Sketch
from ..types import Decision, Run, Step, Streams
from .policy import TensorMap

ROUNDING = 1e-3
"""Relative. Forecasts that are nearer than this are never too far off: outputs in half precision are rounded as much."""


@dataclass
class Followed:
    """Compute the steps of a plan, and more where forecasts fail.

    At every computed step it is free to see how far off the forecast of that very step would have been. When that is more
    than `factor` times what it was in the recording, one more of the steps to come is computed. A sketch of the output
    serves, so it takes next to no memory, and one read from the device behind each computed step.

    Args:
        factor: 0 never looks.
    """

    plan: ForecastPlan
    factor: float = 0.0
    sketch: Sketch = field(default_factory=Sketch, repr=False)
    line: FittedLine | None = field(default=None, repr=False)
    missed: Tensor | None = field(default=None, repr=False)  # relative error of the last computed step's forecast
    expected: float = ROUNDING
    proposed: ForecastPlan | None = None  # the plan by the last decision

    def begin(self, run: Run, order: int) -> None:
        self.line = FittedLine(self.plan.segment_after)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return self.missed

    def decide(self, step: Step, score: float | None) -> Decision:
        self.proposed, told = self.plan, ""
        if score is not None and not score <= self.factor * self.expected:
            self.proposed = self.plan.with_one_more(step.index - 1)
            told = f", one more since the last forecast was {score / self.expected:.1f} times as far off as recorded"
        planned = step.index in self.proposed.steps
        return Decision(not planned, f"step {step.index} is {'' if planned else 'not '}in the plan{told}")

    def computed(self, step: Step, value: Streams) -> None:
        self.plan = self.proposed or self.plan
        if not self.factor or not value or value[0] is None or step.position % 1:
            return
        assert self.line is not None
        seen = self.sketch(value[0])
        self.missed = None
        if self.line.computed and step.index > self.line.computed[-1]:
            (foretold,) = self.line.predict(step)
            assert foretold is not None and self.line.segment is not None
            self.missed = (foretold - seen).norm() / seen.norm()
            recorded = self.plan.forecaster.expected(self.line.computed, step.index, self.line.segment)
            self.expected = max(recorded, ROUNDING)
        self.line.update(step, (seen,))

    def reused(self, step: Step) -> None:
        self.plan, self.missed = self.proposed or self.plan, None

    def map_tensors(self, move: TensorMap) -> None:
        pass
