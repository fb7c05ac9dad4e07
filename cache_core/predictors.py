"""What to return instead of running the blocks.

A predictor is fed with observations only: a prediction is never written back as if it had been computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from .types import Step, Streams


class Predictor(Protocol):
    """Holds what was observed on one branch and predicts the residual of the skipped blocks."""

    @property
    def ready(self) -> bool:
        """Whether there is enough to predict from."""
        ...

    def update(self, step: Step, residual: Streams) -> None:
        """Take in a computed residual, exit - entry of the skipped blocks, each (B, N, D)."""

    def predict(self, step: Step) -> Streams:
        """The residual expected at `step`, in the layout that `update` got."""
        ...

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> None:
        """Replace every tensor kept between evaluations by `move(tensor)`."""


@dataclass
class Hold:
    """The last computed residual, unchanged (order 0).

    Holding the residual, not the output, keeps the fresh input of the step in the result.
    """

    residual: Streams = field(default=(), repr=False)

    @property
    def ready(self) -> bool:
        return bool(self.residual)

    def update(self, step: Step, residual: Streams) -> None:
        self.residual = residual

    def predict(self, step: Step) -> Streams:
        return self.residual

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> None:
        self.residual = tuple(None if stream is None else move(stream) for stream in self.residual)
