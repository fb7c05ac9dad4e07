"""The modulated input of block 0 by block family: what TeaCache compares between steps.

Each function repeats the first line of a block's forward, the norm and timestep modulation in front of its first
attention. The image argument has been cut to the tokens of the picture itself. Only arguments and submodules of the block
are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .architecture import Arguments

Block = Any
"""A block of the family that a function is for; its submodules are used by name."""


def flux(block: Block, arguments: Arguments) -> Tensor:
    """Flux, Chroma, HunyuanVideo: `img_mod` of the block, or modulation made outside and passed as `vec`."""
    image, vec = arguments["img"], arguments["vec"]
    modulation = block.img_mod(vec)[0] if block.modulation else vec[0][0]
    scale, shift = modulation.scale, modulation.shift  # (B, 1 or 2, D)
    groups = arguments.get("modulation_dims_img")
    if groups:  # (start, end, row): some tokens are kept clean; the row of the most tokens, or of the last, is wanted
        tokens = image.shape[1]
        sizes = [min(tokens if end is None else end, tokens) - start for start, end, _ in groups]
        row = max(zip(sizes, range(len(groups)), groups, strict=True))[2][2]
        scale, shift = scale[:, row : row + 1], shift[:, row : row + 1]
    return torch.addcmul(shift, block.img_norm1(image), 1 + scale)


def qwen_image(block: Block, arguments: Arguments) -> Tensor:
    image = arguments["hidden_states"]
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
    image = arguments["x"]
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
