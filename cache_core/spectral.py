"""SeaCache's filter: keep of a signal what can be known at its noise level.

Natural signals have a spectrum that falls with frequency. Under noise, the best linear estimate scales each frequency by
g(f) = a S / (a^2 S + b^2), where x = a x0 + b noise and S(f) = |f|^-beta is the spectrum of x0.

Source: SeaCache, arXiv 2602.18993; separable form of its published code (jiwoogit/SeaCache).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST_SIGNAL = 1e-6
"""Of a: at the very start there is nothing but noise, and the gain would be 0/0 after normalising."""

CHUNK_ELEMENTS = 2**25
"""Real elements transformed at once: 256 MiB of complex numbers."""


def axis_gain(size: int, a: Tensor, b: Tensor, beta: float) -> Tensor:
    """g(f) at the frequencies of one axis, (size,), in float32 on the device of `a`.

    >>> [round(g, 4) for g in axis_gain(4, torch.tensor(0.5), torch.tensor(0.5), 2.0).tolist()]
    [2.0, 1.8824, 1.6, 1.8824]
    """
    a = a.float().clamp_min(SMALLEST_SIGNAL)
    spectrum = 1 / (torch.fft.fftfreq(size, device=a.device).abs() ** beta + 1e-16)
    return a * spectrum / (a**2 * spectrum + b.float() ** 2)


def separable_gain(grid: Sequence[int], a: Tensor, b: Tensor, beta: float) -> Tensor:
    """The product of the axes' gains over a grid, divided by its mean: (*grid,)."""
    gain = axis_gain(grid[0], a, b, beta)
    for size in grid[1:]:
        gain = gain.unsqueeze(-1) * axis_gain(size, a, b, beta)
    return gain / gain.mean()


def filtered(tokens: Tensor, grid: Sequence[int], gain: Tensor) -> Tensor:
    """Tokens with each frequency of the grid scaled by `gain`.

    Args:
        tokens: (B, N, D) with N = prod(grid), row-major, or (B, *grid, D); transformed a part of the channels at a time.
        gain: (*grid,), symmetric in frequency.

    Returns:
        The shape of `tokens`, float32.
    """
    shape, channels = tokens.shape, tokens.shape[-1]
    values = tokens.reshape(shape[0], *grid, channels)
    axes = tuple(range(1, 1 + len(grid)))
    half = gain[..., : grid[-1] // 2 + 1].unsqueeze(-1)  # of a real signal the other half follows
    at_once = max(1, CHUNK_ELEMENTS // (shape[0] * math.prod(grid)))
    parts = [
        torch.fft.irfftn(torch.fft.rfftn(part.float(), dim=axes) * half, s=tuple(grid), dim=axes)
        for part in values.split(at_once, dim=-1)
    ]
    return torch.cat(parts, dim=-1).reshape(shape)


def token_grid(latent: Sequence[int], tokens: int) -> tuple[int, ...] | None:
    """How the tokens of a latent lie, by its shape (B, C, ...) and their number; None if they do not fit.

    Patches are squares of 1 to 32 in height and width, and 1, 2 or 4 frames; a single frame is left out.

    >>> token_grid((1, 16, 64, 96), 32 * 48), token_grid((1, 16, 21, 60, 104), 21 * 30 * 52)
    ((32, 48), (21, 30, 52))
    """
    *frames, height, width = latent[2:] if len(latent) > 3 else (1, *latent[2:])
    for side in (1, 2, 4, 8, 16, 32):
        plane = (math.ceil(height / side) if len(latent) > 3 else 1, math.ceil(width / side))
        for depth in (1, 2, 4):
            grid = tuple(math.ceil(count / depth) for count in frames) + plane
            if math.prod(grid) == tokens:
                return tuple(size for size in grid if size > 1) or (1,)
    return None
