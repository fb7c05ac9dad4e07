"""Where a policy looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from .spectral import filtered, separable_gain


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

    def model_input(self) -> Tensor:
        """The latent as the model takes it, (B, C, ...)."""
        ...

    def signal_and_noise(self) -> tuple[Tensor, Tensor]:
        """(a, b) of x = a x0 + b noise at this evaluation, 0-d on the model's device."""
        ...

    def grid(self, tokens: Tensor) -> tuple[int, ...] | None:
        """How the image tokens lie in the latent, or None where that is not known."""
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


@dataclass(frozen=True)
class SpectralInput:
    """SeaCache's probe: the modulated input, filtered to what can be known at this noise level.

    Args:
        beta: how fast the spectrum falls with frequency; None takes 2 for pictures and 3 for videos.
    """

    beta: float | None = None

    def signal(self, view: View) -> Tensor:
        tokens = view.modulated_input()
        grid = view.grid(tokens)
        if grid is None:
            return tokens
        a, b = view.signal_and_noise()
        beta = self.beta or (3.0 if len(grid) == 3 else 2.0)
        return filtered(tokens, grid, separable_gain(grid, a, b, beta))


@dataclass(frozen=True)
class ModelInput:
    """EasyCache's probe: the latent itself; costs nothing."""

    def signal(self, view: View) -> Tensor:
        return view.model_input()


@dataclass(frozen=True)
class Nothing:
    """For schedules that are known before sampling."""

    def signal(self, view: View) -> None:
        return None
