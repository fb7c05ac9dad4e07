"""LTX-Video and audio-video."""

import torch

from .recipe import Recipe

LTX_AV = dict(
    image_model="ltxav", num_layers=4, num_attention_heads=2, attention_head_dim=32, caption_channels=32,
    cross_attention_dim=64, audio_num_attention_heads=2, audio_attention_head_dim=16, audio_cross_attention_dim=32,
    connector_attention_head_dim=16, connector_num_attention_heads=2, connector_num_layers=1,
)  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "ltxv": Recipe(
        "LTXV", "LTXVModel", ("transformer_blocks",),
        dict(image_model="ltxv", num_layers=4, num_attention_heads=2, attention_head_dim=32, caption_channels=32,
             cross_attention_dim=64),
        latent=(128, 2, 4, 4), extra=lambda draw: {"attention_mask": torch.ones(1, 7, dtype=torch.long)},
    ),
    "ltx_av": Recipe(
        "LTXAV", "LTXAVModel", ("transformer_blocks",), LTX_AV,
        latent=((128, 2, 4, 4), (8, 5, 16)), text=64,  # caption channels of video and of audio
    ),
    "ltx_av_23": Recipe(
        "LTXAV", "LTXAVModel", ("transformer_blocks",),
        LTX_AV | dict(cross_attention_adaln=True, apply_gated_attention=True, caption_proj_before_connector=True,
                      caption_projection_first_linear=False, connector_apply_gated_attention=True),
        latent=((128, 2, 4, 4), (8, 5, 16)), text=96,  # cross-attention widths of video and of audio
    ),
}  # fmt: skip
