"""MiniMax H3, audio-video without a batch dimension."""

from .recipe import Recipe

RECIPES: dict[str, Recipe] = {
    "minimax_h3": Recipe(
        "MiniMaxH3", "MiniMaxH3Model", ("blocks",),
        dict(image_model="minimax_h3", hidden_size=64, num_layers=4, token_refiner_num_layers=1, num_attention_heads=2,
             attention_head_dim=32, ffn_hidden_size=96, text_dim=32, timestep_input_dim=32, time_embed_hidden_size=32,
             time_embed_dim=32, rope_inv_freq_len=4),
        latent=((24, 2, 4, 4), (32, 2, 5)),
    ),
}  # fmt: skip
