"""Where a policy looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class View(Protocol):
    """What a probe may see of a model call: the state just before the first block that could be skipped."""

    def modulated_input(self) -> Tensor:
        """The input of block 0 after its norm and timestep modulation, image tokens only, (B, N, D)."""
        ...

    def time_embedding(self) -> Tensor:
        """The model's embedding of the timestep, (B, ...)."""
        ...

    def head_residual(self) -> Tensor:
        """What the head blocks have added to the image tokens so far, (B, N, D)."""
        ...


class Probe(Protocol):
    def signal(self, view: View) -> Tensor | None:
        """The tensor that the policy compares between evaluations; its first dimension is the batch."""


@dataclass(frozen=True)
class ModulatedInput:
    """TeaCache's probe: costs one norm and one small projection, no block."""

    def signal(self, view: View) -> Tensor:
        return view.modulated_input()


@dataclass(frozen=True)
class TimeEmbedding:
    """TeaCache's probe for models whose published figures were fitted on it: costs nothing."""

    def signal(self, view: View) -> Tensor:
        return view.time_embedding()


@dataclass(frozen=True)
class HeadResidual:
    """First Block Cache's and DBCache's probe: costs the head blocks."""

    def signal(self, view: View) -> Tensor:
        return view.head_residual()
