"""Models of shapes: Hunyuan3D and TripoSplat."""

from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "hunyuan3d_2": Recipe(
        "Hunyuan3Dv2", "Hunyuan3Dv2", ("double_blocks", "single_blocks"),
        dict(image_model="hunyuan3d2", in_channels=64, context_in_dim=32, hidden_size=64, mlp_ratio=2.0, num_heads=2,
             depth=2, depth_single_blocks=3),
        latent=(64, 16),
    ),
    "hunyuan3d_21": Recipe(
        "Hunyuan3Dv2_1", "HunYuanDiTPlain", ("blocks",),
        dict(image_model="hunyuan3d2_1", in_channels=64, hidden_size=64, context_dim=32, depth=7, num_heads=2,
             num_moe_layers=2, num_experts=3, guidance_cond_proj_dim=None),
        latent=(64, 16), since="0.24.1",  # before, one conditioning alone was not understood
    ),
    "triposplat": Recipe(
        "TripoSplat", "LatentSeqMMFlowModel", ("blocks",),
        dict(image_model="triposplat", q_token_length=16, model_channels=64, num_head_channels=32, cond_channels=32,
             cond2_channels=16, num_blocks=4, num_refiner_blocks=1, mlp_ratio=2),
        latent=((16, 16), (1, 5)), extra=lambda draw: {"reference_latents": [draw(1, 16, 2, 2)]},
    ),
}  # fmt: skip
