"""SD3 and other image models with one or two streams."""

from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "sd3": Recipe(
        "SD3", "OpenAISignatureMMDITWrapper", ("joint_blocks",),
        dict(in_channels=16, out_channels=16, input_size=None, patch_size=2, depth=4, num_patches=256,
             pos_embed_max_size=16, pos_embed_scaling_factor=None, adm_in_channels=16,
             context_embedder_config={"target": "torch.nn.Linear", "params": {"in_features": 32, "out_features": 256}}),
        latent=(16, 8, 8), extra=lambda draw: {"pooled_output": draw(1, 16)},
    ),
}  # fmt: skip
