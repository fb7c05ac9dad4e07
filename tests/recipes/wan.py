"""Wan and its relatives."""

from types import SimpleNamespace

import comfy.ops
import torch

from .recipe import Draw, Recipe

WAN = dict(
    image_model="wan2.1", model_type="t2v", in_dim=16, out_dim=16, dim=64, ffn_dim=96, freq_dim=32, text_dim=32,
    num_heads=2, num_layers=4,
)  # fmt: skip
S2V = WAN | dict(model_type="s2v", num_layers=5, audio_dim=16, audio_inject_layers=[0, 2, 3])
OPS = comfy.ops.disable_weight_init
CLIP_VISION = 32  # instead of 1280
SHAPE = (16, 2, 8, 8)


def clip_vision(draw: Draw) -> SimpleNamespace:
    return SimpleNamespace(penultimate_hidden_states=draw(1, 3, CLIP_VISION))


def small_image_embedding(network: torch.nn.Module) -> None:
    for name in ("img_emb", "img_emb_refimage"):
        if (old := getattr(network, name, None)) is not None:
            setattr(network, name, type(old)(CLIP_VISION, network.dim, operation_settings={"operations": OPS}))


def small_audio_projection(network: torch.nn.Module) -> None:
    network.audio_proj = type(network.audio_proj)(8, blocks=5, channels=4, intermediate_dim=16, operations=OPS)


def small_face_encoder(network: torch.nn.Module) -> None:
    """For faces of 8 instead of 512 pixels."""
    small_image_embedding(network)
    network.motion_encoder = type(network.motion_encoder)(style_dim=16, motion_dim=4, operations=OPS)
    motion = network.motion_encoder.enc.net_app
    first, residual, last = (type(motion.convs[i]) for i in (0, 1, -1))
    motion.convs = torch.nn.ModuleList([first(3, 8, 1), residual(8, 8), last(8, 16, 4, bias=False)])
    for layer in network.motion_encoder.modules():
        if hasattr(layer, "scale"):
            layer.scale = 1.0  # it divides by the fan-in, as the random weights already do
    face = network.face_encoder
    conv = type(face.conv1_local)
    face.conv1_local = conv(512, 8 * face.num_heads, 3, operations=OPS)
    face.conv2, face.conv3 = (conv(8, 8, 3, stride=2, operations=OPS) for _ in range(2))
    face.norm1, face.norm2, face.norm3 = (OPS.LayerNorm(8, elementwise_affine=False) for _ in range(3))
    face.out_proj = OPS.Linear(8, network.dim)


def speech(draw: Draw) -> dict:
    return {"audio_embed": draw(1, 25, 16, 8), "reference_latents": [draw(1, 16, 1, 8, 8)]}


def scail_extra(draw: Draw) -> dict:
    return {
        "reference_latents": [draw(1, 16, 1, 8, 8)],
        "pose_video_latent": draw(1, 16, 2, 4, 4),
        "clip_vision_output": clip_vision(draw),
    }


RECIPES: dict[str, Recipe] = {
    "wan_t2v": Recipe("WAN21_T2V", "WanModel", ("blocks",), WAN, latent=(16, 2, 8, 8)),
    "wan_i2v": Recipe(
        "WAN21_I2V", "WanModel", ("blocks",), WAN | dict(model_type="i2v", in_dim=36),
        latent=(16, 2, 8, 8), extra=lambda draw: {"concat_latent_image": draw(1, 16, 2, 8, 8)},
    ),
    "wan_5b": Recipe("WAN22_T2V", "WanModel", ("blocks",), WAN | dict(in_dim=48, out_dim=48), latent=(48, 2, 8, 8)),
    "wan_vace": Recipe(
        "WAN21_Vace", "VaceWanModel", ("blocks",),
        WAN | dict(model_type="vace", vace_layers=2, vace_in_dim=96), latent=(16, 2, 8, 8),
        extra=lambda draw: {"vace_frames": [draw(1, 32, 2, 8, 8)], "vace_mask": [draw(1, 64, 2, 8, 8)], "vace_strength": [1.0]},
    ),
    "wan_in_context": Recipe(
        "WAN21_T2V", "WanModel", ("blocks",), WAN,
        latent=SHAPE, extra=lambda draw: {"context_latents": [draw(1, 16, 1, 8, 8), draw(1, 16, 2, 4, 4)]},
    ),
    "wan22_i2v": Recipe(
        "WAN21_T2V", "WanModel", ("blocks",), WAN | dict(in_dim=36),
        latent=SHAPE, extra=lambda draw: {"concat_latent_image": draw(1, 16, 2, 8, 8)},
    ),
    "wan_fun_control": Recipe(
        "WAN21_FunControl2V", "WanModel", ("blocks",),
        WAN | dict(model_type="i2v", in_dim=48, in_dim_ref_conv=16), shrink=small_image_embedding,
        latent=SHAPE, extra=lambda draw: {"concat_latent_image": draw(1, 32, 2, 8, 8), "clip_vision_output": clip_vision(draw),
                                          "reference_latents": [draw(1, 16, 1, 8, 8)]},
    ),
    "wan_flow_rvs": Recipe("WAN21_FlowRVS", "WanModel", ("blocks",), WAN | dict(model_type="flow_rvs"), latent=SHAPE),
    "wan_causal_ar": Recipe("WAN21_CausalAR_T2V", "CausalWanModel", ("blocks",), WAN, latent=SHAPE),
    "wan_camera": Recipe(
        "WAN21_Camera", "CameraWanModel", ("blocks",),
        WAN | dict(model_type="camera", in_dim=32, in_dim_control_adapter=2), shrink=small_image_embedding,
        latent=SHAPE, extra=lambda draw: {"camera_conditions": draw(1, 2, 2, 64, 64), "clip_vision_output": clip_vision(draw),
                                          "concat_latent_image": draw(1, 16, 2, 8, 8)},
    ),
    "wan22_camera": Recipe(
        "WAN22_Camera", "CameraWanModel", ("blocks",),
        WAN | dict(model_type="camera_2.2", in_dim=36, in_dim_control_adapter=2),
        latent=SHAPE, extra=lambda draw: {"camera_conditions": draw(1, 2, 2, 64, 64),
                                          "concat_latent_image": draw(1, 16, 2, 8, 8)},
    ),
    "wan_humo": Recipe(
        "WAN21_HuMo", "HumoWanModel", ("blocks",), WAN | dict(model_type="humo", in_dim=36, dim=32),
        shrink=small_audio_projection, latent=SHAPE,
        extra=lambda draw: {"audio_embed": draw(1, 2, 8, 5, 4), "reference_latents": [draw(1, 16, 1, 8, 8)]},
    ),
    "wan_s2v": Recipe(
        "WAN22_S2V", "WanModel_S2V", ("blocks",), S2V, latent=SHAPE,
        extra=lambda draw: speech(draw) | {"control_video": draw(1, 16, 2, 8, 8)},
    ),
    "wan_s2v_motion": Recipe(
        "WAN22_S2V", "WanModel_S2V", ("blocks",), S2V, latent=SHAPE,
        extra=lambda draw: speech(draw) | {"reference_motion": draw(1, 16, 19, 8, 8)},
    ),
    "wan_animate": Recipe(
        "WAN22_Animate", "AnimateWanModel", ("blocks",),
        WAN | dict(model_type="animate", in_dim=36, num_layers=10),  # a face adapter after every fifth
        shrink=small_face_encoder, constants=(".kernel",), latent=SHAPE,
        extra=lambda draw: {"concat_latent_image": draw(1, 16, 2, 8, 8), "clip_vision_output": clip_vision(draw),
                            "pose_video_latent": draw(1, 16, 1, 8, 8), "face_video_pixels": draw(1, 3, 4, 8, 8)},
    ),
    "wan_scail": Recipe(
        "WAN21_SCAIL", "SCAILWanModel", ("blocks",), WAN | dict(model_type="scail", in_dim=20), shrink=small_image_embedding,
        latent=SHAPE, extra=scail_extra,
    ),
    "wan_scail2": Recipe(
        "WAN21_SCAIL2", "SCAIL2WanModel", ("blocks",), WAN | dict(model_type="scail2", in_dim=20),
        shrink=small_image_embedding, latent=SHAPE,
        extra=lambda draw: scail_extra(draw) | {"driving_mask_28ch": draw(1, 2, 28, 4, 4), "ref_mask_28ch": draw(1, 3, 28, 8, 8)},
    ),
    "wan_dancer": Recipe(
        "WAN22_WanDancer", "WanDancerModel", ("blocks",),
        WAN | dict(model_type="wandancer", in_dim=36, num_layers=5, audio_inject_layers=[0, 2, 3], music_dim=32,
                   music_heads=2, music_latent_dim=32),
        shrink=small_image_embedding, latent=SHAPE,
        extra=lambda draw: {"audio_embed": draw(1, 12, 35), "concat_latent_image": draw(1, 16, 2, 8, 8),
                            "clip_vision_output": clip_vision(draw), "clip_vision_output_ref": clip_vision(draw)},
    ),
}  # fmt: skip
