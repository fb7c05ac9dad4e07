"""Wan and its relatives."""

from .recipe import Recipe

WAN = dict(
    image_model="wan2.1", model_type="t2v", in_dim=16, out_dim=16, dim=64, ffn_dim=96, freq_dim=32, text_dim=32,
    num_heads=2, num_layers=4,
)  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "wan_t2v": Recipe("WAN21_T2V", "WanModel", ("blocks",), WAN, latent=(16, 2, 8, 8)),
    "wan_i2v": Recipe(
        "WAN21_I2V", "WanModel", ("blocks",), WAN | dict(model_type="i2v", in_dim=36),
        latent=(16, 2, 8, 8), extra=lambda draw: {"concat_latent_image": draw(1, 16, 2, 8, 8)},
    ),
    "wan_5b": Recipe("WAN22_T2V", "WanModel", ("blocks",), WAN | dict(in_dim=48, out_dim=48), latent=(48, 2, 8, 8)),
    "wan_vace": Recipe(
        "WAN21_Vace", "VaceWanModel", ("blocks",),
        WAN | dict(model_type="vace", vace_layers=2, vace_in_dim=96), latent=(16, 2, 8, 8),
        extra=lambda draw: {"vace_frames": [draw(1, 32, 2, 8, 8)], "vace_mask": [draw(1, 64, 2, 8, 8)], "vace_strength": [1.0]},
    ),
}  # fmt: skip
