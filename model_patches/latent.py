"""The latent of a model call, as probes and caches of whole outputs see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from comfy.model_sampling import CONST
from torch import Tensor


@dataclass(frozen=True)
class Latent:
    """What a model is called with.

    Args:
        base: the BaseModel.
        x: (B, C, ...), the latent as the sampler has it.
        t: (B,), its sigma.
    """

    base: Any
    x: Tensor
    t: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape)

    def model_input(self) -> Tensor:
        """As the model takes it: scaled by sigma where its kind wants that; always a new tensor."""
        try:
            return self.base.model_sampling.calculate_input(self.t, self.x).clone()
        except (AttributeError, TypeError, RuntimeError):  # a model that works without: any other fails when it runs
            return self.x.clone()

    def signal_and_noise(self) -> tuple[Tensor, Tensor]:
        """(a, b) of x = a x0 + b noise, 0-d: 1 - sigma and sigma for flow models, else those of variance 1."""
        sigma = self.t.flatten()[0].float()
        if isinstance(self.base.model_sampling, CONST):
            return 1 - sigma, sigma
        a = torch.rsqrt(1 + sigma**2)
        return a, sigma * a

    def derivative(self, denoised: Tensor) -> Tensor:
        """(x - denoised) / sigma: dx / dsigma, which for flow models is what the network gives."""
        return (self.x - denoised) / self._sigma()

    def denoised(self, derivative: Tensor) -> Tensor:
        """The inverse of `derivative`; a new tensor."""
        return self.x - self._sigma() * derivative.to(self.x.device)

    def _sigma(self) -> Tensor:
        return self.t.view(-1, *[1] * (self.x.ndim - 1)).to(self.x)
