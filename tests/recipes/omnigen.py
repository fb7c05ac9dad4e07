"""OmniGen2 and Boogu."""

import torch

from .recipe import Draw, Recipe

OMNIGEN = dict(
    image_model="omnigen2", axes_dim_rope=(8, 8, 8), axes_lens=(64, 64, 64), hidden_size=48, in_channels=16, multiple_of=32,
    num_attention_heads=2, num_kv_heads=1, num_layers=4, num_refiner_layers=1, patch_size=2, timestep_scale=1000.0,
)  # fmt: skip


def extra(draw: Draw) -> dict:
    return {"attention_mask": torch.ones(1, 7, dtype=torch.long)}


def edit(draw: Draw) -> dict:
    return extra(draw) | {"reference_latents": [draw(1, 16, 8, 8)]}


BOOGU = OMNIGEN | dict(image_model="boogu", num_layers=3, num_double_stream_layers=2, instruction_feat_dim=32)

RECIPES: dict[str, Recipe] = {
    "omnigen2": Recipe(
        "Omnigen2", "OmniGen2Transformer2DModel", ("layers",), OMNIGEN | dict(text_feat_dim=32),
        latent=(16, 8, 8), extra=extra,
    ),
    "omnigen2_edit": Recipe(
        "Omnigen2", "OmniGen2Transformer2DModel", ("layers",), OMNIGEN | dict(text_feat_dim=32),
        latent=(16, 8, 8), extra=edit,
    ),
    "boogu": Recipe(
        "Boogu", "BooguTransformer2DModel", ("double_stream_layers", "single_stream_layers"), BOOGU,
        latent=(16, 8, 8), extra=extra,
    ),
    "boogu_edit": Recipe(
        "Boogu", "BooguTransformer2DModel", ("double_stream_layers", "single_stream_layers"), BOOGU,
        latent=(16, 8, 8), extra=edit,
    ),
}  # fmt: skip
