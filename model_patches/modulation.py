"""The modulated input of block 0 by block family: what TeaCache compares between steps.

Each function repeats the first line of a block's forward, the norm and timestep modulation in front of its first
attention, on image tokens only: text never enters, nor do reference-image tokens, which are constant and would dilute
the change. Only arguments and submodules of the block are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .architecture import Arguments

Block = Any
"""A block of the family that a function is for; its submodules are used by name."""


def target_tokens(image: Tensor, arguments: Arguments) -> Tensor:
    """The tokens of the picture itself: reference images follow them in the stream and are left out, (B, N, D)."""
    options = arguments.get("transformer_options") or {}
    references = sum(options.get("reference_image_num_tokens") or ())
    return image[:, : image.shape[1] - references] if 0 < references < image.shape[1] else image


def flux(block: Block, arguments: Arguments) -> Tensor:
    """Flux, Chroma, HunyuanVideo: `img_mod` of the block, or modulation made outside and passed as `vec`."""
    image, vec = target_tokens(arguments["img"], arguments), arguments["vec"]
    modulation = block.img_mod(vec)[0] if block.modulation else vec[0][0]
    scale, shift = modulation.scale, modulation.shift  # (B, 1 or 2, D)
    token_groups = arguments.get("modulation_dims_img")
    if token_groups:  # (start, end, row): some tokens are kept clean; the row of the largest group is the picture's
        row = max(token_groups, key=lambda group: (group[1] or arguments["img"].shape[1]) - group[0])[2]
        scale, shift = scale[:, row : row + 1], shift[:, row : row + 1]
    return torch.addcmul(shift, block.img_norm1(image), 1 + scale)


def qwen_image(block: Block, arguments: Arguments) -> Tensor:
    image = target_tokens(arguments["hidden_states"], arguments)
    first = block.img_mod(arguments["temb"]).chunk(2, dim=-1)[0]  # (B, 3D); twice B with references at timestep zero
    shift, scale, _ = first[: image.shape[0]].unsqueeze(1).chunk(3, dim=-1)
    return torch.addcmul(shift, block.img_norm1(image), 1 + scale)


def wan(block: Block, arguments: Arguments) -> Tensor:
    image, e = arguments["x"], arguments["e"]  # (B, N, D), (B, 6, D) or per frame (B, F, 6, D)
    table = block.modulation.to(image)  # (1, 6, D)
    shift, scale = (table.unsqueeze(1) + e).unbind(2)[:2] if e.ndim == 4 else (table + e).split(1, dim=1)[:2]
    if 1 < shift.shape[1] < image.shape[1]:
        repeats = -(-image.shape[1] // shift.shape[1])
        shift, scale = (x.repeat_interleave(repeats, dim=1)[:, : image.shape[1]] for x in (shift, scale))
    return torch.addcmul(shift, block.norm1(image), 1 + scale)


def lumina2(block: Block, arguments: Arguments) -> Tensor:
    """Lumina 2 and Z-Image: scale only; with reference images the second half of the rows is the picture's."""
    image = arguments["x"]  # already cut to image tokens
    scale = block.adaLN_modulation(arguments["adaln_input"]).chunk(4, dim=1)[0][-image.shape[0] :]
    return block.attention_norm1(image) * (1 + scale.unsqueeze(1))


def sd3(block: Block, arguments: Arguments) -> Tensor:
    image = arguments["x"]
    shift, scale = block.x_block.adaLN_modulation(arguments["c"]).unsqueeze(1).split(image.shape[-1], dim=-1)[:2]
    return torch.addcmul(shift, block.x_block.norm1(image), 1 + scale)


def ltxv(block: Block, arguments: Arguments) -> Tensor:
    tokens, timestep, table = arguments["x"], arguments["timestep"], block.scale_shift_table
    timestep = timestep.reshape(tokens.shape[0], timestep.shape[1], table.shape[0], -1)  # (B, 1 or N, rows, D)
    shift, scale = (table[None, None, :2].to(tokens) + timestep[:, :, :2]).unbind(dim=2)
    return torch.nn.functional.rms_norm(tokens, tokens.shape[-1:], eps=1e-6) * (1 + scale) + shift
