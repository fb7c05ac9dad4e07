"""Video models that have no relatives here."""

import torch

from .recipe import Draw, Recipe


def pooled(draw: Draw) -> dict:
    return {"pooled_output": draw(1, 16)}


KANDINSKY = dict(
    image_model="kandinsky5", in_text_dim=32, in_text_dim2=16, time_dim=32, model_dim=64, ff_dim=96, num_text_blocks=1,
    num_visual_blocks=4, axes_dims=(8, 12, 12),
)  # fmt: skip

RECIPES: dict[str, Recipe] = {
    "mochi": Recipe(
        "GenmoMochi", "AsymmDiTJoint", ("blocks",),
        # The class insists on hidden_size_x * mlp_ratio_x = 12288.
        dict(image_model="mochi_preview", depth=4, patch_size=2, num_heads=2, hidden_size_x=32, hidden_size_y=24,
             mlp_ratio_x=384.0, mlp_ratio_y=4.0, learn_sigma=False, in_channels=12, qk_norm=True, qkv_bias=False,
             out_bias=True, attn_drop=0.0, posenc_preserve_area=True, timestep_scale=1000.0, use_t5=True,
             t5_feat_dim=32, t5_token_length=256),
        latent=(12, 2, 8, 8), extra=lambda draw: {"attention_mask": torch.ones(1, 7, dtype=torch.long)},
    ),
    "cogvideox": Recipe(
        "CogVideoX_T2V", "CogVideoXTransformer3DModel", ("blocks",),
        dict(image_model="cogvideox", num_attention_heads=2, attention_head_dim=32, time_embed_dim=32,
             text_embed_dim=32, num_layers=4, use_rotary_positional_embeddings=True),
        latent=(16, 2, 8, 8),
    ),
    "kandinsky5": Recipe(
        "Kandinsky5", "Kandinsky5", ("visual_transformer_blocks",), KANDINSKY | dict(visual_embed_dim=132),
        latent=(16, 2, 8, 8), extra=pooled,
    ),
    "kandinsky5_image": Recipe(
        "Kandinsky5Image", "Kandinsky5", ("visual_transformer_blocks",), KANDINSKY | dict(visual_embed_dim=64),
        latent=(16, 1, 8, 8), extra=pooled,
    ),
}  # fmt: skip
