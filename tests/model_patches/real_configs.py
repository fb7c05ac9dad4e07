"""The `unet_config` of shipped checkpoints, as ComfyUI's model_detection makes it from their tensors.

Keys that tell nothing apart are left out where the network has the same default.
"""

FLUX = dict(
    image_model="flux", axes_dim=[16, 56, 56], num_heads=24, mlp_ratio=4.0, theta=10000, out_channels=16, qkv_bias=True,
    txt_ids_dims=[], in_channels=16, hidden_size=3072, context_in_dim=4096, patch_size=2, vec_in_dim=768, depth=19,
    depth_single_blocks=38, guidance_embed=True, yak_mlp=False, txt_norm=False,
)  # fmt: skip
FLUX2 = FLUX | dict(
    image_model="flux2", axes_dim=[32, 32, 32, 32], num_heads=48, mlp_ratio=3.0, theta=2000, out_channels=128,
    global_modulation=True, mlp_silu_act=True, qkv_bias=False, ops_bias=False, default_ref_method="index",
    ref_index_scale=10.0, txt_ids_dims=[3], patch_size=1, in_channels=128, hidden_size=6144, context_in_dim=15360,
    vec_in_dim=None, depth=8, depth_single_blocks=48,
)  # fmt: skip
HUNYUAN = dict(
    image_model="hunyuan_video", in_channels=16, patch_size=[1, 2, 2], out_channels=16, vec_in_dim=768,
    axes_dim=[16, 56, 56], meanflow=False, context_in_dim=4096, hidden_size=3072, mlp_ratio=4.0, num_heads=24, depth=20,
    depth_single_blocks=40, theta=256, qkv_bias=True, byt5=False, guidance_embed=True, use_cond_type_embedding=False,
    vision_in_dim=None, meanflow_sum=False,
)  # fmt: skip
HUNYUAN_IMAGE = HUNYUAN | dict(
    in_channels=64, patch_size=[1, 1], out_channels=64, vec_in_dim=None, axes_dim=[64, 64], context_in_dim=3584,
    hidden_size=3584, num_heads=28, byt5=True, guidance_embed=False,
)  # fmt: skip
HUNYUAN_15 = HUNYUAN | dict(
    in_channels=65, patch_size=[1, 1, 1], out_channels=32, vec_in_dim=None, context_in_dim=3584, hidden_size=2048,
    num_heads=16, depth=54, depth_single_blocks=0, byt5=True, guidance_embed=False, use_cond_type_embedding=True,
    vision_in_dim=1152, meanflow_sum=True,
)  # fmt: skip
COGVIDEOX = dict(
    image_model="cogvideox", num_attention_heads=48, attention_head_dim=64, time_embed_dim=512, num_layers=42,
    in_channels=16, patch_size=2, text_embed_dim=4096, use_learned_positional_embeddings=False,
    use_rotary_positional_embeddings=True,
)  # fmt: skip
COSMOS = dict(
    image_model="cosmos", max_img_h=240, max_img_w=240, max_frames=128, in_channels=16, out_channels=16, patch_spatial=2,
    patch_temporal=1, model_channels=4096, block_config="FA-CA-MLP", concat_padding_mask=True, pos_emb_cls="rope3d",
    pos_emb_learnable=False, pos_emb_interpolation="crop", block_x_format="THWBD", affline_emb_norm=True,
    use_adaln_lora=True, adaln_lora_dim=256, num_blocks=28, num_heads=32, extra_per_block_abs_pos_emb=True,
    rope_h_extrapolation_ratio=1.0, rope_w_extrapolation_ratio=1.0, rope_t_extrapolation_ratio=2.0,
    extra_per_block_abs_pos_emb_type="learnable",
)  # fmt: skip
MOCHI = dict(
    image_model="mochi_preview", depth=48, patch_size=2, num_heads=24, hidden_size_x=3072, hidden_size_y=1536,
    mlp_ratio_x=4.0, mlp_ratio_y=4.0, learn_sigma=False, in_channels=12, qk_norm=True, qkv_bias=False, out_bias=True,
    attn_drop=0.0, patch_embed_bias=True, posenc_preserve_area=True, timestep_mlp_bias=True, attend_to_padding=False,
    timestep_scale=1000.0, use_t5=True, t5_feat_dim=4096, t5_token_length=256, rope_theta=10000.0,
)  # fmt: skip
LUMINA = dict(
    image_model="lumina2", patch_size=2, in_channels=16, dim=2304, cap_feat_dim=2304, n_layers=26, qk_norm=True, n_heads=24,
    n_kv_heads=8, axes_dims=[32, 32, 32], axes_lens=[300, 512, 512], rope_theta=10000.0, ffn_dim_multiplier=4.0,
)  # fmt: skip
Z_IMAGE = LUMINA | dict(
    dim=3840, cap_feat_dim=2560, n_layers=30, n_heads=30, n_kv_heads=30, axes_dims=[32, 48, 48],
    axes_lens=[1536, 512, 512], rope_theta=256.0, ffn_dim_multiplier=8.0 / 3.0, z_image_modulation=True, time_scale=1000.0,
    pad_tokens_multiple=32,
)  # fmt: skip
HIDREAM = dict(
    image_model="hidream", attention_head_dim=128, axes_dims_rope=[64, 32, 32], caption_channels=[4096, 4096],
    max_resolution=[128, 128], in_channels=16, llama_layers=[*range(32), *[31] * 16], num_attention_heads=20,
    num_routed_experts=4, num_activated_experts=2, num_layers=16, num_single_layers=32, out_channels=16, patch_size=2,
    text_emb_dim=2048,
)  # fmt: skip
OMNIGEN2 = dict(
    image_model="omnigen2", axes_dim_rope=[40, 40, 40], axes_lens=[1024, 1664, 1664], ffn_dim_multiplier=None,
    hidden_size=2520, in_channels=16, multiple_of=256, norm_eps=1e-05, num_attention_heads=21, num_kv_heads=7,
    num_layers=32, num_refiner_layers=2, out_channels=None, patch_size=2, text_feat_dim=2048, timestep_scale=1000.0,
)  # fmt: skip
CHROMA = {key: FLUX[key] for key in FLUX if key not in ("guidance_embed", "yak_mlp", "txt_norm")} | dict(
    image_model="chroma", vec_in_dim=None, in_channels=64, out_channels=64, in_dim=64, out_dim=3072, hidden_dim=5120,
    n_layers=5,
)  # fmt: skip
LTXV = dict(image_model="ltxv", num_layers=28, attention_head_dim=64, cross_attention_dim=2048)
QWEN = dict(image_model="qwen_image", in_channels=64, num_layers=60)
SD3 = dict(
    in_channels=16, patch_size=2, out_channels=16, depth=24, input_size=None, adm_in_channels=2048, num_patches=36864,
    pos_embed_max_size=192, pos_embed_scaling_factor=None, qk_norm="rms", x_block_self_attn_layers=[],
    context_embedder_config={"target": "torch.nn.Linear", "params": {"in_features": 4096, "out_features": 1536}},
)  # fmt: skip
WAN = dict(
    image_model="wan2.1", dim=5120, out_dim=16, num_heads=40, ffn_dim=13824, num_layers=40, patch_size=(1, 2, 2),
    freq_dim=256, window_size=(-1, -1), qk_norm=True, cross_attn_norm=True, eps=1e-6, in_dim=16, model_type="t2v",
)  # fmt: skip
WAN_SMALL = WAN | dict(dim=1536, num_heads=12, ffn_dim=8960, num_layers=30)
WAN_I2V = WAN | dict(in_dim=36, model_type="i2v")
WAN_5B = WAN | dict(dim=3072, out_dim=48, num_heads=24, ffn_dim=14336, num_layers=30, in_dim=48)
VACE = dict(model_type="vace", vace_in_dim=96)
SEEDVR2 = dict(
    image_model="seedvr2", vid_dim=2560, heads=20, num_layers=32, norm_eps=1e-5, mlp_type="swiglu", vid_out_norm=True
)

LARGE = {"latent_area": 90 * 160}  # 1280 x 720
EDIT = {"references": True}
HIGH, LOW = {"noise_range": "high"}, {"noise_range": "low"}

CHECKPOINTS: list[tuple[str, dict, dict, str | None]] = [
    # checkpoint, what ComfyUI detects, what the run adds, the variant
    ("flux1-dev, Krea dev", FLUX, {}, "FLUX.1-dev"),
    ("flux1-kontext-dev", FLUX, EDIT, "FLUX.1-Kontext"),
    ("flux1-schnell", FLUX | dict(guidance_embed=False), {}, "FLUX.1-schnell"),
    ("flux1-schnell with references", FLUX | dict(guidance_embed=False), EDIT, "FLUX.1-schnell"),
    ("flux1-fill-dev", FLUX | dict(in_channels=96), {}, None),
    ("flux1-depth-dev", FLUX | dict(in_channels=32), {}, None),
    ("LongCat-Image", FLUX | dict(depth=10, depth_single_blocks=20, context_in_dim=3584, vec_in_dim=None, guidance_embed=False,
                                  txt_ids_dims=[1, 2]), {}, None),
    ("flux2-dev", FLUX2, {}, None),
    ("flux2-klein-4b", FLUX2 | dict(depth=5, depth_single_blocks=20, hidden_size=3072, num_heads=24, context_in_dim=7680,
                                    guidance_embed=False), {}, None),
    ("chroma", CHROMA, {}, "Chroma"),
    ("qwen_image", QWEN, {}, "Qwen-Image"),
    ("qwen_image_edit", QWEN, EDIT, "Qwen-Image-Edit"),
    ("qwen_image_edit_2511", QWEN | dict(default_ref_method="index_timestep_zero"), EDIT, None),
    ("qwen_image_layered", QWEN | dict(use_additional_t_cond=True, default_ref_method="negative_index"), {}, None),
    ("hunyuan_video_t2v 544p", HUNYUAN, {"latent_area": 68 * 120}, "HunyuanVideo 544p"),
    ("hunyuan_video_t2v 720p", HUNYUAN, LARGE, "HunyuanVideo 720p"),
    ("hunyuan_video_i2v", HUNYUAN | dict(in_channels=33), {}, None),
    ("skyreels_i2v", HUNYUAN | dict(in_channels=32), {}, None),
    ("hunyuanimage2.1", HUNYUAN_IMAGE, {}, None),
    ("hunyuanimage2.1 distilled", HUNYUAN_IMAGE | dict(meanflow=True, guidance_embed=True), {}, "HunyuanImage 2.1 distilled"),
    ("hunyuanimage refiner", HUNYUAN_IMAGE | dict(in_channels=128, patch_size=[1, 1, 1], meanflow=True, axes_dim=[16, 56, 56]),
     {}, "HunyuanImage 2.1 refiner"),
    ("hunyuanvideo1.5", HUNYUAN_15, LARGE, "HunyuanVideo 1.5"),
    ("hunyuanvideo1.5 step-distilled", HUNYUAN_15 | dict(meanflow=True), {}, "HunyuanVideo 1.5 step-distilled"),
    ("hunyuanvideo1.5 SR", HUNYUAN_15 | dict(in_channels=98), LARGE, "HunyuanVideo 1.5 SR distilled"),
    ("hunyuanvideo1.5 SR, mean-flow", HUNYUAN_15 | dict(in_channels=98, meanflow=True), {}, "HunyuanVideo 1.5 SR distilled"),
    ("ltx-video-2b-v0.9.1", LTXV, {}, "LTX-Video 0.9.1 (2B)"),
    ("ltx-video-2b-v0.9.6", LTXV | dict(causal_temporal_positioning=True), {}, None),
    ("ltxv-13b-0.9.7", LTXV | dict(num_layers=48, attention_head_dim=128, cross_attention_dim=4096,
                                   causal_temporal_positioning=True), {}, None),
    ("mochi_preview", MOCHI, {}, "Mochi 1"),
    ("lumina_2", LUMINA, {}, "Lumina-Image-2.0"),
    ("NewBie", LUMINA | dict(clip_text_dim=1024), {}, None),
    ("z_image_turbo", Z_IMAGE, {}, "Z-Image"),
    ("hidream_i1_full", HIDREAM, {}, "HiDream-I1-Full"),
    ("hidream_i1_dev", HIDREAM, {"guided": False}, "HiDream-I1-Dev or Fast"),
    ("CogVideoX-2b", COGVIDEOX | dict(num_attention_heads=30, num_layers=30), {}, "CogVideoX-2b"),
    ("CogVideoX-5b", COGVIDEOX, {}, "CogVideoX-5b"),
    ("CogVideoX-5b-I2V", COGVIDEOX | dict(in_channels=32), {}, "CogVideoX-5b-I2V"),
    ("CogVideoX1.5-5B", COGVIDEOX | dict(patch_size_t=2), {}, "CogVideoX1.5-5B"),
    ("CogVideoX1.5-5B-I2V", COGVIDEOX | dict(patch_size_t=2, in_channels=32, ofs_embed_dim=512), {}, "CogVideoX1.5-5B-I2V"),
    ("Cosmos-1.0 7B text", COSMOS, {}, "Cosmos 1.0 7B"),
    ("Cosmos-1.0 7B video", COSMOS | dict(in_channels=17), {}, "Cosmos 1.0 7B"),
    ("Cosmos-1.0 14B", COSMOS | dict(model_channels=5120, num_blocks=36, num_heads=40), {}, None),
    ("OmniGen2", OMNIGEN2, {}, "OmniGen2 from text"),
    ("OmniGen2 edit", OMNIGEN2, EDIT, "OmniGen2 edit"),
    ("sd3.5_medium", SD3, {}, None),
    ("sd3.5_large", SD3 | dict(depth=38, context_embedder_config={
        "target": "torch.nn.Linear", "params": {"in_features": 4096, "out_features": 2432}}), {}, "SD3.5 Large"),
    ("wan2.1_t2v_1.3B", WAN_SMALL, {}, "Wan2.1 T2V 1.3B"),
    ("wan2.1_t2v_1.3B, part of the sigmas", WAN_SMALL, LOW, "Wan2.1 T2V 1.3B"),
    ("wan2.1_t2v_14B", WAN, LARGE, "Wan2.1 T2V 14B"),
    ("wan2.2_t2v_high_noise_14B", WAN, HIGH, "Wan2.2 T2V A14B high noise"),
    ("wan2.2_t2v_low_noise_14B", WAN, LOW, "Wan2.2 T2V A14B low noise"),
    ("wan2.1_i2v_480p_14B", WAN_I2V, {}, "Wan2.1 I2V 14B 480p"),
    ("wan2.1_i2v_720p_14B", WAN_I2V, LARGE, "Wan2.1 I2V 14B 720p"),
    ("wan2.1_i2v_480p_14B, packed latent", WAN_I2V, {"latent_area": None}, None),
    ("wan2.1_flf2v_720p_14B", WAN_I2V | dict(flf_pos_embed_token_number=514), LARGE, None),
    ("wan2.2_i2v_high_noise_14B", WAN | dict(in_dim=36), HIGH | LARGE, "Wan2.2 I2V A14B high noise"),
    ("wan2.2_i2v_low_noise_14B", WAN | dict(in_dim=36), LOW, "Wan2.2 I2V A14B low noise"),
    ("wan2.2_i2v_high_noise_14B, all sigmas", WAN | dict(in_dim=36), {}, None),
    ("wan2.2_ti2v_5B", WAN_5B, {}, "Wan2.2 TI2V 5B from text"),
    ("wan2.2_ti2v_5B with an image", WAN_5B, {"masked": True}, "Wan2.2 TI2V 5B from an image"),
    ("wan2.1_vace_1.3B", WAN_SMALL | VACE | dict(vace_layers=15), {}, "Wan2.1 VACE 1.3B"),
    ("wan2.1_vace_14B", WAN | VACE | dict(vace_layers=8), {}, "Wan2.1 VACE 14B"),
    ("wan2.1_flow_rvs", WAN_SMALL | dict(model_type="flow_rvs"), {}, None),
    ("PiD", dict(image_model="pid", lq_hidden_dim=1536, lq_interval=2, lq_latent_channels=16, latent_spatial_down_factor=8),
     {}, "PiD"),
    ("seedvr2_3b", SEEDVR2, {}, "SeedVR2"),
]  # fmt: skip
