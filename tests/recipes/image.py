"""Image models that have no relatives here."""

from .recipe import Draw, Recipe

HIDREAM = dict(
    image_model="hidream", attention_head_dim=32, axes_dims_rope=[16, 8, 8], caption_channels=[32, 32],
    max_resolution=[16, 16], in_channels=16, llama_layers=[0, 1, 0, 1, 1], num_attention_heads=2, num_routed_experts=2,
    num_activated_experts=1, num_layers=2, num_single_layers=3, out_channels=16, patch_size=2, text_emb_dim=16,
)  # fmt: skip

KREA2 = dict(
    image_model="krea2", features=64, tdim=32, txtdim=16, heads=2, kvheads=1, multiplier=2, layers=4, channels=16,
    txtlayers=2, txtheads=2, txtkvheads=2,
)  # fmt: skip

IDEOGRAM4 = dict(
    num_attention_heads=2, attention_head_dim=32, intermediate_size=96, adaln_dim=32, llm_features_dim=32,
    rope_theta=5000000, mrope_section=[6, 5, 5], norm_eps=1e-5,
)  # fmt: skip

JOYIMAGE = dict(
    image_model="joyimage", hidden_size=64, num_attention_heads=2, num_layers=4, text_dim=32, in_channels=16,
    mlp_width_ratio=2.0,
)  # fmt: skip

JOYIMAGE_ROPE = {"unet_extra_config": {"theta": 10000, "rope_dim_list": [8, 12, 12]}}


def reference(draw: Draw) -> dict:
    return {"reference_latents": [draw(1, 16, 1, 8, 8)]}


def hidream_extra(draw: Draw) -> dict:
    return {"pooled_output": draw(1, 16), "conditioning_llama3": draw(1, 2, 5, 32)}


RECIPES: dict[str, Recipe] = {
    "aura_flow": Recipe(
        "AuraFlow", "MMDiT", ("double_layers", "single_layers"),
        dict(max_seq=64, cond_seq_dim=32, n_double_layers=2, n_layers=5, dim=64, n_heads=2, global_conddim=64),
        latent=(4, 8, 8),
    ),
    "hidream": Recipe(
        "HiDream", "HiDreamImageTransformer2DModel", ("double_stream_blocks", "single_stream_blocks"), HIDREAM,
        latent=(16, 8, 8), extra=hidream_extra,
    ),
    "hidream_e1": Recipe(
        "HiDream", "HiDreamImageTransformer2DModel", ("double_stream_blocks", "single_stream_blocks"), HIDREAM,
        latent=(16, 8, 8), extra=lambda draw: hidream_extra(draw) | {"concat_latent_image": draw(1, 16, 8, 8)},
    ),
    "krea2": Recipe("Krea2", "SingleStreamDiT", ("blocks",), KREA2, latent=(16, 1, 8, 8)),
    "krea2_edit": Recipe(
        "Krea2", "SingleStreamDiT", ("blocks",), KREA2 | dict(default_ref_method="index_timestep_zero"),
        latent=(16, 1, 8, 8), extra=reference,
    ),
    "lens": Recipe(
        "Lens", "LensTransformer2DModel", ("transformer_blocks",),
        dict(image_model="lens", in_channels=128, out_channels=32, num_layers=4, attention_head_dim=32,
             num_attention_heads=2, enc_hidden_dim=16, axes_dims_rope=(8, 12, 12), selected_layer_index=(0, 1)),
        latent=(128, 4, 4),
    ),
    "ideogram4": Recipe(
        "Ideogram4", "Ideogram4Transformer2DModel", ("layers",),
        dict(image_model="ideogram4", in_channels=128, num_layers=4),
        latent=(128, 4, 4), config_values=dict(unet_extra_config=IDEOGRAM4),
    ),
    "ernie_image": Recipe(
        "ErnieImage", "ErnieImageModel", ("layers",),
        dict(image_model="ernie", hidden_size=64, num_attention_heads=2, num_layers=4, ffn_hidden_size=96,
             text_in_dim=32, rope_axes_dim=(8, 12, 12)),
        latent=(128, 4, 4),
    ),
    "joyimage": Recipe(
        "JoyImage", "JoyImageTransformer3DModel", ("double_blocks",), JOYIMAGE,
        latent=(16, 1, 8, 8), config_values=JOYIMAGE_ROPE,
    ),
    "joyimage_edit": Recipe(
        "JoyImage", "JoyImageTransformer3DModel", ("double_blocks",), JOYIMAGE,
        latent=(16, 1, 8, 8), extra=reference, config_values=JOYIMAGE_ROPE,
    ),
    "pixeldit": Recipe(
        "PixelDiTT2I", "PixDiT_T2I", ("patch_blocks",),
        dict(image_model="pixeldit_t2i", num_groups=2, hidden_size=64, pixel_hidden_size=4, pixel_attn_hidden_size=32,
             pixel_num_groups=2, patch_depth=4, pixel_depth=1, txt_embed_dim=32),
        latent=(3, 32, 32),
    ),
}  # fmt: skip
