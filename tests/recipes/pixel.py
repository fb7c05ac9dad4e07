"""Models of pixels: PiD and HiDream-O1."""

import comfy.ops
import torch

from .recipe import Draw, Recipe

VOCABULARY = 64  # instead of 151936
TIMESTEP = 151673


class FewWords(comfy.ops.disable_weight_init.Embedding):
    def forward(self, tokens, **kwargs):
        return super().forward(tokens % self.num_embeddings, **kwargs)


def small_vocabulary(network: torch.nn.Module) -> None:
    network.language_model.embed_tokens = FewWords(VOCABULARY, network.hidden_size)


def prompt(draw: Draw) -> dict:
    """Text that ends with the token of the timestep."""
    tokens = (10 * draw(1, 6).abs()).long()
    return {"text_input_ids": torch.cat((tokens, torch.tensor([[TIMESTEP]])), dim=1)}


O1 = dict(
    image_model="hidream_o1",
    text_config_overrides=dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
                               num_attention_heads=2, num_key_value_heads=1, head_dim=16, rope_dims=[4, 2, 2]),
    vision_config_overrides=dict(hidden_size=16, num_heads=2, intermediate_size=16, depth=1, num_position_embeddings=16,
                                 deepstack_visual_indexes=()),
)  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "pid": Recipe(
        "PiD", "PidNet", ("patch_blocks",),
        dict(image_model="pid", num_groups=2, hidden_size=64, pixel_hidden_size=8, pixel_attn_hidden_size=32,
             pixel_num_groups=2, patch_depth=4, pixel_depth=1, patch_size=8, txt_embed_dim=32, lq_hidden_dim=16,
             lq_num_res_blocks=1),
        latent=(3, 32, 32), extra=lambda draw: {"lq_latent": draw(1, 16, 2, 2), "degrade_sigma": draw(1).sigmoid()},
    ),
    "hidream_o1": Recipe(
        "HiDreamO1", "HiDreamO1Transformer", ("language_model.layers",), O1,
        latent=(3, 64, 64), shrink=small_vocabulary, extra=prompt,
    ),
    "hidream_o1_edit": Recipe(
        "HiDreamO1", "HiDreamO1Transformer", ("language_model.layers",), O1, latent=(3, 64, 64), shrink=small_vocabulary,
        extra=lambda draw: prompt(draw) | {"reference_latents": [draw(1, 64, 64, 3).abs()]},
    ),
}  # fmt: skip
