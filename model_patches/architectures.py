"""ARCHITECTURES: the models that the cache knows. To support a model, add an entry.

The key is the class name of the diffusion model (`model.diffusion_model`), as ComfyUI defines it.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from torch import nn

from . import modulation
from .architecture import Architecture, Arguments, IdleModulesFunction, ModulatedInputFunction, unwrapped
from .stacks import (
    Argument,
    BatchInside,
    BlockStack,
    CachingStream,
    JoinedStreams,
    PackedStreams,
    StreamPair,
    TwoStreams,
)

X = Argument("x", 0)
HIDDEN_STATES = Argument("hidden_states", 0)
ENCODER_HIDDEN_STATES = Argument("encoder_hidden_states", 1)


# -- the odd parts of some models -------------------------------------------------------------------------------------


def patches(attribute: str = "patch_size"):
    """The number of patches in the latent, whose last two dimensions are cut into squares."""

    def image_tokens(model: Any, latent: tuple[int, ...], arguments: Arguments) -> int:
        side = getattr(model, attribute)
        return math.ceil(latent[-2] / side) * math.ceil(latent[-1] / side)

    return image_tokens


def lumina2_image_tokens(model: Any, latent: tuple[int, ...], arguments: Arguments) -> int:
    """Patches, padded as the model pads them."""
    count = patches()(model, latent, arguments)
    multiple = getattr(model, "pad_tokens_multiple", None) or 1
    return math.ceil(count / multiple) * multiple


def pixels(model: Any, latent: tuple[int, ...], arguments: Arguments) -> int:
    """One token for each element of the latent's plane."""
    return latent[-2] * latent[-1]


def krea2_image_tokens(model: Any, latent: tuple[int, ...], arguments: Arguments) -> int:
    """All behind the text: those of the picture, then those of references, which ComfyUI before 0.30 has not."""
    place = arguments["transformer_options"].get("img_slice")
    return place[1] - place[0] if place else patches("patch")(model, latent, arguments)


def vace_blocks(model: Any, last: int) -> list[nn.Module]:
    """VACE's control blocks feed the main blocks at some depths. If one feeds the last, all are needed on every call."""
    return [] if max(model.vace_layers_mapping, default=0) >= last else list(model.vace_blocks)


def face_adapters(model: Any, last: int) -> list[nn.Module]:
    """Wan Animate's, one after every fifth block; those behind the last skippable block are needed."""
    return [adapter for i, adapter in enumerate(model.face_adapter.fuser_blocks) if 5 * i < last]


def injectors(name: str) -> IdleModulesFunction:
    """Cross-attention to sound after some blocks; those behind the last skippable block are needed."""

    def idle(model: Any, last: int) -> list[nn.Module]:
        injector = getattr(model, name)
        return [injector.injector[i] for block, i in injector.injected_block_id.items() if block < last]

    return idle


# -- entries that several classes share -------------------------------------------------------------------------------


def flux_like(name: str, **more: Any) -> Architecture:
    """Double-stream blocks, then single-stream blocks on text and image tokens joined, text first."""
    double = TwoStreams("double_blocks", Argument("img", 0), Argument("txt", 1))
    return Architecture(name, (double, JoinedStreams("single_blocks")), modulation.flux, **more)


def wan(name: str, **more: Any) -> Architecture:
    """One stream of video tokens; text enters by cross-attention."""
    return Architecture(name, (BlockStack("blocks"),), modulation.wan, time_embedding="time_embedding", **more)


def qwen_like(name: str, **more: Any) -> Architecture:
    stack = TwoStreams("transformer_blocks", HIDDEN_STATES, ENCODER_HIDDEN_STATES, returns=("text", "image"))
    return Architecture(name, (stack,), modulation.qwen_image, **more)


def lumina(name: str, **more: Any) -> Architecture:
    stack = JoinedStreams("layers")
    return Architecture(
        name, (stack,), modulation.lumina2, time_embedding="t_embedder", image_tokens=lumina2_image_tokens, **more
    )


def pixeldit(name: str) -> Architecture:
    stack = TwoStreams("patch_blocks", Argument("x", 0), Argument("y", 1))
    return Architecture(name, (stack,), modulation.pixeldit)


def cosmos_predict2(name: str) -> Architecture:
    return Architecture(name, (BlockStack("blocks", Argument("x_B_T_H_W_D", 0)),), modulation.cosmos_predict2)


def one_stream(
    name: str, path: str, image: Argument, modulated_input: ModulatedInputFunction, **more: Any
) -> Architecture:
    return Architecture(name, (BlockStack(path, image),), modulated_input, **more)


ARCHITECTURES: dict[str, Architecture] = {
    # images
    "Flux": flux_like("Flux", covers="Flux.1 dev, schnell, Krea, Fill, Kontext; Flux.2 dev, klein; LongCat; Ovis"),
    "Chroma": flux_like("Chroma"),
    "ChromaRadiance": flux_like("Chroma Radiance"),
    "QwenImageTransformer2DModel": qwen_like("Qwen-Image", covers="Qwen-Image, Edit, Layered"),
    "MageFlowTransformer2DModel": qwen_like("Mage-Flow"),
    "LensTransformer2DModel": qwen_like("Lens"),
    "NextDiT": lumina("Lumina 2 / Z-Image", covers="Lumina 2, NewBie, Z-Image, Turbo, Omni, Edit"),
    "NextDiTPixelSpace": lumina("Z-Image pixel space"),
    "OpenAISignatureMMDITWrapper": Architecture(
        "SD3",
        (TwoStreams("joint_blocks", Argument("x", 1), Argument("context", 0), returns=("text", "image")),),
        modulation.sd3,
        covers="SD3, SD3.5",
    ),
    "MMDiT": Architecture(
        "AuraFlow",
        (
            TwoStreams("double_layers", Argument("x", 1), Argument("c", 0), returns=("text", "image")),
            JoinedStreams("single_layers", Argument("cx", 0)),
        ),
        modulation.aura_flow,
    ),
    "HiDreamImageTransformer2DModel": Architecture(
        "HiDream I1",
        (
            TwoStreams("double_stream_blocks", Argument("image_tokens", 0), Argument("text_tokens", 2)),
            JoinedStreams("single_stream_blocks", Argument("image_tokens", 0), order="image_first"),
        ),
        modulation.hidream,
        covers="HiDream I1 full, dev, fast; E1",
        time_embedding="t_embedder",
    ),
    "HiDreamO1Transformer": Architecture(
        "HiDream O1",
        (CachingStream("language_model.layers"),),
        modulation.tokens("x"),
        own_caches=("_kv_cache_entries",),  # of the prompt
    ),
    "HunYuanDiT": one_stream("HunyuanDiT", "blocks", X, modulation.hunyuan_dit, long_skips=True),
    "PixArtMS": one_stream("PixArt", "blocks", X, modulation.pixart),
    "OmniGen2Transformer2DModel": Architecture(
        "OmniGen 2", (JoinedStreams("layers", HIDDEN_STATES),), modulation.omnigen2, image_tokens=patches()
    ),
    "BooguTransformer2DModel": Architecture(
        "Boogu",
        (
            TwoStreams("double_stream_layers", Argument("img_hidden_states", 0), Argument("instruct_hidden_states", 1)),
            JoinedStreams("single_stream_layers", HIDDEN_STATES),
        ),
        modulation.boogu,
    ),
    "SingleStreamDiT": Architecture(
        "Krea 2", (JoinedStreams("blocks"),), modulation.krea2, image_tokens=krea2_image_tokens
    ),
    "Ideogram4Transformer2DModel": Architecture(
        "Ideogram 4", (JoinedStreams("layers"),), modulation.ideogram4, image_tokens=pixels
    ),
    "ErnieImageModel": Architecture(
        "Ernie Image", (JoinedStreams("layers", order="image_first"),), modulation.ernie, image_tokens=patches()
    ),
    "JoyImageTransformer3DModel": Architecture(
        "JoyImage", (TwoStreams("double_blocks", HIDDEN_STATES, ENCODER_HIDDEN_STATES),), modulation.joyimage
    ),
    "PixDiT_T2I": pixeldit("PixelDiT"),
    "PidNet": pixeldit("PiD"),
    "Anima": cosmos_predict2("Anima"),
    # videos
    "WanModel": wan("Wan", covers="Wan 2.1 and 2.2 t2v, i2v, 5B, A14B; FunControl; FlowRVS; Bernini"),
    "VaceWanModel": wan("Wan VACE", idle_modules=vace_blocks, idle_pairs=True),
    "CameraWanModel": wan("Wan camera"),
    "HumoWanModel": wan("Wan HuMo"),
    "WanModel_S2V": wan("Wan S2V", idle_modules=injectors("audio_injector")),
    "AnimateWanModel": wan("Wan Animate", idle_modules=face_adapters),
    "SCAILWanModel": wan("Wan SCAIL"),
    "SCAIL2WanModel": wan("Wan SCAIL-2"),
    "WanDancerModel": wan("Wan Dancer", idle_modules=injectors("music_injector")),
    "CausalWanModel": wan("Wan causal", records="kv_cache"),  # of its autoregressive sampler
    "HunyuanVideo": flux_like("HunyuanVideo", covers="HunyuanVideo, i2v, 1.5; HunyuanImage 2.1; SkyReels"),
    "LTXVModel": Architecture("LTXV", (BlockStack("transformer_blocks"),), modulation.ltxv),
    "LTXAVModel": Architecture(
        "LTX-2 audio-video", (StreamPair("transformer_blocks"),), modulation.ltx_av, all_streams_end=True
    ),
    "AsymmDiTJoint": Architecture("Mochi", (TwoStreams("blocks", X, Argument("y", 2)),), modulation.mochi),
    "CogVideoXTransformer3DModel": Architecture(
        "CogVideoX",
        (TwoStreams("blocks", HIDDEN_STATES, ENCODER_HIDDEN_STATES),),
        modulation.cogvideo,
        time_embedding="time_embedding_linear_2",
    ),
    "GeneralDIT": Architecture("Cosmos 1", (BatchInside("blocks", X, batch_dim=3),), modulation.tokens("x")),
    "MiniTrainDIT": cosmos_predict2("Cosmos Predict2"),
    "Kandinsky5": one_stream(
        "Kandinsky 5", "visual_transformer_blocks", Argument("visual_embed", 0), modulation.kandinsky5
    ),
    "MiniMaxH3Model": Architecture("MiniMax H3", (BatchInside("blocks"),), modulation.minimax),
    "NaDiT": Architecture(
        "SeedVR2",
        (PackedStreams("blocks", Argument("vid", 0), others=(Argument("vid_shape", 2), Argument("txt_shape", 3))),),
        modulation.tokens("vid"),
        exchanges_rows=True,
        always_run=1,  # it expands the timestep to all tokens, for the head too
    ),
    # audio
    "ACEStepTransformer2DModel": one_stream("ACE-Step 1", "transformer_blocks", HIDDEN_STATES, modulation.ace_step),
    "AceStepConditionGenerationModel": one_stream(
        "ACE-Step 1.5", "decoder.layers", HIDDEN_STATES, modulation.ace_step_15
    ),
    "AudioDiffusionTransformer": one_stream("Stable Audio", "transformer.layers", X, modulation.stable_audio),
    # shapes
    "Hunyuan3Dv2": flux_like("Hunyuan3D 2"),
    "HunYuanDiTPlain": one_stream(
        "Hunyuan3D 2.1",
        "blocks",
        HIDDEN_STATES,
        modulation.tokens("hidden_states"),
        long_skips=True,
        exchanges_rows=True,
    ),
    "LatentSeqMMFlowModel": one_stream("TripoSplat", "blocks", X, modulation.triposplat),
}


def identify(model: nn.Module) -> Architecture | None:
    """The table entry for a diffusion model, compiled or not; None if there is none or it does not fit the model."""
    model = unwrapped(model)
    entry = ARCHITECTURES.get(type(model).__name__)
    ours = type(model).__module__.split(".")[0] == "comfy"  # somebody else's class of the same name may be anything
    return entry if entry and ours and fits(entry, model) else None


def model_name(model: nn.Module) -> str:
    """What people call a diffusion model: the table's name of the architecture, else that of its class."""
    entry = identify(model)
    return entry.name if entry else type(unwrapped(model)).__name__


def fits(entry: Architecture, model: nn.Module) -> bool:
    """Whether the model has the parts that the entry names, and its blocks take the arguments that it names.

    In a ComfyUI that changed the class that may not be so.
    """
    try:
        places = list(entry.blocks(model))
        model.get_submodule(entry.time_embedding or "")
        for name in entry.own_caches:
            getattr(model, name)
        if entry.idle_modules:
            entry.idle_modules(model, len(places))
    except (AttributeError, LookupError, TypeError):
        return False
    firsts = {stack.path: (block, stack) for block, stack in reversed(places)}.values()
    return bool(places) and all(takes(block, argument) for block, stack in firsts for argument in stack.arguments)


def takes(block: nn.Module, argument: Argument) -> bool:
    parameters = inspect.signature(type(unwrapped(block)).forward).parameters.values()
    return any(
        parameter.name == argument.name or parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters
    )
