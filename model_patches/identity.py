"""Which model it is, by what it computes with: its class, some of its weights, and the patches on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from comfy.model_patcher import ModelPatcher
from torch import Tensor

from .architecture import unwrapped

CHOSEN = 24
"""Weights and patches that are looked at, evenly spread; of each some elements."""


def model_identity(patcher: ModelPatcher) -> str:
    """Sixteen hex digits that differ for models with other weights, and do not change from start to start.

    Names of files and LoRAs do not count. Weights that ComfyUI has patched in place are looked at as they were before.
    """
    model = patcher.model
    weights = dict(model.diffusion_model.named_parameters())
    digest = hashlib.sha256(type(unwrapped(model.diffusion_model)).__name__.encode())
    for name in spread(sorted(weights)):
        digest.update(f"{name} {tuple(weights[name].shape)}".encode())
        saved = patcher.backup.get(f"diffusion_model.{name}")
        digest.update(sampled(weights[name] if saved is None else saved.weight))
    return digest.hexdigest()[:16]


def patches_identity(patcher: ModelPatcher) -> str:
    """Eight hex digits that differ for other LoRAs or strengths of them; empty where there are none."""
    if not patcher.patches:
        return ""
    digest = hashlib.sha256(str(len(patcher.patches)).encode())
    for key in spread(sorted(patcher.patches, key=str)):
        for strength, change, *_ in patcher.patches[key]:
            digest.update(f"{key} {strength:.6g}".encode())
            digest.update(b"".join(sampled(tensor) for tensor in tensors_in(change)))
    return digest.hexdigest()[:8]


def spread(names: Sequence[Any]) -> Sequence[Any]:
    """At most `CHOSEN` of them, the first and the last included."""
    if len(names) <= CHOSEN:
        return names
    return [names[round(n * (len(names) - 1) / (CHOSEN - 1))] for n in range(CHOSEN)]


def sampled(weight: Tensor, count: int = 32) -> bytes:
    """Some elements, evenly spread, as bytes; none where the weights are of a kind that cannot be read so."""
    try:
        flat = weight.detach().reshape(-1)
        chosen = flat[:: max(flat.numel() // count, 1)][:count]
        return chosen.to("cpu", torch.float32).numpy().tobytes()
    except (RuntimeError, NotImplementedError, TypeError):  # meta tensors, packed quantised weights
        return str(tuple(weight.shape)).encode()


def tensors_in(change: Any) -> Iterator[Tensor]:
    """The tensors of a weight patch, which is a tensor, a tuple of such, or an adapter with `weights`."""
    if isinstance(change, Tensor):
        yield change
    elif isinstance(change, (tuple, list)):
        for part in change:
            yield from tensors_in(part)
    else:
        yield from tensors_in(getattr(change, "weights", ()))
