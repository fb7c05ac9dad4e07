"""ARCHITECTURES: the models that the cache knows. To support a model, add an entry.

The key is the class name of the diffusion model (`model.diffusion_model`), as ComfyUI defines it.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from . import modulation
from .architecture import Architecture, Argument, BlockStack, unwrapped

TOKENS = Argument("x", 0)


def lumina2_image_tokens(model: Any, latent: tuple[int, ...]) -> int:
    """Patches of the latent (B, C, H, W), padded as the model pads them."""
    patch = model.patch_size
    count = math.ceil(latent[-2] / patch) * math.ceil(latent[-1] / patch)
    multiple = getattr(model, "pad_tokens_multiple", None) or 1
    return math.ceil(count / multiple) * multiple


def vace_blocks(model: Any, last: int) -> list[nn.Module]:
    """VACE's control blocks feed the main blocks at some depths. If one feeds the last, all are needed on every call."""
    return [] if max(model.vace_layers_mapping, default=0) >= last else list(model.vace_blocks)


def flux_like(name: str) -> Architecture:
    """Double-stream blocks, then single-stream blocks on text and image tokens joined, text first."""
    double = BlockStack("double_blocks", Argument("img", 0), Argument("txt", 1), returns=("image", "text"))
    single = BlockStack("single_blocks", TOKENS, joint="text_first")
    return Architecture(name, (double, single), modulation.flux)


def wan(name: str, **more: Any) -> Architecture:
    """One stream of video tokens; text enters by cross-attention."""
    return Architecture(name, (BlockStack("blocks", TOKENS),), modulation.wan, time_embedding="time_embedding", **more)


QWEN_IMAGE = BlockStack(
    "transformer_blocks",
    Argument("hidden_states", 0),
    Argument("encoder_hidden_states", 1),
    returns=("text", "image"),
)

ARCHITECTURES: dict[str, Architecture] = {
    "Flux": flux_like("Flux"),
    "Chroma": flux_like("Chroma"),
    "HunyuanVideo": flux_like("HunyuanVideo"),
    "WanModel": wan("Wan"),
    "VaceWanModel": wan("Wan VACE", idle_modules=vace_blocks),
    "QwenImageTransformer2DModel": Architecture("Qwen-Image", (QWEN_IMAGE,), modulation.qwen_image),
    "NextDiT": Architecture(
        "Lumina 2 / Z-Image",
        (BlockStack("layers", TOKENS, joint="text_first"),),
        modulation.lumina2,
        image_tokens=lumina2_image_tokens,
    ),
    "OpenAISignatureMMDITWrapper": Architecture(
        "SD3",
        (BlockStack("joint_blocks", Argument("x", 1), Argument("context", 0), returns=("text", "image")),),
        modulation.sd3,
    ),
    "LTXVModel": Architecture("LTXV", (BlockStack("transformer_blocks", TOKENS),), modulation.ltxv),
}


class UnsupportedModel(ValueError):
    """The model is not one that the cache knows."""


def identify(model: nn.Module) -> Architecture:
    """The table entry for a diffusion model, compiled or not.

    Raises:
        UnsupportedModel: with the list of supported models.
    """
    class_name = type(unwrapped(model)).__name__
    if class_name in ARCHITECTURES:
        return ARCHITECTURES[class_name]
    supported = ", ".join(sorted({architecture.name for architecture in ARCHITECTURES.values()}))
    kind = (
        "a U-Net, not a diffusion transformer" if class_name == "UNetModel" else f"of class {class_name}, not known yet"
    )
    raise UnsupportedModel(
        f"StepCache cannot cache this model: it is {kind}. Supported: {supported}. "
        "Remove the cache node for this model; the workflow then runs as without it."
    )
