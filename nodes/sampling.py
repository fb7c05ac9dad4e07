"""Sampling inside a node, as ComfyUI's KSampler does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import comfy.sample
import comfy.utils
import torch
from comfy.model_patcher import ModelPatcher
from torch import Tensor

RATIOS = ("downscale_ratio_spacial", "downscale_ratio_temporal")
"""What an empty latent says of its size, in ComfyUI's spelling; no longer true of what was sampled."""


def sampled(
    model: ModelPatcher,
    latent: Mapping[str, Any],
    seed: int,
    steps: int,
    cfg: float,
    sampler: str,
    scheduler: str,
    positive: list,
    negative: list,
    denoise: float = 1.0,
    callback: Callable[[int, Tensor, Tensor, int], None] | None = None,
) -> Tensor:
    """The final latent.

    Args:
        latent: ComfyUI's LATENT, that is `samples` and maybe `noise_mask`, `batch_index` and its `RATIOS`.
        callback: (step, denoised, latent, steps), after every step.
    """
    ratios = {name: latent[name] for name in RATIOS if name in latent}
    start = comfy.sample.fix_empty_latent_channels(model, latent["samples"], **ratios)
    noise = comfy.sample.prepare_noise(start, seed, latent.get("batch_index"))
    return comfy.sample.sample(
        model, noise, steps, cfg, sampler, scheduler, positive, negative, start, denoise=denoise,
        noise_mask=latent.get("noise_mask"), callback=callback, disable_pbar=not comfy.utils.PROGRESS_BAR_ENABLED,
        seed=seed,
    )  # fmt: skip


def parts_of(latent) -> Sequence[Tensor]:
    """The parts of a latent that has several (video and sound); else the latent itself."""
    return latent.unbind() if latent.is_nested else (latent,)


def difference(latent, other) -> Tensor:
    """(E), of the elements of all parts of two latents."""
    pairs = zip(parts_of(latent), parts_of(other), strict=True)
    return torch.cat([(a - b).double().flatten() for a, b in pairs])


def squared_error(latent, other) -> float:
    """Mean squared difference of two latents."""
    return float(difference(latent, other).square().mean())
