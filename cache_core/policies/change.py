"""Policies that watch how much a signal changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..distances import polynomial, relative_l1
from ..types import Decision, Run, Step, Streams
from .policy import TensorMap, below


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

    def begin(self, run: Run, order: int) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        if signal is None:
            return None
        if self.previous is None or self.total is None or self.previous.shape != signal.shape:
            self.total = signal.new_full((), float("inf"), dtype=torch.float32)
        else:
            self.total = self.total + self.counted(relative_l1(signal, self.previous))
        self.previous = signal
        return self.total

    def counted(self, change: Tensor) -> Tensor:
        """What a change of the signal adds to the sum."""
        rescaled = polynomial(change.clamp(*self.fitted_range), self.coefficients)
        return torch.maximum(rescaled, change / 2)

    def decide(self, step: Step, score: float | None) -> Decision:
        return below(score, self.threshold, "accumulated change")

    def computed(self, step: Step, value: Streams) -> None:
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

    Args:
        max_accumulated: once the changes that were judged in a run sum up to this, nothing is reused any more; 0 means no
            limit. Those of computed evaluations count as well.

    Source: First Block Cache (ParaAttention, chengzeyi); the limit is cache-dit's.
    """

    threshold: float
    max_accumulated: float = 0.0
    judged: float = 0.0  # the change of this evaluation
    accumulated: float = 0.0
    anchor: Tensor | None = field(default=None, repr=False)
    current: Tensor | None = field(default=None, repr=False)

    def begin(self, run: Run, order: int) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        self.current = signal
        if signal is None:
            return None
        if self.anchor is None or self.anchor.shape != signal.shape:
            return signal.new_full((), float("inf"), dtype=torch.float32)
        return relative_l1(signal, self.anchor)

    def decide(self, step: Step, score: float | None) -> Decision:
        if self.max_accumulated and self.accumulated >= self.max_accumulated:
            return Decision(False, f"changes of {self.accumulated:.4f} in all")
        self.judged = score if score is not None and math.isfinite(score) else 0.0
        return below(score, self.threshold, "change since the last computed")

    def computed(self, step: Step, value: Streams) -> None:
        self.anchor = self.current
        self._finish()

    def reused(self, step: Step) -> None:
        self._finish()

    def _finish(self) -> None:
        self.accumulated, self.judged, self.current = self.accumulated + self.judged, 0.0, None

    def map_tensors(self, move: TensorMap) -> None:
        if self.anchor is not None:
            self.anchor = move(self.anchor)


@dataclass
class ChangeFromBefore:
    """Reuse while the signal is within a threshold of its value at the evaluation before.

    It takes no account of how many were reused before: something above it has to, such as an adaptive schedule.
    """

    threshold: float
    previous: Tensor | None = field(default=None, repr=False)

    def begin(self, run: Run, order: int) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        previous, self.previous = self.previous, signal
        if signal is None:
            return None
        if previous is None or previous.shape != signal.shape:
            return signal.new_full((), float("inf"), dtype=torch.float32)
        return relative_l1(signal, previous)

    def decide(self, step: Step, score: float | None) -> Decision:
        return below(score, self.threshold, "change since the one before")

    def computed(self, step: Step, value: Streams) -> None:
        pass

    def reused(self, step: Step) -> None:
        pass

    def map_tensors(self, move: TensorMap) -> None:
        if self.previous is not None:
            self.previous = move(self.previous)
