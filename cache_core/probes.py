"""Where a policy looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class View(Protocol):
    """What a probe may see of a model call: the state just before the first block that could be skipped."""

    def modulated_input(self) -> Tensor:
        """The input of block 0 after its norm and timestep modulation, image tokens only, (B, N, D);
        or, for models calibrated that way, the time embedding, (B, ...)."""
        ...

    def head_residual(self) -> Tensor:
        """What the head blocks have added to the image tokens so far, (B, N, D)."""
        ...


class Probe(Protocol):
    @property
    def needs_head_residual(self) -> bool:
        """Whether `signal` asks for the head residual, for which block 0's input has to be kept a while."""
        ...

    def signal(self, view: View) -> Tensor | None:
        """The tensor that the policy compares between evaluations; its first dimension is the batch."""


@dataclass(frozen=True)
class ModulatedInput:
    """TeaCache's probe: costs one norm and one small projection, no block."""

    needs_head_residual: bool = False

    def signal(self, view: View) -> Tensor:
        return view.modulated_input()


@dataclass(frozen=True)
class HeadResidual:
    """First Block Cache's and DBCache's probe: costs the head blocks."""

    needs_head_residual: bool = True

    def signal(self, view: View) -> Tensor:
        return view.head_residual()
