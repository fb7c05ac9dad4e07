"""Tiny random models of real ComfyUI classes, built in memory on the CPU.

    tiny = build("flux_dev")                 # weights follow from the name and the seed
    out = sampling.run(tiny.patcher, tiny)

A recipe names the class in `comfy.supported_models`, the network's keyword arguments and what a
conditioning must carry. To add an architecture, add an entry to RECIPES.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import comfy.model_patcher
import comfy.supported_models
import torch

CPU = torch.device("cpu")
Draw = Callable[..., torch.Tensor]  # draw(*shape): the next random tensor of a fixed sequence


@dataclass(frozen=True)
class Recipe:
    """How to build one tiny model."""

    config: str  # class in comfy.supported_models
    network: str  # class of `diffusion_model`
    stacks: tuple[str, ...]  # its block lists, in the order they run
    unet: dict  # keyword arguments of the network
    latent: tuple[int, ...]  # without the batch dimension
    text: int = 32  # width of a text token
    extra: Callable[[Draw], dict] = lambda draw: {}  # what else a conditioning carries
    tokens: int = 7  # text tokens; a fixed number where the model has one


@dataclass(frozen=True)
class TinyModel:
    name: str
    patcher: comfy.model_patcher.ModelPatcher
    latent: torch.Tensor  # (1, C, H, W) or (1, C, T, H, W), zeros
    positive: list  # ComfyUI CONDITIONING
    negative: list


FLUX = dict(
    image_model="flux", in_channels=16, out_channels=16, patch_size=2, vec_in_dim=16, context_in_dim=32, hidden_size=64,
    mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3, axes_dim=[8, 12, 12], theta=10000, qkv_bias=True,
    txt_ids_dims=[],
)  # fmt: skip
WAN = dict(
    image_model="wan2.1", model_type="t2v", in_dim=16, out_dim=16, dim=64, ffn_dim=96, freq_dim=32, text_dim=32,
    num_heads=2, num_layers=4,
)  # fmt: skip
LUMINA = dict(
    image_model="lumina2", patch_size=2, in_channels=16, dim=48, cap_feat_dim=32, n_layers=4, n_refiner_layers=1,
    qk_norm=True, n_heads=2, n_kv_heads=2, axes_dims=[8, 8, 8], axes_lens=[300, 64, 64], rope_theta=10000.0,
    ffn_dim_multiplier=1.0,
)  # fmt: skip


def flux_extra(draw: Draw) -> dict:
    return {"pooled_output": draw(1, 16), "guidance": 3.5}


RECIPES: dict[str, Recipe] = {
    "flux_dev": Recipe(
        "Flux", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(guidance_embed=True),
        latent=(16, 8, 8), extra=flux_extra,
    ),
    "flux_schnell": Recipe(
        "FluxSchnell", "Flux", ("double_blocks", "single_blocks"), FLUX | dict(guidance_embed=False),
        latent=(16, 8, 8), extra=lambda draw: {"pooled_output": draw(1, 16)},
    ),
    "flux2": Recipe(
        "Flux2", "Flux", ("double_blocks", "single_blocks"),
        FLUX | dict(image_model="flux2", in_channels=128, out_channels=128, patch_size=1, vec_in_dim=None,
                    axes_dim=[8, 8, 8, 8], theta=2000, qkv_bias=False, guidance_embed=True, txt_ids_dims=[3],
                    global_modulation=True, mlp_silu_act=True, ops_bias=False, default_ref_method="index",
                    ref_index_scale=10.0),
        latent=(128, 4, 4), extra=lambda draw: {"guidance": 3.5},
    ),
    "chroma": Recipe(
        "Chroma", "Chroma", ("double_blocks", "single_blocks"),
        FLUX | dict(image_model="chroma", in_channels=64, out_channels=64, vec_in_dim=None, in_dim=64, out_dim=64,
                    hidden_dim=32, n_layers=2),
        latent=(16, 8, 8),
    ),
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
    "qwen_image": Recipe(
        "QwenImage", "QwenImageTransformer2DModel", ("transformer_blocks",),
        dict(image_model="qwen_image", in_channels=64, num_layers=4, attention_head_dim=32, num_attention_heads=2,
             joint_attention_dim=32, axes_dims_rope=(8, 12, 12)),
        latent=(16, 1, 8, 8),
    ),
    "lumina2": Recipe("Lumina2", "NextDiT", ("layers",), LUMINA, latent=(16, 8, 8)),
    "z_image": Recipe(
        "ZImage", "NextDiT", ("layers",),
        LUMINA | dict(dim=256, axes_dims=[32, 48, 48], rope_theta=256.0, z_image_modulation=True, time_scale=1000.0,
             pad_tokens_multiple=32),
        latent=(16, 8, 8),
    ),
    "hunyuan_video": Recipe(
        "HunyuanVideo", "HunyuanVideo", ("double_blocks", "single_blocks"),
        dict(image_model="hunyuan_video", in_channels=16, out_channels=16, patch_size=[1, 2, 2], vec_in_dim=16,
             context_in_dim=32, hidden_size=64, mlp_ratio=2.0, num_heads=2, depth=2, depth_single_blocks=3,
             axes_dim=[8, 12, 12], theta=256, qkv_bias=True, guidance_embed=True, meanflow=False, byt5=False,
             use_cond_type_embedding=False, vision_in_dim=None, meanflow_sum=False),
        latent=(16, 2, 8, 8), extra=flux_extra,
    ),
    "sd3": Recipe(
        "SD3", "OpenAISignatureMMDITWrapper", ("joint_blocks",),
        dict(in_channels=16, out_channels=16, input_size=None, patch_size=2, depth=4, num_patches=256,
             pos_embed_max_size=16, pos_embed_scaling_factor=None, adm_in_channels=16,
             context_embedder_config={"target": "torch.nn.Linear", "params": {"in_features": 32, "out_features": 256}}),
        latent=(16, 8, 8), extra=lambda draw: {"pooled_output": draw(1, 16)},
    ),
    "ltxv": Recipe(
        "LTXV", "LTXVModel", ("transformer_blocks",),
        dict(image_model="ltxv", num_layers=4, num_attention_heads=2, attention_head_dim=32, caption_channels=32,
             cross_attention_dim=64),
        latent=(128, 2, 4, 4), extra=lambda draw: {"attention_mask": torch.ones(1, 7, dtype=torch.long)},
    ),
}  # fmt: skip

STACKS = {recipe.network: recipe.stacks for recipe in RECIPES.values()}


@cache
def shared(name: str) -> TinyModel:
    """The one model of this name in the test session. For tests that leave it as they found it."""
    return build(name)


def build(name: str, seed: int = 0, **unet) -> TinyModel:
    """A fresh model; `unet` replaces keyword arguments of the network."""
    recipe = RECIPES[name]
    recipe = replace(recipe, unet=recipe.unet | unet)
    return TinyModel(
        name,
        build_patcher(recipe, seed + zlib.crc32(name.encode())),
        torch.zeros(1, *recipe.latent),
        conditioning(name, seed=11),
        conditioning(name, seed=12),
    )


def build_patcher(recipe: Recipe, seed: int) -> comfy.model_patcher.ModelPatcher:
    config = getattr(comfy.supported_models, recipe.config)(recipe.unet)
    config.set_inference_dtype(torch.float32, None)
    model = config.get_model({}, "")
    fill(model.diffusion_model, seed)
    model.diffusion_model.eval().requires_grad_(False)
    assert type(model.diffusion_model).__name__ == recipe.network
    return comfy.model_patcher.ModelPatcher(model, load_device=CPU, offload_device=CPU)


def build_unet() -> comfy.model_patcher.ModelPatcher:
    """A tiny SD 1.5, which is no diffusion transformer."""
    unet = dict(image_size=8, in_channels=4, out_channels=4, model_channels=32, channel_mult=[1], num_res_blocks=[1],
                transformer_depth=[1], transformer_depth_output=[1, 1], transformer_depth_middle=1, context_dim=32,
                use_spatial_transformer=True, use_linear_in_transformer=False, adm_in_channels=None)  # fmt: skip
    return build_patcher(Recipe("SD15", "UNetModel", (), unet, latent=(4, 8, 8)), seed=0)


def conditioning(name: str, seed: int, tokens: int | None = None, **values) -> list:
    """CONDITIONING for the model. Another number of `tokens` makes ComfyUI call the model apart."""
    recipe = RECIPES[name]
    draw = drawer(seed)
    text = draw(1, tokens or recipe.tokens, recipe.text)
    return [[text, recipe.extra(draw) | values]]


def drawer(seed: int) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


@torch.no_grad()
def fill(network: torch.nn.Module, seed: int) -> None:
    """Random weights under which every part matters: a layer left at zero would hide what runs through it."""
    draw = drawer(seed)
    for name, parameter in network.state_dict().items():  # with buffers: a table of positions may be one
        values = draw(*parameter.shape)
        if is_norm_scale(name, parameter):
            values = 1 + 0.1 * values
        elif "modulation" in name or "table" in name:
            values = 0.3 * values
        elif parameter.ndim > 1:
            values = values / math.sqrt(parameter[0].numel())
        else:
            values = 0.1 * values
        parameter.copy_(values)


def is_norm_scale(name: str, parameter: torch.Tensor) -> bool:
    return parameter.ndim == 1 and not name.endswith("bias") and "norm" in name


def blocks_of(patcher: comfy.model_patcher.ModelPatcher) -> list[torch.nn.Module]:
    """All blocks of the model, in the order they run."""
    network = patcher.model.diffusion_model
    return [block for stack in STACKS[type(network).__name__] for block in getattr(network, stack)]
