"""The mean over the coming step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..types import Step, Streams
from .predictor import TensorMap


@dataclass(frozen=True)
class Passed:
    """One step of the trajectory: its velocity, where it began, and where it ended."""

    velocity: Tensor
    start: Tensor
    start_sigma: float
    end: Tensor | None = None
    end_sigma: float = 0.0


@dataclass
class MeanVelocity:
    """The last velocity, corrected by how the velocity differs from the mean over the last steps (a JVP by secants).

    v = v_last - J (sigma_next - sigma), J = (v_first - u) / (sigma_last - sigma_first), u being the mean velocity from the
    start of the first of the last `lookback` steps to the end of the last. Predicted steps count as steps.

    Between the sigmas of the schedule there is no coming step to take a mean over: samplers that look there get the last
    velocity as it is. The same sigma again, or a larger one, begins anew.

    Args:
        lookback: by the last computed step, or the same for all; 1 means the plain last velocity under Euler.

    Source: MeanCache, arXiv 2601.19961 (UnicomAI/MeanCache).
    """

    lookback: Mapping[int, int] | int = 2
    passed: list[Passed] = field(default_factory=list, repr=False)
    computed_at: int = 0
    entry: Tensor | None = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        return bool(self.passed)

    def enter(self, step: Step, entry: Streams) -> None:
        self.entry = entry[0]
        if self.passed and self.entry is not None:
            last = self.passed[-1]
            if step.sigma < last.start_sigma:
                self.passed[-1] = replace(last, end=self.entry, end_sigma=step.sigma)
            else:
                self.passed = [replace(last, start=self.entry, start_sigma=step.sigma)]

    def update(self, step: Step, value: Streams) -> None:
        self.computed_at = step.index
        self._pass(step, value)

    def predict(self, step: Step) -> Streams:
        window = [passed for passed in self.passed if passed.end is not None][-self._lookback() :]
        velocity = self.passed[-1].velocity
        at_node = step.position % 1 == 0
        if at_node and len(window) > 1 and (end := window[-1].end) is not None:
            first, span = window[0], window[-1].end_sigma - window[0].start_sigma
            mean = (end - first.start) / span
            velocity = velocity - (first.velocity - mean) / span * (step.next_sigma - step.sigma)
        self._pass(step, (velocity,))
        return (velocity,)

    def map_tensors(self, move: TensorMap) -> None:
        self.passed = [
            Passed(
                move(p.velocity), move(p.start), p.start_sigma, move(p.end) if p.end is not None else None, p.end_sigma
            )
            for p in self.passed
        ]
        self.entry = None

    def _pass(self, step: Step, value: Streams) -> None:
        assert value[0] is not None and self.entry is not None
        self.passed = [*self.passed, Passed(value[0], self.entry, step.sigma)][-self._longest() :]

    def _lookback(self) -> int:
        return self.lookback if isinstance(self.lookback, int) else self.lookback.get(self.computed_at, 1)

    def _longest(self) -> int:
        return self.lookback if isinstance(self.lookback, int) else max(self.lookback.values(), default=1)
