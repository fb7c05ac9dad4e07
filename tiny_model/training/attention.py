"""Attention with normalised, position-rotated queries and keys, written for fast training on a CPU.

The stock ways are slow there: pairwise rotation makes strided copies, and the backward pass of torch's
fused attention is slower than the plain formula. Here the pair swap is a matrix product.
"""

import torch
from torch import Tensor

HEAD_WIDTH = 128
ROPE_THETA = 10_000.0


def grid_positions(*sizes: int) -> Tensor:
    """Positions on a grid, the last axis fastest: (product of `sizes`, number of axes)."""
    axes = [torch.arange(size, dtype=torch.float64) for size in sizes]
    return torch.cartesian_prod(*axes)


def rotary_table(positions: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary position angles (arXiv 2104.09864), each (L, HEAD_WIDTH).

    `positions` is (L, axes); `widths` says how many features of a head turn with each axis.
    """
    angles = []
    for position, features in zip(positions.unbind(1), widths):
        frequencies = ROPE_THETA ** -(torch.arange(0, features, 2, dtype=torch.float64) / features)
        angles.append(position[:, None] * frequencies)
    angles = torch.cat(angles, dim=1).repeat_interleave(2, dim=1)  # (L, HEAD_WIDTH)
    return angles.cos().float(), angles.sin().float()


def pair_swap() -> Tensor:
    """Matrix that maps each feature pair (a, b) to (-b, a), as (HEAD_WIDTH, HEAD_WIDTH)."""
    swap = torch.zeros(HEAD_WIDTH, HEAD_WIDTH)
    even = torch.arange(0, HEAD_WIDTH, 2)
    swap[even + 1, even] = -1
    swap[even, even + 1] = 1
    return swap


class NormaliseAndRotate(torch.autograd.Function):
    """RMS norm (with scale 1) and rotation of (B, heads, L, HEAD_WIDTH) in a few passes over memory."""

    @staticmethod
    def forward(ctx, features: Tensor, cosine: Tensor, sine: Tensor, swap: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        inverse = length.mul_(HEAD_WIDTH**-0.5).add_(1e-6).reciprocal_()
        normalised = features * inverse
        ctx.save_for_backward(normalised, inverse, cosine, sine, swap)
        return torch.addcmul(normalised * cosine, normalised @ swap, sine)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        normalised, inverse, cosine, sine, swap = ctx.saved_tensors
        unrotated = (gradient * cosine).add_((gradient * sine) @ swap.T)
        radial = (unrotated * normalised).mean(dim=-1, keepdim=True)  # the norm removes this part
        return torch.addcmul(unrotated, normalised, radial, value=-1).mul_(inverse), None, None, None


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Softmax attention: query (..., L, HEAD_WIDTH), key and value (..., T, HEAD_WIDTH) -> (..., L, HEAD_WIDTH)."""
    scores = query @ key.transpose(-1, -2) * HEAD_WIDTH**-0.5  # (..., L, T)
    return scores.softmax(dim=-1).to(value.dtype) @ value


class RotaryAttention:
    """Self-attention of tokens at given positions; holds the position table in the dtype of the features."""

    def __init__(self, positions: Tensor, widths: tuple[int, ...], dtype: torch.dtype):
        """`positions` and `widths` as for `rotary_table`."""
        self.cosine, self.sine = (part.to(dtype) for part in rotary_table(positions, widths))
        self.swap = pair_swap().to(dtype)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each (B, heads, L, HEAD_WIDTH) -> (B, L, heads * HEAD_WIDTH)."""
        query = NormaliseAndRotate.apply(query, self.cosine, self.sine, self.swap)
        key = NormaliseAndRotate.apply(key, self.cosine, self.sine, self.swap)
        return attend(query, key, value).transpose(1, 2).flatten(2)
