"""Lumina 2 and Z-Image."""

from .recipe import Recipe

LUMINA = dict(
    image_model="lumina2", patch_size=2, in_channels=16, dim=48, cap_feat_dim=32, n_layers=4, n_refiner_layers=1,
    qk_norm=True, n_heads=2, n_kv_heads=2, axes_dims=[8, 8, 8], axes_lens=[300, 64, 64], rope_theta=10000.0,
    ffn_dim_multiplier=1.0,
)  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "lumina2": Recipe("Lumina2", "NextDiT", ("layers",), LUMINA, latent=(16, 8, 8)),
    "z_image": Recipe(
        "ZImage", "NextDiT", ("layers",),
        LUMINA | dict(dim=256, axes_dims=[32, 48, 48], rope_theta=256.0, z_image_modulation=True, time_scale=1000.0,
             pad_tokens_multiple=32),
        latent=(16, 8, 8),
    ),
}  # fmt: skip
