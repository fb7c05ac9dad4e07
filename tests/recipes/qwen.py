"""Qwen-Image and its relatives."""

from .image import reference
from .recipe import Recipe

QWEN = dict(image_model="qwen_image", in_channels=64, num_layers=4, attention_head_dim=32, num_attention_heads=2,
            joint_attention_dim=32, axes_dims_rope=(8, 12, 12))  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "qwen_image": Recipe(
        "QwenImage", "QwenImageTransformer2DModel", ("transformer_blocks",), QWEN, latent=(16, 1, 8, 8),
    ),
    "qwen_image_edit": Recipe(
        "QwenImage", "QwenImageTransformer2DModel", ("transformer_blocks",), QWEN, latent=(16, 1, 8, 8), extra=reference,
    ),
    "qwen_image_edit_2511": Recipe(
        "QwenImage", "QwenImageTransformer2DModel", ("transformer_blocks",),
        QWEN | dict(default_ref_method="index_timestep_zero"), latent=(16, 1, 8, 8), extra=reference,
    ),
    "mage_flow": Recipe(
        "MageFlow", "MageFlowTransformer2DModel", ("transformer_blocks",),
        QWEN | dict(image_model="mage_flow", in_channels=128), latent=(128, 4, 4),
    ),
    "mage_flow_edit": Recipe(
        "MageFlow", "MageFlowTransformer2DModel", ("transformer_blocks",),
        QWEN | dict(image_model="mage_flow", in_channels=128),
        latent=(128, 4, 4), extra=lambda draw: {"reference_latents": [draw(1, 128, 4, 4)]},
    ),
}  # fmt: skip
