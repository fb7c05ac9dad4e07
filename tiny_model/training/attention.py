"""Attention with normalised, position-rotated queries and keys, written for fast training on a CPU.

The stock ways are slow there: pairwise rotation makes strided copies, and the backward pass of torch's
fused attention is slower than the plain formula. Here the pair swap is a matrix product.
"""

import torch
from torch import Tensor

ROPE_AXES = (16, 56, 56)  # head features given to (unused, row, column); fixed by ComfyUI
ROPE_THETA = 10_000.0
HEAD_WIDTH = sum(ROPE_AXES)


def rotary_table(rows: int, columns: int, text_tokens: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary position angles (arXiv 2104.09864), each (L, HEAD_WIDTH).

    Text tokens all sit at position 0, so a prompt is a bag of words.
    """
    positions = torch.zeros(text_tokens + rows * columns, len(ROPE_AXES), dtype=torch.float64)
    positions[text_tokens:, 1] = torch.arange(rows).repeat_interleave(columns)
    positions[text_tokens:, 2] = torch.arange(columns).repeat(rows)
    angles = []
    for axis, features in enumerate(ROPE_AXES):
        frequencies = ROPE_THETA ** -(torch.arange(0, features, 2, dtype=torch.float64) / features)
        angles.append(positions[:, axis : axis + 1] * frequencies)
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


class RotaryAttention:
    """Softmax attention for one picture shape; holds the position table in the dtype of the features."""

    def __init__(self, rows: int, columns: int, text_tokens: int, dtype: torch.dtype):
        self.cosine, self.sine = (part.to(dtype) for part in rotary_table(rows, columns, text_tokens))
        self.swap = pair_swap().to(dtype)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each (B, heads, L, HEAD_WIDTH), text tokens first -> (B, L, heads * HEAD_WIDTH)."""
        query = NormaliseAndRotate.apply(query, self.cosine, self.sine, self.swap)
        key = NormaliseAndRotate.apply(key, self.cosine, self.sine, self.swap)
        scores = query @ key.transpose(-1, -2) * HEAD_WIDTH**-0.5  # (B, heads, L, L)
        return (scores.softmax(dim=-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
