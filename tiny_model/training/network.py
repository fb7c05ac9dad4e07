"""A tiny trainable transformer in the Flux.1 layout.

The layout and the parameter names are those of Flux.1 schnell by Black Forest Labs
(https://github.com/black-forest-labs/flux, Apache-2.0), so that ComfyUI recognises the saved file and
infers every size from its tensors. This is an independent implementation for training: ComfyUI's own
blocks add in place, which autograd does not allow.

Shape letters: B pictures, C latent channels, H and W latent rows and columns, N image tokens
(one token is a 2x2 patch of the latent), T text tokens, L = T + N, D hidden width, V vocabulary slots.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import HEAD_WIDTH, RotaryAttention, grid_positions

LATENT_CHANNELS = 16
PATCH = 2
HEADS = 1
HIDDEN = HEADS * HEAD_WIDTH
DOUBLE_BLOCKS = 2
SINGLE_BLOCKS = 12
VOCABULARY_SLOTS = 64  # width of the one-hot text tokens; more than the words in use
MLP_RATIO = 4
TIME_FREQUENCIES = 128
ROPE_WIDTHS = (16, 56, 56)  # head features given to (unused, row, column); fixed by ComfyUI


@cache
def picture_attention(rows: int, columns: int, text_tokens: int, dtype: torch.dtype) -> RotaryAttention:
    """For text tokens, which all sit at position 0, so that a prompt is a bag of words, and then image tokens."""
    positions = torch.cat((torch.zeros(text_tokens, 3), grid_positions(1, rows, columns)))
    return RotaryAttention(positions, ROPE_WIDTHS, dtype)


def split_heads(packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, L, 3 D) -> query, key and value, each (B, HEADS, L, HEAD_WIDTH)."""
    return packed.unflatten(-1, (3, HEADS, HEAD_WIDTH)).permute(2, 0, 3, 1, 4).unbind(0)


def modulate(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without own weights, then the scale and shift that the time step asks for."""
    normalised = F.layer_norm(tokens, tokens.shape[-1:], eps=1e-6)
    return torch.addcmul(shift, normalised, 1 + scale)


def sinusoids(time: Tensor) -> Tensor:
    """Noise levels (B,) in 0..1 -> (B, 2 * TIME_FREQUENCIES)."""
    frequencies = torch.exp(-math.log(10_000) * torch.arange(TIME_FREQUENCIES) / TIME_FREQUENCIES)
    angles = 1000 * time[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


class UnitScale(nn.Module):
    """The per-feature scale of a query or key norm: part of the file layout, kept at 1 here."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(HEAD_WIDTH), requires_grad=False)


class QueryKeyNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_norm, self.key_norm = UnitScale(), UnitScale()


class Modulation(nn.Module):
    """Time embedding (B, D) -> `parts` modulation vectors, each (B, 1, D)."""

    def __init__(self, parts: int):
        super().__init__()
        self.parts = parts
        self.lin = nn.Linear(HIDDEN, parts * HIDDEN)

    def forward(self, time_embedding: Tensor) -> tuple[Tensor, ...]:
        return self.lin(F.silu(time_embedding)).unsqueeze(1).chunk(self.parts, dim=-1)


class TimeEmbedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_layer = nn.Linear(2 * TIME_FREQUENCIES, HIDDEN)
        self.out_layer = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, time: Tensor) -> Tensor:
        return self.out_layer(F.silu(self.in_layer(sinusoids(time))))  # (B, D)


class StreamAttention(nn.Module):
    """The projections around the attention of one stream; the attention itself spans both streams."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.norm = QueryKeyNorm()
        self.proj = nn.Linear(HIDDEN, HIDDEN)


def feed_forward() -> nn.Sequential:
    inner = MLP_RATIO * HIDDEN
    return nn.Sequential(nn.Linear(HIDDEN, inner), nn.GELU("tanh"), nn.Linear(inner, HIDDEN))


class DoubleBlock(nn.Module):
    """Image and text tokens with separate weights and one common attention."""

    def __init__(self):
        super().__init__()
        self.img_mod, self.txt_mod = Modulation(6), Modulation(6)
        self.img_attn, self.txt_attn = StreamAttention(), StreamAttention()
        self.img_mlp, self.txt_mlp = feed_forward(), feed_forward()

    def forward(
        self, image: Tensor, text: Tensor, time_embedding: Tensor, attention: RotaryAttention
    ) -> tuple[Tensor, Tensor]:
        image_mod, text_mod = self.img_mod(time_embedding), self.txt_mod(time_embedding)
        of_image = self.img_attn.qkv(modulate(image, *image_mod[:2]))  # (B, N, 3 D)
        of_text = self.txt_attn.qkv(modulate(text, *text_mod[:2]))  # (B, T, 3 D)
        mixed = attention(*split_heads(torch.cat((of_text, of_image), dim=1)))
        text_part, image_part = mixed.split((text.shape[1], image.shape[1]), dim=1)
        image = image + self.img_attn.proj(image_part) * image_mod[2]
        image = image + self.img_mlp(modulate(image, *image_mod[3:5])) * image_mod[5]
        text = text + self.txt_attn.proj(text_part) * text_mod[2]
        text = text + self.txt_mlp(modulate(text, *text_mod[3:5])) * text_mod[5]
        return image, text  # (B, N, D), (B, T, D)


class SingleBlock(nn.Module):
    """One stream (text tokens first), attention and feed-forward side by side."""

    def __init__(self):
        super().__init__()
        self.widths = (3 * HIDDEN, MLP_RATIO * HIDDEN)
        self.linear1 = nn.Linear(HIDDEN, sum(self.widths))
        self.linear2 = nn.Linear(HIDDEN + self.widths[1], HIDDEN)
        self.norm = QueryKeyNorm()
        self.modulation = Modulation(3)

    def forward(self, tokens: Tensor, time_embedding: Tensor, attention: RotaryAttention) -> Tensor:
        shift, scale, gate = self.modulation(time_embedding)
        packed, inner = self.linear1(modulate(tokens, shift, scale)).split(self.widths, dim=-1)
        mixed = attention(*split_heads(packed))  # (B, L, D)
        joined = torch.cat((mixed, F.gelu(inner, approximate="tanh")), dim=-1)
        return tokens + self.linear2(joined) * gate  # (B, L, D)


class LastLayer(nn.Module):
    def __init__(self, outputs: int):
        super().__init__()
        self.linear = nn.Linear(HIDDEN, outputs)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(HIDDEN, 2 * HIDDEN))

    def forward(self, tokens: Tensor, time_embedding: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(time_embedding).unsqueeze(1).chunk(2, dim=-1)
        return self.linear(modulate(tokens, shift, scale))


class TinyFlux(nn.Module):
    """Predicts the rectified-flow velocity `noise - picture` of a noisy latent."""

    def __init__(self):
        super().__init__()
        patch_width = LATENT_CHANNELS * PATCH * PATCH
        self.img_in = nn.Linear(patch_width, HIDDEN)
        self.txt_in = nn.Linear(VOCABULARY_SLOTS, HIDDEN)
        self.time_in = TimeEmbedder()
        self.double_blocks = nn.ModuleList(DoubleBlock() for _ in range(DOUBLE_BLOCKS))
        self.single_blocks = nn.ModuleList(SingleBlock() for _ in range(SINGLE_BLOCKS))
        self.final_layer = LastLayer(patch_width)
        self._initialise()

    def _initialise(self) -> None:
        """Xavier weights; modulations and the output start at zero, as in the DiT paper (2212.09748)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Modulation):
                nn.init.zeros_(module.lin.weight)
        nn.init.zeros_(self.final_layer.adaLN_modulation[1].weight)
        nn.init.zeros_(self.final_layer.linear.weight)
        nn.init.normal_(self.time_in.in_layer.weight, std=0.02)
        nn.init.normal_(self.time_in.out_layer.weight, std=0.02)

    def forward(self, latent: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """latent (B, C, H, W), time (B,) in 0..1 with 1 = pure noise, text (B, T, V) -> (B, C, H, W)."""
        rows, columns = latent.shape[2] // PATCH, latent.shape[3] // PATCH
        image = self.img_in(to_patches(latent))  # (B, N, D)
        text = self.txt_in(text)  # (B, T, D)
        time_embedding = self.time_in(time)  # (B, D)
        attention = picture_attention(rows, columns, text.shape[1], image.dtype)
        for block in self.double_blocks:
            image, text = block(image, text, time_embedding, attention)
        tokens = torch.cat((text, image), dim=1)  # (B, L, D)
        for block in self.single_blocks:
            tokens = block(tokens, time_embedding, attention)
        velocity = self.final_layer(tokens[:, text.shape[1] :], time_embedding)
        return from_patches(velocity, rows, columns)


def to_patches(latent: Tensor) -> Tensor:
    """(B, C, H, W) -> (B, N, C * 4), channel first inside a patch."""
    return F.pixel_unshuffle(latent, PATCH).flatten(2).transpose(1, 2)


def from_patches(patches: Tensor, rows: int, columns: int) -> Tensor:
    """Inverse of `to_patches`."""
    return F.pixel_shuffle(patches.transpose(1, 2).unflatten(2, (rows, columns)), PATCH)
