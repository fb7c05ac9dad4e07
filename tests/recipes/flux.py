"""Flux and its relatives: double-stream, then single-stream blocks."""

import torch

from .recipe import Draw, Recipe

FLUX = dict(
    image_model="flux", in_channels=16, out_channels=16, patch_size=2, vec_in_dim=16, context_in_dim=32, hidden_size=64,
    mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3, axes_dim=[8, 12, 12], theta=10000, qkv_bias=True,
    txt_ids_dims=[],
)  # fmt: skip


FLUX2 = FLUX | dict(
    image_model="flux2", in_channels=128, out_channels=128, patch_size=1, vec_in_dim=None, axes_dim=[8, 8, 8, 8],
    theta=2000, qkv_bias=False, guidance_embed=True, txt_ids_dims=[3], global_modulation=True, mlp_silu_act=True,
    ops_bias=False, default_ref_method="index", ref_index_scale=10.0,
)  # fmt: skip


def flux_extra(draw: Draw) -> dict:
    return {"pooled_output": draw(1, 16), "guidance": 3.5}


def left_half(size: int) -> torch.Tensor:
    """A mask of an image."""
    mask = torch.zeros(1, 1, size, size)
    mask[..., : size // 2] = 1
    return mask


CHROMA = FLUX | dict(vec_in_dim=None, in_dim=64, out_dim=64, hidden_dim=32, n_layers=2)


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
        "Flux2", "Flux", ("double_blocks", "single_blocks"), FLUX2,
        latent=(128, 4, 4), extra=lambda draw: {"guidance": 3.5},
    ),
    "flux2_edit": Recipe(
        "Flux2", "Flux", ("double_blocks", "single_blocks"), FLUX2,
        latent=(128, 4, 4), extra=lambda draw: {"guidance": 3.5, "reference_latents": [draw(1, 128, 4, 4)]},
    ),
    "flux2_timestep_zero": Recipe(
        "Flux2", "Flux", ("double_blocks", "single_blocks"),
        # The class cannot add guidance to twice the timesteps; Flux.1 cannot have twice the timesteps at all.
        FLUX2 | dict(default_ref_method="index_timestep_zero", guidance_embed=False),
        latent=(128, 4, 4), extra=lambda draw: {"reference_latents": [draw(1, 128, 4, 4)]},
    ),
    "chroma": Recipe(
        "Chroma", "Chroma", ("double_blocks", "single_blocks"),
        CHROMA | dict(image_model="chroma", in_channels=64, out_channels=64),
        latent=(16, 8, 8),
    ),
    "flux_kontext": Recipe(
        "Flux", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(guidance_embed=True),
        latent=(16, 8, 8), extra=lambda draw: flux_extra(draw) | {"reference_latents": [draw(1, 16, 8, 8)]},
    ),
    "flux_fill": Recipe(
        "FluxInpaint", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(in_channels=96, guidance_embed=True),
        latent=(16, 8, 8),
        extra=lambda draw: flux_extra(draw) | {"concat_latent_image": draw(1, 16, 8, 8), "concat_mask": left_half(64)},
    ),
    "longcat_image": Recipe(
        "LongCatImage", "Flux", ("double_blocks", "single_blocks"),
        FLUX | dict(vec_in_dim=None, guidance_embed=False, txt_ids_dims=[1, 2]), latent=(16, 8, 8),
    ),
    "ovis_image": Recipe(
        "FluxSchnell", "Flux", ("double_blocks", "single_blocks"),
        FLUX | dict(vec_in_dim=None, guidance_embed=False, txt_ids_dims=[1, 2], yak_mlp=True, txt_norm=True),
        latent=(16, 8, 8),
    ),
    "chroma_radiance": Recipe(
        "ChromaRadiance", "ChromaRadiance", ("double_blocks", "single_blocks"),
        CHROMA | dict(image_model="chroma_radiance", in_channels=3, out_channels=3, patch_size=16, nerf_hidden_size=16,
                      nerf_mlp_ratio=2, nerf_depth=2, nerf_max_freqs=4, nerf_tile_size=512,
                      nerf_final_head_type="conv", nerf_embedder_dtype=torch.float32, use_x0=False,
                      use_sequential_txt_ids=False),
        latent=(3, 32, 32),
    ),
}  # fmt: skip
