"""The modulated input of block 0 by block family: what TeaCache compares between steps.

Each function repeats the first line of a block's forward, the norm and timestep modulation in front of its first
attention. The image argument has been cut to the tokens of the picture itself and has the batch first. Only arguments and
submodules of the block are used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from .architecture import Arguments, ModulatedInputFunction

Block = Any
"""A block of the family that a function is for; its submodules are used by name."""


def modulated(normed: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, normed, 1 + scale)


def token_rows(values: Tensor) -> Tensor:
    """(B, D) -> (B, 1, D), to go with tokens."""
    return values.unsqueeze(1)


def flux(block: Block, arguments: Arguments) -> Tensor:
    """Flux, Chroma, HunyuanVideo: `img_mod` of the block, or modulation made outside and passed as `vec`."""
    vec = arguments["vec"]
    modulation = block.img_mod(vec)[0] if block.modulation else vec[0][0]
    scale, shift = modulation.scale, modulation.shift  # (B, 1 or 2, D)
    normed = block.img_norm1(arguments["img"])
    groups = arguments.get("modulation_dims_img")
    if not groups:
        return modulated(normed, shift, scale)
    # (start, end, row): a first frame or references, of which the latter have been cut off, are modulated as clean
    pieces = ((normed[:, start:end], slice(row, row + 1)) for start, end, row in sorted(groups))
    return torch.cat([modulated(piece, shift[:, row], scale[:, row]) for piece, row in pieces], dim=1)


def qwen_image(block: Block, arguments: Arguments) -> Tensor:
    """Qwen-Image, Mage-Flow, Lens; with references at timestep zero `temb` has twice B rows, the picture's first."""
    image = arguments["hidden_states"]
    first = block.img_mod(arguments["temb"]).chunk(2, dim=-1)[0]  # (B or 2B, 3D)
    shift, scale, _ = token_rows(first[: image.shape[0]]).chunk(3, dim=-1)
    return modulated(block.img_norm1(image), shift, scale)


def wan(block: Block, arguments: Arguments) -> Tensor:
    image, e = arguments["x"], arguments["e"]  # (B, N, D), (B, 6, D) or per frame (B, F, 6, D)
    table = block.modulation.to(image)  # (1, 6, D)
    shift, scale = (table.unsqueeze(1) + e).unbind(2)[:2] if e.ndim == 4 else (table + e).split(1, dim=1)[:2]
    if 1 < shift.shape[1] < image.shape[1]:
        repeats = -(-image.shape[1] // shift.shape[1])
        shift, scale = (x.repeat_interleave(repeats, dim=1)[:, : image.shape[1]] for x in (shift, scale))
    return modulated(block.norm1(image), shift, scale)


def lumina2(block: Block, arguments: Arguments) -> Tensor:
    """Lumina 2 and Z-Image: scale only; with reference images the second half of the rows is the picture's."""
    image = arguments["x"]
    scale = block.adaLN_modulation(arguments["adaln_input"]).chunk(4, dim=1)[0][-image.shape[0] :]
    return block.attention_norm1(image) * (1 + scale.unsqueeze(1))


def sd3(block: Block, arguments: Arguments) -> Tensor:
    image = arguments["x"]
    shift, scale = block.x_block.adaLN_modulation(arguments["c"]).unsqueeze(1).split(image.shape[-1], dim=-1)[:2]
    return modulated(block.x_block.norm1(image), shift, scale)


def ltxv(block: Block, arguments: Arguments) -> Tensor:
    tokens, timestep, table = arguments["x"], arguments["timestep"], block.scale_shift_table
    timestep = timestep.reshape(tokens.shape[0], timestep.shape[1], table.shape[0], -1)  # (B, 1 or N, rows, D)
    shift, scale = (table[None, None, :2].to(tokens) + timestep[:, :, :2]).unbind(dim=2)
    return modulated(rms_norm(tokens, tokens.shape[-1:], eps=1e-6), shift, scale)


def ltx_av(block: Block, arguments: Arguments) -> Tensor:
    """LTX-2: the video stream."""
    video, timestep = arguments["x"], arguments["v_timestep"]
    shift, scale = block.get_ada_values(block.scale_shift_table, video.shape[0], timestep, slice(0, 2))
    return modulated(rms_norm(video, video.shape[-1:], eps=1e-6), shift, scale)


def joyimage(block: Block, arguments: Arguments) -> Tensor:
    shift, scale = block.img_mod(arguments["temb"])[:2]
    return modulated(block.img_norm1(arguments["hidden_states"]), token_rows(shift), token_rows(scale))


def hidream(block: Block, arguments: Arguments) -> Tensor:
    inner = block.block
    shift, scale = token_rows(inner.adaLN_modulation(arguments["adaln_input"])).chunk(12, dim=-1)[:2]
    return modulated(inner.norm1_i(arguments["image_tokens"]), shift, scale)


def mochi(block: Block, arguments: Arguments) -> Tensor:
    video = arguments["x"]
    scale = token_rows(block.mod_x(silu(arguments["c"])).chunk(4, dim=1)[0])
    return rms_norm(video, video.shape[-1:], eps=1e-6) * (1 + scale)


def aura_flow(block: Block, arguments: Arguments) -> Tensor:
    shift, scale = token_rows(block.modX(arguments["global_cond"])).chunk(6, dim=-1)[:2]
    return modulated(block.normX1(arguments["x"]), shift, scale)


def cogvideo(block: Block, arguments: Arguments) -> Tensor:
    return block.norm1(arguments["hidden_states"], arguments["encoder_hidden_states"], arguments["temb"])[0]


def cosmos_predict2(block: Block, arguments: Arguments) -> Tensor:
    video = arguments["x_B_T_H_W_D"]
    shifts = block.adaln_modulation_self_attn(arguments["emb_B_T_D"])  # (B, T, 3D)
    if block.use_adaln_lora:
        shifts = shifts + arguments["adaln_lora_B_T_3D"]
    shift, scale = shifts[:, :, None, None].chunk(3, dim=-1)[:2]  # (B, T, 1, 1, D)
    return modulated(block.layer_norm_self_attn(video), shift, scale)


def hunyuan_dit(block: Block, arguments: Arguments) -> Tensor:
    return block.norm1(arguments["x"]) + token_rows(block.default_modulation(arguments["c"]))


def table_of_six(block: Block, norm: Any, image: Tensor, timestep: Tensor) -> Tensor:
    """A norm under the first two of six rows: the block's table plus the timestep's, (B, 6 D) or (B, 6, D)."""
    rows = timestep.reshape(image.shape[0], 6, -1)
    shift, scale = (block.scale_shift_table.to(rows) + rows)[:, :2].split(1, dim=1)
    return modulated(norm(image), shift, scale)


def pixart(block: Block, arguments: Arguments) -> Tensor:
    return table_of_six(block, block.norm1, arguments["x"], arguments["t"])


def ace_step(block: Block, arguments: Arguments) -> Tensor:
    return table_of_six(block, block.norm1, arguments["hidden_states"], arguments["temb"])


def ace_step_15(block: Block, arguments: Arguments) -> Tensor:
    return table_of_six(block, block.self_attn_norm, arguments["hidden_states"], arguments["temb"])


def omnigen2(block: Block, arguments: Arguments) -> Tensor:
    return block.norm1(arguments["hidden_states"], arguments["temb"])[0]


def boogu(block: Block, arguments: Arguments) -> Tensor:
    return block.img_norm1(arguments["img_hidden_states"], arguments["temb"])[0]


def kandinsky5(block: Block, arguments: Arguments) -> Tensor:
    shift, scale = token_rows(block.visual_modulation(arguments["time_embed"])).chunk(9, dim=-1)[:2]
    return modulated(block.self_attention_norm(arguments["visual_embed"]), shift, scale)


def krea2(block: Block, arguments: Arguments) -> Tensor:
    """With references at timestep zero `vec` has twice B rows, the picture's first."""
    image = arguments["x"]
    scale, shift = block.mod(arguments["vec"])[:2]  # (B or 2B, 1, D)
    rows = image.shape[0]
    return modulated(block.prenorm(image), shift[:rows], scale[:rows])


def ideogram4(block: Block, arguments: Arguments) -> Tensor:
    scale = block.adaln_modulation(arguments["adaln_input"]).chunk(4, dim=-1)[0]
    return block.attention_norm1(arguments["x"]) * (1 + scale)


def ernie(block: Block, arguments: Arguments) -> Tensor:
    shift, scale = arguments["temb"][:2]
    return modulated(block.adaLN_sa_ln(arguments["x"]), shift, scale)


def minimax(block: Block, arguments: Arguments) -> Tensor:
    """Batch 1; `mod_segments` are (start, end, row) of a modulation table that covers all tokens."""
    shift, scale = block.adaln_proj(arguments["t_emb"])[:2]  # (rows, D)
    segments = arguments["mod_segments"]
    lengths = torch.tensor([end - start for start, end, _ in segments])
    row = torch.tensor([row for *_, row in segments]).repeat_interleave(lengths).to(shift.device)  # (N,)
    tokens = arguments["x"]
    return modulated(block.norm1(tokens), shift[row].to(tokens), scale[row].to(tokens))


def pixeldit(block: Block, arguments: Arguments) -> Tensor:
    shift, scale = block.adaLN_modulation_img(arguments["c"]).chunk(6, dim=-1)[:2]
    return modulated(block.norm_x1(arguments["x"]), shift, scale)


def stable_audio(block: Block, arguments: Arguments) -> Tensor:
    """Version 3 modulates by a table plus the timestep; version 1 only prepends the timestep as a token."""
    tokens, timestep = arguments["x"], arguments.get("global_cond")
    gates = getattr(block, "to_scale_shift_gate", None)
    if gates is None or timestep is None:
        return block.pre_norm(tokens)
    rows = gates(timestep) if isinstance(gates, torch.nn.Module) else gates.to(timestep) + timestep
    scale, shift = token_rows(rows).chunk(6, dim=-1)[:2]
    return modulated(block.pre_norm(tokens), shift, scale)


def triposplat(block: Block, arguments: Arguments) -> Tensor:
    rows = arguments["mod"] if block.share_mod else block.adaLN_modulation(arguments["mod"])
    shift, scale = token_rows(rows + block.shift_table.to(rows)).chunk(6, dim=-1)[:2]
    return modulated(block.norm1(arguments["x"]), shift, scale)


def tokens(name: str) -> ModulatedInputFunction:
    """For blocks whose first line has nothing of the timestep in it: the tokens as they are."""
    return lambda block, arguments: arguments[name].clone()  # blocks may write into it
