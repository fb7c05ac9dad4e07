"""Audio: ACE-Step and Stable Audio."""

import comfy.ops
import torch

from .recipe import Draw, Recipe

SECONDS = 768  # width of the embedded length, which the base models fix


def seconds(draw: Draw, *names: str, **kind) -> dict:
    from comfy.ldm.audio.embedders import NumberConditioner

    weights = NumberConditioner(SECONDS, **kind).state_dict()
    return {
        f"conditioner.conditioners.{name}.{key}": 0.1 * draw(*value.shape)
        for name in names
        for key, value in weights.items()
    }


def small_lyric_encoder(network: torch.nn.Module) -> None:
    network.lyric_encoder = type(network.lyric_encoder)(
        input_size=32, output_size=32, attention_heads=2, linear_units=32, num_blocks=1, static_chunk_size=0,
        operations=comfy.ops.disable_weight_init,
    )  # fmt: skip


RECIPES: dict[str, Recipe] = {
    "ace1": Recipe(
        "ACEStep", "ACEStepTransformer2DModel", ("transformer_blocks",),
        dict(audio_model="ace", attention_head_dim=16, in_channels=8, inner_dim=32, max_height=4, max_position=4096,
             max_width=4096, mlp_ratio=2.5, num_attention_heads=2, num_layers=4, out_channels=8, patch_size=[4, 1],
             rope_theta=1e6, speaker_embedding_dim=512, text_embedding_dim=32, ssl_encoder_depths=[8, 8],
             ssl_latent_dims=[32, 32], ssl_names=["a", "b"], lyric_encoder_vocab_size=64, lyric_hidden_size=32),
        latent=(8, 4, 20), shrink=small_lyric_encoder,
        extra=lambda draw: {"conditioning_lyrics": (10 * draw(1, 5).abs()).long(), "lyrics_strength": 1.0},
    ),
    "ace15": Recipe(
        "ACEStep15", "AceStepConditionGenerationModel", ("decoder.layers",),
        dict(audio_model="ace1.5", hidden_size=32, encoder_hidden_size=32, fsq_dim=32, head_dim=16, num_heads=2,
             num_kv_heads=1, encoder_num_heads=2, intermediate_size=48, encoder_intermediate_size=48, text_hidden_dim=32,
             num_dit_layers=4, num_lyric_layers=1, num_timbre_layers=1, num_tokenizer_layers=1),
        latent=(64, 20), extra=lambda draw: {"conditioning_lyrics": draw(1, 5, 32)},
    ),
    "stable_audio1": Recipe(
        "StableAudio", "AudioDiffusionTransformer", ("transformer.layers",),
        dict(audio_model="dit1.0", io_channels=64, embed_dim=64, cond_token_dim=SECONDS, project_cond_tokens=True,
             global_cond_dim=2 * SECONDS, depth=4, num_heads=2),
        latent=(64, 16), text=SECONDS, outside=lambda draw: seconds(draw, "seconds_start", "seconds_total"),
    ),
    "stable_audio3": Recipe(
        "StableAudio3", "AudioDiffusionTransformer", ("transformer.layers",),
        dict(audio_model="dit1.0", io_channels=16, embed_dim=64, cond_token_dim=SECONDS, project_cond_tokens=True,
             global_cond_dim=SECONDS, depth=4, num_heads=2, global_cond_shared_embed=True, global_cond_type="adaLN",
             local_add_cond_dim=17, num_memory_tokens=3, norm_type="rms_norm",
             attn_kwargs={"qk_norm": "rms", "differential": True}, timestep_features_type="expo"),
        latent=(16, 16), text=SECONDS, outside=lambda draw: seconds(draw, "seconds_total", fourier_features_type="expo"),
        extra=lambda draw: {"concat_latent_image": draw(1, 16, 16), "concat_mask": (draw(1, 1, 16) > 0).float()},
    ),
}  # fmt: skip
