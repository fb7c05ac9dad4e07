"""NVIDIA's Cosmos models and Anima, which is built on the second."""

import comfy.ops
import torch

from .recipe import Draw, Recipe

PREDICT2 = dict(
    image_model="cosmos_predict2", max_img_h=16, max_img_w=16, max_frames=8, in_channels=16, out_channels=16,
    patch_spatial=2, patch_temporal=1, model_channels=64, concat_padding_mask=True, crossattn_emb_channels=32,
    pos_emb_cls="rope3d", pos_emb_learnable=True, use_adaln_lora=True, adaln_lora_dim=16, num_blocks=4, num_heads=2,
    mlp_ratio=2.0, rope_h_extrapolation_ratio=4.0, rope_w_extrapolation_ratio=4.0, rope_enable_fps_modulation=False,
)  # fmt: skip

COSMOS1 = PREDICT2 | dict(
    image_model="cosmos", block_config="FA-CA-MLP", pos_emb_learnable=False, pos_emb_interpolation="crop",
    block_x_format="THWBD", affline_emb_norm=True, extra_per_block_abs_pos_emb=True,
    extra_per_block_abs_pos_emb_type="learnable", rope_h_extrapolation_ratio=1.0, rope_w_extrapolation_ratio=1.0,
    rope_t_extrapolation_ratio=2.0,
)  # fmt: skip
del COSMOS1["rope_enable_fps_modulation"]


def small_adapter(network: torch.nn.Module) -> None:
    from comfy.ldm.anima.model import LLMAdapter  # not in every ComfyUI

    network.llm_adapter = LLMAdapter(32, 32, 32, num_layers=1, num_heads=2, operations=comfy.ops.disable_weight_init)
    network.llm_adapter.embed = comfy.ops.disable_weight_init.Embedding(64, 32)


def anima_extra(draw: Draw) -> dict:
    return {"t5xxl_ids": draw(5).abs().mul(10).long(), "t5xxl_weights": torch.ones(5)}


RECIPES: dict[str, Recipe] = {
    "cosmos1": Recipe("CosmosT2V", "GeneralDIT", ("blocks",), COSMOS1, latent=(16, 2, 8, 8)),
    "cosmos_predict2": Recipe("CosmosT2IPredict2", "MiniTrainDIT", ("blocks",), PREDICT2, latent=(16, 2, 8, 8)),
    "anima": Recipe(
        "Anima", "Anima", ("blocks",), PREDICT2 | dict(image_model="anima"),
        latent=(16, 1, 8, 8), extra=anima_extra, shrink=small_adapter,
    ),
}  # fmt: skip
