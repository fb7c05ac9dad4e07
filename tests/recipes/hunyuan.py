"""Tencent's Hunyuan models."""

from .flux import flux_extra
from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "hunyuan_video": Recipe(
        "HunyuanVideo", "HunyuanVideo", ("double_blocks", "single_blocks"),
        dict(image_model="hunyuan_video", in_channels=16, out_channels=16, patch_size=[1, 2, 2], vec_in_dim=16,
             context_in_dim=32, hidden_size=64, mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3,
             axes_dim=[8, 12, 12], theta=256, qkv_bias=True, guidance_embed=True, meanflow=False, byt5=False,
             use_cond_type_embedding=False, vision_in_dim=None, meanflow_sum=False),
        latent=(16, 2, 8, 8), extra=flux_extra,
    ),
}  # fmt: skip
