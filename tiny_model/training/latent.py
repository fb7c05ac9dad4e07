"""A fixed linear latent space: each 8x8 block of a picture becomes 16 numbers.

No encoder is trained. The 192 numbers of a block (3 colours x 64 pixels) are projected on their 16
principal components. Component i is scaled to a standard deviation of eigenvalue ** 0.25, half-way
between raw and white, so that coarse structure still dominates as it does in trained VAEs. A fixed random
rotation then spreads the components evenly over the channels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 8
CHANNELS = 16


def to_blocks(pictures: Tensor) -> Tensor:
    """(B, 3, H, W) in 0..1 -> (B, 192, H / 8, W / 8) in -1..1."""
    return F.pixel_unshuffle(pictures * 2 - 1, BLOCK)


def from_blocks(blocks: Tensor) -> Tensor:
    """Inverse of `to_blocks`."""
    return F.pixel_shuffle(blocks, BLOCK) / 2 + 0.5


@dataclass(frozen=True)
class LinearLatent:
    """`encoder` is (16, 192), `decoder` (192, 16), `mean` (192,); latents have a standard deviation of about 1."""

    encoder: Tensor
    decoder: Tensor
    mean: Tensor
    kept_variance: float

    @classmethod
    def fit(cls, pictures: Tensor, seed: int) -> LinearLatent:
        """Principal components of the blocks of `pictures` (B, 3, H, W) in 0..1."""
        blocks = to_blocks(pictures).permute(0, 2, 3, 1).flatten(0, 2)  # (blocks, 192)
        mean = blocks.mean(dim=0)
        centred = blocks - mean
        variances, directions = torch.linalg.eigh(centred.T @ centred / len(blocks))
        largest = variances.flip(0)[:CHANNELS]
        directions = directions.flip(1)[:, :CHANNELS]  # (192, 16)
        generator = torch.Generator().manual_seed(seed)
        rotation, _ = torch.linalg.qr(torch.randn(CHANNELS, CHANNELS, generator=generator))
        scale = largest**0.25 * (largest**0.5).mean().rsqrt()  # (16,), standard deviations
        gain = scale / largest**0.5
        return cls(
            encoder=rotation @ (directions * gain).T,
            decoder=(directions / gain) @ rotation.T,
            mean=mean,
            kept_variance=(largest.sum() / variances.sum()).item(),
        )

    def encode(self, pictures: Tensor) -> Tensor:
        """(B, 3, H, W) in 0..1 -> (B, 16, H / 8, W / 8)."""
        centred = to_blocks(pictures) - self.mean.view(1, -1, 1, 1)
        return torch.einsum("ci,bihw->bchw", self.encoder, centred)

    def decode(self, latents: Tensor) -> Tensor:
        """Linear reconstruction, blocky at edges: (B, 16, h, w) -> (B, 3, 8 h, 8 w)."""
        return from_blocks(torch.einsum("ic,bchw->bihw", self.decoder, latents) + self.mean.view(1, -1, 1, 1))

    def block_colour(self) -> tuple[Tensor, Tensor]:
        """Weights (3, 16) and offsets (3,) that turn a latent into the mean colour (0..1) of its block."""
        weights = self.decoder.unflatten(0, (3, BLOCK * BLOCK)).mean(dim=1) / 2
        return weights, self.mean.unflatten(0, (3, BLOCK * BLOCK)).mean(dim=1) / 2 + 0.5

    def state(self) -> dict:
        return asdict(self)
