"""What a predictor is, and the simplest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ..types import Step, Streams

TensorMap = Callable[[Tensor], Tensor]


class Predictor(Protocol):
    """Holds what was observed on one branch and predicts what the skipped part would give."""

    @property
    def ready(self) -> bool:
        """Whether there is enough to predict from."""
        ...

    def enter(self, step: Step, entry: Streams) -> None:
        """Called at every evaluation at the levels above blocks, with what goes into the model."""

    def update(self, step: Step, value: Streams) -> None:
        """Take in what was computed: exit - entry of the skipped part, or its exit, each (B, N, D) or as the latent."""

    def predict(self, step: Step) -> Streams:
        """The value expected at `step`, in the layout that `update` got."""
        ...

    def map_tensors(self, move: TensorMap) -> None:
        """Replace every tensor kept between evaluations by `move(tensor)`."""


@dataclass
class Hold:
    """The last computed value, unchanged (order 0).

    Holding exit - entry, not the exit, keeps the fresh input of the step in the result.
    """

    value: Streams = field(default=(), repr=False)

    @property
    def ready(self) -> bool:
        return bool(self.value)

    def enter(self, step: Step, entry: Streams) -> None:
        pass

    def update(self, step: Step, value: Streams) -> None:
        self.value = value

    def predict(self, step: Step) -> Streams:
        return self.value

    def map_tensors(self, move: TensorMap) -> None:
        self.value = moved(self.value, move)


def combined(values: Sequence[Streams], weights: Sequence[float]) -> Streams:
    """The weighted sum, stream by stream, formed in float32 and given in the dtype of the first."""

    def total(parts: tuple[Tensor | None, ...]) -> Tensor | None:
        if parts[0] is None:
            return None
        if len(parts) == 1 and weights[0] == 1.0:
            return parts[0]
        like = parts[0]
        wide = torch.promote_types(like.dtype, torch.float32)
        result = torch.zeros_like(like, dtype=wide)
        for part, weight in zip(parts, weights, strict=True):
            assert part is not None
            result.add_(part.to(like.device, non_blocking=True), alpha=weight)
        return result.to(like.dtype)

    return tuple(total(parts) for parts in zip(*values, strict=True))


def moved(streams: Streams, move: TensorMap) -> Streams:
    return tuple(None if stream is None else move(stream) for stream in streams)
