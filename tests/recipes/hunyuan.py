"""Tencent's Hunyuan models."""

from types import SimpleNamespace

import comfy.ops
import torch

from .flux import flux_extra
from .recipe import Draw, Recipe

VIDEO = dict(
    image_model="hunyuan_video", in_channels=16, out_channels=16, patch_size=[1, 2, 2], vec_in_dim=16, context_in_dim=32,
    hidden_size=64, mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3, axes_dim=[8, 12, 12], theta=256,
    qkv_bias=True, guidance_embed=True, meanflow=False, byt5=False, use_cond_type_embedding=False, vision_in_dim=None,
    meanflow_sum=False,
)  # fmt: skip


def small_byt5(network: torch.nn.Module) -> None:
    from comfy.ldm.hunyuan_video.model import ByT5Mapper  # not in every ComfyUI

    network.byt5_in = ByT5Mapper(32, 32, 32, network.hidden_size, operations=comfy.ops.disable_weight_init)


def video15_extra(draw: Draw) -> dict:
    return {
        "conditioning_byt5small": draw(1, 3, 32),
        "clip_vision_output": SimpleNamespace(last_hidden_state=draw(1, 5, 32)),
        "concat_latent_image": draw(1, 32, 2, 4, 4),
        "pooled_output": draw(1, 16),  # asked for, then unused
    }


def dit_extra(draw: Draw) -> dict:
    masks = {"attention_mask": torch.ones(1, 7), "attention_mask_mt5xl": torch.ones(1, 5)}
    return {"conditioning_mt5xl": draw(1, 5, 32)} | masks


RECIPES: dict[str, Recipe] = {
    "hunyuan_video": Recipe(
        "HunyuanVideo", "HunyuanVideo", ("double_blocks", "single_blocks"), VIDEO,
        latent=(16, 2, 8, 8), extra=flux_extra,
    ),
    "hunyuan_video_i2v": Recipe(
        "HunyuanVideo", "HunyuanVideo", ("double_blocks", "single_blocks"), VIDEO,
        latent=(16, 2, 8, 8), extra=lambda draw: flux_extra(draw) | {"guiding_frame_index": 0},
        since="0.18.2",  # before, a batch of two was not understood
    ),
    "hunyuan_video_15": Recipe(
        "HunyuanVideo15", "HunyuanVideo", ("double_blocks", "single_blocks"),
        VIDEO | dict(in_channels=65, out_channels=32, patch_size=[1, 1, 1], vec_in_dim=None, depth=4,
                     depth_single_blocks=0, guidance_embed=False, byt5=True, use_cond_type_embedding=True,
                     vision_in_dim=32, meanflow_sum=True),
        latent=(32, 2, 4, 4), extra=video15_extra, shrink=small_byt5,
    ),
    "hunyuan_image_21": Recipe(
        "HunyuanImage21", "HunyuanVideo", ("double_blocks", "single_blocks"),
        VIDEO | dict(in_channels=64, out_channels=64, patch_size=[1, 1], vec_in_dim=None, axes_dim=[16, 16],
                     guidance_embed=False, byt5=True),
        latent=(64, 4, 4), extra=lambda draw: {"conditioning_byt5small": draw(1, 3, 32)}, shrink=small_byt5,
    ),
    "hunyuan_dit": Recipe(
        "HunyuanDiT", "HunYuanDiT", ("blocks",),
        dict(image_model="hydit", depth=6, hidden_size=64, num_heads=2, text_states_dim=32, text_states_dim_t5=32,
             text_len=7, text_len_t5=5, mlp_ratio=2.0),
        latent=(4, 8, 8), extra=dit_extra,
    ),
}  # fmt: skip
