"""Qwen-Image and its relatives."""

from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "qwen_image": Recipe(
        "QwenImage", "QwenImageTransformer2DModel", ("transformer_blocks",),
        dict(image_model="qwen_image", in_channels=64, num_layers=4, attention_head_dim=32, num_attention_heads=2,
             joint_attention_dim=32, axes_dims_rope=(8, 12, 12)),
        latent=(16, 1, 8, 8),
    ),
}  # fmt: skip
