"""How far a cached picture is from the uncached one: PSNR and SSIM."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW_SIZE = 11
WINDOW_SIGMA = 1.5
K1 = 0.01
K2 = 0.03


def psnr(a: Tensor, b: Tensor, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio in dB: `10 log10(peak^2 / mean((a - b)^2))`.

    `a`, `b`: (..., C, H, W), values in [0, peak]. One value a picture, averaged over the leading dimensions.
    Identical pictures give `inf`, and so does a batch that holds an identical pair. Values that are not finite give NaN or
    `-inf`.
    Raises ValueError if the shapes differ.
    """
    a, b = _as_pictures(a, b)
    errors = (a - b).square().mean(dim=(1, 2, 3))  # (pictures,)
    values = (10 * torch.log10(peak**2 / errors)).tolist()
    return sum(values) / len(values)


def ssim(a: Tensor, b: Tensor, peak: float = 1.0) -> float:
    """Structural similarity (Wang, Bovik, Sheikh, Simoncelli, IEEE TIP 13(4), 2004), at most 1.

    `a`, `b`: (..., C, H, W), values in [0, peak], H and W at least 11. Each channel by itself, with the paper's
    Gaussian window (11x11, sigma 1.5) at every position where it fits; the mean over positions, channels and
    leading dimensions is returned. Identical pictures give exactly 1.
    Raises ValueError if the shapes differ or a picture is smaller than the window.
    """
    a, b = _as_pictures(a, b)
    if min(a.shape[-2:]) < WINDOW_SIZE:
        raise ValueError(f"SSIM needs at least {WINDOW_SIZE}x{WINDOW_SIZE} pixels, got {tuple(a.shape[-2:])}")
    if torch.equal(a, b):
        return 1.0
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    mean_a, mean_b = _windowed_mean(a), _windowed_mean(b)
    var_a = _windowed_mean(a * a) - mean_a**2
    var_b = _windowed_mean(b * b) - mean_b**2
    covariance = _windowed_mean(a * b) - mean_a * mean_b
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (var_a + var_b + c2)
    return float((luminance * structure).mean())


def _as_pictures(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both as float64 (pictures, C, H, W); float64 because the variances are differences of close numbers."""
    if a.shape != b.shape:
        raise ValueError(f"pictures differ in shape: {tuple(a.shape)} and {tuple(b.shape)}")
    if a.ndim < 3 or a.numel() == 0:
        raise ValueError(f"expected (..., C, H, W), got {tuple(a.shape)}")
    return a.double().reshape(-1, *a.shape[-3:]), b.double().reshape(-1, *b.shape[-3:])


def _windowed_mean(pictures: Tensor) -> Tensor:
    """Gaussian-weighted mean around each pixel: (P, C, H, W) to (P, C, H - 10, W - 10)."""
    offsets = torch.arange(WINDOW_SIZE, dtype=pictures.dtype, device=pictures.device) - WINDOW_SIZE // 2
    weights = torch.exp(-(offsets**2) / (2 * WINDOW_SIGMA**2))
    weights = weights / weights.sum()
    planes = pictures.flatten(0, 1).unsqueeze(1)  # (P * C, 1, H, W)
    planes = F.conv2d(planes, weights.view(1, 1, -1, 1))
    planes = F.conv2d(planes, weights.view(1, 1, 1, -1))
    return planes.reshape(*pictures.shape[:2], *planes.shape[-2:])
