"""How alike the results of two runs are, as latents and as pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..cache_core.model_call import finite
from ..cache_core.quality import WINDOW_SIZE, psnr, ssim

NOT_FINITE = "cannot be told, as there are values that are not finite (a black picture)"


@dataclass(frozen=True)
class Likeness:
    """`psnr` in dB, infinite where nothing differs; `ssim` at most 1, None where there are too few pixels for it.

    NaN, or a PSNR of minus infinity, where a value that is compared is not finite.
    """

    psnr: float
    ssim: float | None

    @property
    def same(self) -> bool:
        return self.psnr == math.inf

    def __str__(self) -> str:
        if self.same:
            return "the same"
        if not math.isfinite(self.psnr):
            return NOT_FINITE
        return f"PSNR {self.psnr:.1f} dB" + (f", SSIM {self.ssim:.3f}" if self.ssim is not None else "")

    def as_dict(self) -> dict[str, Any]:
        """JSON knows neither infinity nor NaN: they become None."""
        return {"same": self.same, "psnr": finite(self.psnr), "ssim": finite(self.ssim)}


def picture_likeness(reference: Tensor, other: Tensor) -> Likeness:
    """Of pictures (N, H, W, C) in [0, 1]; means over them."""
    return likeness(reference.movedim(-1, 1), other.movedim(-1, 1))


def latent_likeness(reference: Tensor, other: Tensor) -> Likeness:
    """Of latents (B, C, H, W), (B, C, T, H, W) or (B, C, L). The range of the reference counts as that of a picture."""
    reference, other = as_frames(reference), as_frames(other)
    low, high = reference.min(), reference.max()
    scale = 1 / (high - low) if high > low else 1.0
    return likeness((reference - low) * scale, (other - low) * scale)


def as_frames(latent: Tensor) -> Tensor:
    """(N, C, H, W), in float32 on the CPU."""
    latent = latent.float().cpu()
    if latent.ndim == 5:
        return latent.movedim(2, 1).flatten(0, 1)
    return latent if latent.ndim == 4 else latent.reshape(latent.shape[0], 1, -1, latent.shape[-1])


def likeness(reference: Tensor, other: Tensor) -> Likeness:
    """Of frames (N, C, H, W); PSNR is the mean over those that differ.

    One after the other, as the statistics of a whole video would take many times its memory.
    """
    pairs = list(zip(reference, other, strict=True))
    different = [value for value in (psnr(a, b) for a, b in pairs) if value != math.inf]
    similar = [ssim(a, b) for a, b in pairs] if min(reference.shape[-2:]) >= WINDOW_SIZE else []
    return Likeness(
        sum(different) / len(different) if different else math.inf,
        sum(similar) / len(similar) if similar else None,
    )
