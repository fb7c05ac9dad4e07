"""Tiny random models of real ComfyUI classes, built in memory on the CPU.

    tiny = build("flux_dev")                 # weights follow from the name and the seed
    out = sampling.run(tiny.patcher, tiny)

A recipe names the class in `comfy.supported_models`, the network's keyword arguments and what a
conditioning must carry; they are in `recipes/`.
"""

import math
import re
import zlib
from dataclasses import dataclass, replace
from functools import cache

import comfy.model_base
import comfy.model_patcher
import comfy.supported_models
import pytest
import torch
from comfy.nested_tensor import NestedTensor
from comfyui_version import __version__ as COMFYUI

from devtools.sources import NEWEST, version_key
from stepcache.model_patches.architectures import identify

from .recipes import RECIPES, Draw, Recipe

CPU = torch.device("cpu")
OLDER = version_key(COMFYUI) < version_key(NEWEST.version)
UNKNOWN_ARGUMENT = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True)
class TinyModel:
    name: str
    patcher: comfy.model_patcher.ModelPatcher
    latent: torch.Tensor | NestedTensor  # (1, C, H, W) or (1, C, T, H, W), zeros
    positive: list  # ComfyUI CONDITIONING
    negative: list


STACKS = {recipe.network: recipe.stacks for recipe in RECIPES.values()}


@cache
def shared(name: str) -> TinyModel:
    """The one model of this name in the test session. For tests that leave it as they found it.

    One that keeps what it made of a prompt (HiDream-O1) takes shorter inputs from its second call on, so it had one.
    """
    tiny = build(name)
    known = identify(tiny.patcher.model.diffusion_model)
    if known and known.own_caches:
        from .sampling import run

        run(tiny.patcher, tiny, steps=1, cfg=2.0)
    return tiny


def build(name: str, seed: int = 0, **unet) -> TinyModel:
    """A fresh model; `unet` replaces keyword arguments of the network."""
    recipe = RECIPES[name]
    recipe = replace(recipe, unet=recipe.unet | unet)
    return TinyModel(
        name,
        build_patcher(recipe, seed + zlib.crc32(name.encode())),
        zeros(recipe.latent),
        conditioning(name, seed=11),
        conditioning(name, seed=12),
    )


def zeros(shape: tuple) -> torch.Tensor | NestedTensor:
    if isinstance(shape[0], tuple):
        return NestedTensor([zeros(part) for part in shape])
    return torch.zeros(1, *shape)


def build_patcher(recipe: Recipe, seed: int) -> comfy.model_patcher.ModelPatcher:
    model = build_model(recipe, seed)
    recipe.shrink(model.diffusion_model)
    fill(model.diffusion_model, seed, recipe.constants)
    model.diffusion_model.eval().requires_grad_(False)
    assert type(model.diffusion_model).__name__ == recipe.network
    return comfy.model_patcher.ModelPatcher(model, load_device=CPU, offload_device=CPU)


def build_model(recipe: Recipe, seed: int) -> comfy.model_base.BaseModel:
    """The model of a recipe, before its weights are filled.

    Recipes are written for the newest ComfyUI. One that lacks the class, or has it in an unfinished state, skips the
    test; keyword arguments that the network of an older one does not know yet are left out.
    """
    if not hasattr(comfy.supported_models, recipe.config) or version_key(COMFYUI) < version_key(recipe.since):
        pytest.skip(f"ComfyUI {COMFYUI} has no {recipe.config}")
    config_class = getattr(comfy.supported_models, recipe.config)
    unet = dict(recipe.unet)
    while True:
        config = type(recipe.config, (config_class,), recipe.config_values)(unet)
        config.set_inference_dtype(torch.float32, None)
        try:
            return config.get_model(recipe.outside(drawer(seed)), "")
        except TypeError as error:
            unknown = UNKNOWN_ARGUMENT.search(str(error))
            if not OLDER or unknown is None or unknown[1] not in unet:
                raise
            del unet[unknown[1]]


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
    pooled = {"pooled_output": None}  # as of a text encoder that has none; before 0.20 some models want the entry
    return [[text, pooled | recipe.extra(draw) | values]]


def drawer(seed: int) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator)


@torch.no_grad()
def fill(network: torch.nn.Module, seed: int, constants: tuple[str, ...] = ()) -> None:
    """Random weights under which every part matters: a layer left at zero would hide what runs through it."""
    draw = drawer(seed)
    for name, parameter in network.state_dict().items():  # with buffers: a table of positions may be one
        if name.endswith(constants):
            continue
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
    known = next(STACKS[kind.__name__] for kind in type(network).__mro__ if kind.__name__ in STACKS)
    return [block for stack in known for block in network.get_submodule(stack).children()]


def rename(network: torch.nn.Module, name: str) -> None:
    """Give the network a class of another name, which the pack does not know."""
    network.__class__ = type(name, (type(network),), {})
