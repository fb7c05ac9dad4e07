"""LTX-Video and audio-video."""

import torch

from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "ltxv": Recipe(
        "LTXV", "LTXVModel", ("transformer_blocks",),
        dict(image_model="ltxv", num_layers=4, num_attention_heads=2, attention_head_dim=32, caption_channels=32,
             cross_attention_dim=64),
        latent=(128, 2, 4, 4), extra=lambda draw: {"attention_mask": torch.ones(1, 7, dtype=torch.long)},
    ),
}  # fmt: skip
