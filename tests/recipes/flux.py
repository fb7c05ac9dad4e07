"""Flux and its relatives: double-stream, then single-stream blocks."""

from .recipe import Draw, Recipe

FLUX = dict(
    image_model="flux", in_channels=16, out_channels=16, patch_size=2, vec_in_dim=16, context_in_dim=32, hidden_size=64,
    mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3, axes_dim=[8, 12, 12], theta=10000, qkv_bias=True,
    txt_ids_dims=[],
)  # fmt: skip


def flux_extra(draw: Draw) -> dict:
    return {"pooled_output": draw(1, 16), "guidance": 3.5}


RECIPES: dict[str, Recipe] = {
    "flux_dev": Recipe(
        "Flux", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(guidance_embed=True),
        latent=(16, 8, 8), extra=flux_extra,
    ),
    "flux_schnell": Recipe(
        "FluxSchnell", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(guidance_embed=False),
        latent=(16, 8, 8), extra=lambda draw: {"pooled_output": draw(1, 16)},
    ),
    "flux2": Recipe(
        "Flux2", "Flux", ("double_blocks", "single_blocks"),
        FLUX | dict(image_model="flux2", in_channels=128, out_channels=128, patch_size=1, vec_in_dim=None,
                    axes_dim=[8, 8, 8, 8], theta=2000, qkv_bias=False, guidance_embed=True, txt_ids_dims=[3],
                    global_modulation=True, mlp_silu_act=True, ops_bias=False, default_ref_method="index",
                    ref_index_scale=10.0),
        latent=(128, 4, 4), extra=lambda draw: {"guidance": 3.5},
    ),
    "chroma": Recipe(
        "Chroma", "Chroma", ("double_blocks", "single_blocks"),
        FLUX | dict(image_model="chroma", in_channels=64, out_channels=64, vec_in_dim=None, in_dim=64, out_dim=64,
                    hidden_dim=32, n_layers=2),
        latent=(16, 8, 8),
    ),
}  # fmt: skip
