"""Forecasts fitted to a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..forecasting import Segment
from ..types import Step, Streams
from .predictor import TensorMap, combined, moved

SegmentAfter = Callable[[Sequence[int]], Segment]
"""(computed steps so far) -> how to forecast from the last of them to the next that is planned."""

KEPT = 3


@dataclass
class FittedLine:
    """The last output, plus its change since the one before and that one's since the one before it, by fitted factors.

    Only outputs at the sigmas of the schedule are observed: those between are not what was recorded.

    Source: ours; a linear forecast with a slope for each segment, which also makes up for the error left by the last.
    """

    segment_after: SegmentAfter
    computed: tuple[int, ...] = ()
    values: list[Streams] = field(default_factory=list, repr=False)
    segment: Segment | None = None

    @property
    def ready(self) -> bool:
        return bool(self.values)

    def enter(self, step: Step, entry: Streams) -> None:
        pass

    def update(self, step: Step, value: Streams) -> None:
        if step.position % 1:
            return
        if self.computed and step.index <= self.computed[-1]:  # the same step again
            self.values = self.values[:-1]
        else:
            self.computed, self.segment = (*self.computed, step.index), None
        self.values = [*self.values, value][-KEPT:]

    def predict(self, step: Step) -> Streams:
        if self.segment is None:
            self.segment = self.segment_after(self.computed)
        known = self.computed[-len(self.values) :]
        weights = self.segment.weights(known, step.position)
        return combined(self.values[::-1], weights[::-1])

    def map_tensors(self, move: TensorMap) -> None:
        self.values = [moved(value, move) for value in self.values]
