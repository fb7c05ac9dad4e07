"""Lumina 2 and Z-Image."""

from types import SimpleNamespace

from .recipe import Draw, Recipe

LUMINA = dict(
    image_model="lumina2", patch_size=2, in_channels=16, dim=48, cap_feat_dim=32, n_layers=4, n_refiner_layers=1,
    qk_norm=True, n_heads=2, n_kv_heads=2, axes_dims=[8, 8, 8], axes_lens=[300, 64, 64], rope_theta=10000.0,
    ffn_dim_multiplier=1.0,
)  # fmt: skip
Z_IMAGE = LUMINA | dict(
    dim=256, axes_dims=[32, 48, 48], rope_theta=256.0, z_image_modulation=True, time_scale=1000.0,
    pad_tokens_multiple=32,
)  # fmt: skip


def omni_extra(draw: Draw) -> dict:
    """One reference image, its features and a text before it."""
    vision = SimpleNamespace(image_sizes=[(3, 32, 32)], last_hidden_state=draw(1, 4, 16))
    return {
        "reference_latents": [draw(1, 16, 8, 8)],
        "reference_latents_text_embeds": [draw(1, 5, 32)],
        "clip_vision_outputs": [vision],
    }


RECIPES: dict[str, Recipe] = {
    "lumina2": Recipe("Lumina2", "NextDiT", ("layers",), LUMINA, latent=(16, 8, 8)),
    "z_image": Recipe(
        "ZImage", "NextDiT", ("layers",), Z_IMAGE, latent=(16, 8, 8),
    ),
    "z_image_omni": Recipe(
        "ZImage", "NextDiT", ("layers",), Z_IMAGE | dict(siglip_feat_dim=16, pad_tokens_multiple=8),
        latent=(16, 8, 8), extra=omni_extra,
    ),
    "z_image_pixel": Recipe(
        "ZImagePixelSpace", "NextDiTPixelSpace", ("layers",),
        Z_IMAGE | dict(image_model="zimage_pixel", pad_tokens_multiple=8, patch_size=4, in_channels=3, decoder_hidden_size=32,
                       decoder_num_res_blocks=2, decoder_max_freqs=4),
        latent=(3, 16, 16),
    ),
}  # fmt: skip
