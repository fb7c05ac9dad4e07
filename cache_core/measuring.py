"""What a computed run tells of the blocks: the changes that other methods' figures are fitted to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .distances import relative_l1
from .recording import Sketch
from .types import Decision, Run, Step, Streams


@dataclass
class Changes:
    """Of one branch, one entry for each step but the first; 0-d tensors on the model's device.

    Args:
        signal: relative L1 change of the modulated input; empty where a model has none.
        residual: relative L1 change of what the blocks add.
        ratio: mean over tokens of the residual's length, over that at the step before.
        sketches: of the residual, one for each step.
    """

    signal: list[Tensor] = field(default_factory=list)
    residual: list[Tensor] = field(default_factory=list)
    ratio: list[Tensor] = field(default_factory=list)
    sketches: list[Tensor] = field(default_factory=list)


@dataclass
class Measuring:
    """A policy that reuses nothing and notes how signal and residual change.

    Args:
        changes_of: (the branch's index among the conditionings) -> where to note. A function, so that the copies of this
            policy that branches get note in the same place.

    Source: what TeaCache (arXiv 2411.19108) and MagCache (arXiv 2506.09045) log to calibrate.
    """

    changes_of: Callable[[int], Changes]
    changes: Changes | None = None
    signal: Tensor | None = field(default=None, repr=False)
    last_signal: Tensor | None = field(default=None, repr=False)
    last_residual: Tensor | None = field(default=None, repr=False)
    sketch: Sketch = field(default_factory=Sketch, repr=False)

    def begin(self, run: Run, order: int) -> None:
        self.changes = self.changes_of(order)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        self.signal = None if signal is None else signal.detach()
        return None

    def decide(self, step: Step, score: float | None) -> Decision:
        return Decision(False, "measured")

    def computed(self, step: Step, value: Streams) -> None:
        residual = next((stream for stream in value if stream is not None), None)
        assert self.changes is not None
        if residual is None or step.position % 1:  # between the steps of the schedule
            return
        if self.last_residual is not None and self.last_residual.shape == residual.shape:
            self.changes.residual.append(relative_l1(residual, self.last_residual))
            self.changes.ratio.append(token_ratio(residual, self.last_residual))
            if self.signal is not None and self.last_signal is not None:
                self.changes.signal.append(relative_l1(self.signal, self.last_signal))
        self.changes.sketches.append(self.sketch(residual))
        self.last_signal, self.last_residual = self.signal, residual.detach()

    def reused(self, step: Step) -> None:
        pass

    def map_tensors(self, move: Callable[[Tensor], Tensor]) -> None:
        if self.last_signal is not None:
            self.last_signal = move(self.last_signal)
        if self.last_residual is not None:
            self.last_residual = move(self.last_residual)


def token_ratio(now: Tensor, before: Tensor) -> Tensor:
    """Mean over tokens of |now| / |before|, 0-d on the device of `now`; the length is over the last dimension.

    Source: MagCache's ratio, which is not that of the global norms.
    """
    before = before.to(now.device, torch.float32, non_blocking=True)
    lengths = torch.linalg.vector_norm(before, dim=-1).clamp_min(1e-12)
    return (torch.linalg.vector_norm(now.float(), dim=-1) / lengths).mean()
