"""How far two signals are apart, and what that means for the output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

EPSILON = 1e-6
"""Smallest reference magnitude sum; keeps 0/0 out. Whatever is not finite leads to a computed evaluation anyway."""


def relative_l1(current: Tensor, reference: Tensor) -> Tensor:
    """Sum of absolute differences over the sum of absolute reference values, in float32; the largest of the batch.

    The latents of a batch are reused together, so the one that changes most decides.

    Args:
        current, reference: same shape, (B, N, D) or more, or one vector for all; any dtype; `reference` may live on
            another device.

    Returns:
        0-d float32 tensor on `current`'s device (nothing is read back to the host), dimensionless, >= 0.

    Source: the distance of TeaCache (arXiv 2411.19108) and First Block Cache (ParaAttention).
    """
    reference = reference.to(current.device, torch.float32, non_blocking=True)
    current = current.float()
    if current.ndim < 3:
        current, reference = current.flatten().unsqueeze(0), reference.flatten().unsqueeze(0)
    change = (current - reference).abs().flatten(1).sum(1)  # (B,)
    return (change / reference.abs().flatten(1).sum(1).clamp_min(EPSILON)).amax()


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Value of a polynomial, highest power first (Horner's rule).

    >>> polynomial(torch.tensor(2.0), (1.0, 0.0, 3.0)).item()
    7.0
    """
    value = torch.zeros_like(x)
    for coefficient in coefficients:
        value = value * x + coefficient
    return value
