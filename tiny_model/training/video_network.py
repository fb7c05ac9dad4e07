"""A tiny trainable transformer in the layout of Wan 2.1 text-to-video.

The layout and the parameter names are those of Wan 2.1 by the Alibaba Wan Team
(https://github.com/Wan-Video/Wan2.1, Apache-2.0), so that ComfyUI recognises the saved file. Like `network.py`,
whose shape letters it uses, this is an independent implementation for training; F are latent frames and N the
tokens of all of them.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import HEAD_WIDTH, RotaryAttention, attend, grid_positions
from .network import LATENT_CHANNELS, PATCH, TIME_FREQUENCIES, VOCABULARY_SLOTS, feed_forward, modulate, sinusoids

HIDDEN = HEAD_WIDTH  # one head
BLOCKS = 8
ROPE_WIDTHS = (44, 42, 42)  # head features given to (frame, row, column); fixed by ComfyUI


@cache
def clip_attention(frames: int, rows: int, columns: int, dtype: torch.dtype) -> RotaryAttention:
    return RotaryAttention(grid_positions(frames, rows, columns), ROPE_WIDTHS, dtype)


class UnitWeight(nn.Module):
    """The per-feature weight of a query or key norm: part of the file layout, kept at 1 here."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN), requires_grad=False)


class Attention(nn.Module):
    """The projections of an attention from tokens (B, N, D) to themselves, or to `source` (B, T, D)."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.norm_q, self.norm_k = UnitWeight(), UnitWeight()


class SelfAttention(Attention):
    def forward(self, tokens: Tensor, attention: RotaryAttention) -> Tensor:
        of_one_head = [layer(tokens).unsqueeze(1) for layer in (self.q, self.k, self.v)]  # (B, 1, N, D) each
        return self.o(attention(*of_one_head))


class TextAttention(Attention):
    """Words have no position, so a prompt is a bag of words."""

    def forward(self, tokens: Tensor, text: Tensor) -> Tensor:
        query, key = (F.rms_norm(x, (HIDDEN,), eps=1e-6) for x in (self.q(tokens), self.k(text)))
        return self.o(attend(query, key, self.v(text)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.cross_attn = SelfAttention(), TextAttention()
        self.norm3 = nn.LayerNorm(HIDDEN, eps=1e-6)
        self.ffn = feed_forward()
        self.modulation = nn.Parameter(torch.empty(1, 6, HIDDEN))

    def forward(self, tokens: Tensor, text: Tensor, time_parts: Tensor, attention: RotaryAttention) -> Tensor:
        """tokens (B, N, D), text (B, T, D), time_parts (B, 6, D) -> (B, N, D)."""
        shift, scale, gate, *of_ffn = (self.modulation + time_parts).chunk(6, dim=1)
        tokens = tokens + self.self_attn(modulate(tokens, shift, scale), attention) * gate
        tokens = tokens + self.cross_attn(self.norm3(tokens), text)
        shift, scale, gate = of_ffn
        return tokens + self.ffn(modulate(tokens, shift, scale)) * gate


class Head(nn.Module):
    def __init__(self, outputs: int):
        super().__init__()
        self.head = nn.Linear(HIDDEN, outputs)
        self.modulation = nn.Parameter(torch.empty(1, 2, HIDDEN))

    def forward(self, tokens: Tensor, time_embedding: Tensor) -> Tensor:
        shift, scale = (self.modulation + time_embedding.unsqueeze(1)).chunk(2, dim=1)
        return self.head(modulate(tokens, shift, scale))


class TinyWan(nn.Module):
    """Predicts the rectified-flow velocity `noise - clip` of a noisy latent clip."""

    def __init__(self):
        super().__init__()
        patch = (1, PATCH, PATCH)
        self.patch_embedding = nn.Conv3d(LATENT_CHANNELS, HIDDEN, patch, stride=patch)
        self.text_embedding = nn.Sequential(
            nn.Linear(VOCABULARY_SLOTS, HIDDEN), nn.GELU("tanh"), nn.Linear(HIDDEN, HIDDEN)
        )
        self.time_embedding = nn.Sequential(
            nn.Linear(2 * TIME_FREQUENCIES, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN)
        )
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(HIDDEN, 6 * HIDDEN))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = Head(LATENT_CHANNELS * PATCH * PATCH)
        self._initialise()

    def _initialise(self) -> None:
        """Xavier weights; what time adds and the output start at zero, as in TinyFlux."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv3d)):
                nn.init.xavier_uniform_(module.weight.flatten(1))
                nn.init.zeros_(module.bias)
        for module in (*self.blocks, self.head):
            nn.init.normal_(module.modulation, std=HIDDEN**-0.5)
        nn.init.zeros_(self.head.head.weight)
        nn.init.zeros_(self.time_projection[1].weight)
        nn.init.normal_(self.time_embedding[0].weight, std=0.02)
        nn.init.normal_(self.time_embedding[2].weight, std=0.02)

    def forward(self, latent: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """latent (B, C, F, H, W), time (B,) in 0..1 with 1 = pure noise, text (B, T, V) -> (B, C, F, H, W)."""
        frames, rows, columns = latent.shape[2], latent.shape[3] // PATCH, latent.shape[4] // PATCH
        tokens = F.linear(to_patches(latent), self.patch_embedding.weight.flatten(1), self.patch_embedding.bias)
        text = self.text_embedding(text)  # (B, T, D)
        time_embedding = self.time_embedding(sinusoids(time))  # (B, D)
        time_parts = self.time_projection(time_embedding).unflatten(1, (6, HIDDEN))
        attention = clip_attention(frames, rows, columns, tokens.dtype)
        for block in self.blocks:
            tokens = block(tokens, text, time_parts, attention)  # (B, N, D)
        return from_patches(self.head(tokens, time_embedding), frames, rows, columns)


def to_patches(latent: Tensor) -> Tensor:
    """(B, C, F, H, W) -> (B, N, C * 4), channel first inside a patch."""
    patches = F.pixel_unshuffle(latent.transpose(1, 2), PATCH)  # (B, F, C * 4, H / 2, W / 2)
    return patches.permute(0, 1, 3, 4, 2).flatten(1, 3)


def from_patches(patches: Tensor, frames: int, rows: int, columns: int) -> Tensor:
    """(B, N, 4 * C), channel last inside a patch -> (B, C, F, H, W)."""
    grid = patches.unflatten(2, (PATCH, PATCH, -1)).unflatten(1, (frames, rows, columns))  # (B, F, h, w, 2, 2, C)
    return grid.permute(0, 6, 1, 2, 4, 3, 5).flatten(5, 6).flatten(3, 4)
