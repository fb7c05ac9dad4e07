"""What the cache reads of a model and gives back to it, compared with the plain model's own tensors."""

from __future__ import annotations

import math

import pytest
import torch
from comfy.patcher_extension import WrappersMP

from stepcache.cache_core.types import Streams
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.stacks import BlockStack, JoinedStreams, Sizes, TwoStreams

from ..caching import IMPOSSIBLE, between, cached_by
from ..sampling import run
from ..tiny_models import RECIPES, blocks_of, drawer, shared
from ..witness import Witness, tensors

AFTER = {
    "Flux": ["final_layer"],
    "Chroma": ["final_layer"],
    "HunyuanVideo": ["final_layer"],
    "Hunyuan3Dv2": ["final_layer"],
    "WanModel": ["head"],
    "VaceWanModel": ["head"],
    "CameraWanModel": ["head"],
    "HumoWanModel": ["head"],
    "WanModel_S2V": ["head"],
    "AnimateWanModel": ["head"],
    "SCAILWanModel": ["head"],
    "SCAIL2WanModel": ["head"],
    "WanDancerModel": ["head"],
    "CausalWanModel": ["head"],
    "QwenImageTransformer2DModel": ["norm_out"],
    "MageFlowTransformer2DModel": ["norm_out"],
    "LensTransformer2DModel": ["norm_out"],
    "JoyImageTransformer3DModel": ["norm_out"],
    "NextDiT": ["final_layer"],
    "OpenAISignatureMMDITWrapper": ["final_layer"],
    "HiDreamImageTransformer2DModel": ["final_layer"],
    "HiDreamO1Transformer": ["language_model.norm"],
    "HunYuanDiT": ["final_layer"],
    "HunYuanDiTPlain": ["final_layer"],
    "PixArtMS": ["final_layer"],
    "OmniGen2Transformer2DModel": ["norm_out"],
    "BooguTransformer2DModel": ["norm_out"],
    "SingleStreamDiT": ["last"],
    "Ideogram4Transformer2DModel": ["final_layer"],
    "ErnieImageModel": ["final_norm"],
    "LTXVModel": ["norm_out"],
    "LTXAVModel": ["norm_out", "audio_norm_out"],
    "AsymmDiTJoint": ["final_layer"],
    "CogVideoXTransformer3DModel": ["norm_final"],
    "MiniTrainDIT": ["final_layer"],
    "Anima": ["final_layer"],
    "GeneralDIT": ["final_layer"],
    "Kandinsky5": ["out_layer"],
    "MiniMaxH3Model": ["final_layer"],
    "ACEStepTransformer2DModel": ["final_layer"],
    "AceStepConditionGenerationModel": ["decoder.norm_out"],
}
"""The modules that take what the blocks end with, one a stream."""


# -- which tokens are the picture's -----------------------------------------------------------------------------------


IN_PLACE = ("PixDiT_T2I", "PidNet")
"""Their pixel blocks write into what autograd needs."""

WHOLE_PATCHES = ("hunyuan_video", "hunyuan_video_i2v", "hunyuan_video_15", "mochi")
SMALLER = {**dict.fromkeys(WHOLE_PATCHES, 2), "z_image_pixel": 4, "chroma_radiance": 16, "hidream_e1": 0}
"""How many rows a latent can lose, where one is not possible in ComfyUI itself."""

UNTOLD = {
    "joyimage_edit": list(range(16)),
    "boogu_edit": list(range(16, 32)),
    "hidream_e1": [i for i in range(32) if i % 8 < 4],  # side by side
}
"""The picture where the model does not tell which tokens of the image stream are references."""


def two_streams(name: str) -> bool:
    architecture = ARCHITECTURES[RECIPES[name].network]
    return isinstance(architecture.stacks[-1], TwoStreams | JoinedStreams) and RECIPES[name].network not in IN_PLACE


@pytest.mark.parametrize("name", filter(two_streams, RECIPES))
def test_the_output_depends_on_the_tokens_of_the_picture_and_on_no_others(name):
    """After the last block, at a size that most patches do not divide."""
    tiny = shared(name)
    rows = tiny.latent.shape[-2] - SMALLER.get(name, 1)
    latent = tiny.latent[..., :rows, :] if tiny.latent.ndim > 3 else tiny.latent
    witness = look_at(name, latent)
    image, *others = influence(tiny, latent, witness.sizes[0])
    picture = torch.zeros_like(image)
    tokens = range(witness.signals[0].shape[1] - padding(tiny, latent))
    picture[:, UNTOLD.get(name, list(tokens))] = True
    assert torch.equal(image, picture)
    assert not any(other.any() for other in others if other is not None)


def padding(tiny, latent: torch.Tensor) -> int:
    """How many tokens Lumina and Z-Image add to those of a picture."""
    network = tiny.patcher.model.diffusion_model
    multiple = getattr(network, "pad_tokens_multiple", None) or 1
    return -math.prod(-(-side // network.patch_size) for side in latent.shape[-2:]) % multiple if multiple > 1 else 0


def last_stack(network) -> BlockStack:
    return list(ARCHITECTURES[type(network).__name__].blocks(network))[-1][1]


def influence(tiny, latent: torch.Tensor, sizes: Sizes) -> list[torch.Tensor | None]:
    """Of each stream's tokens after the last block: whether the output's gradient there is not zero, (B, N)."""
    ends: list[torch.Tensor | None] = []

    def cut_off(module, args, output):
        """Nothing before this point gets a gradient."""
        outputs = output if isinstance(output, tuple) else (output,)
        ends[:] = [None if end is None else end.detach().requires_grad_() for end in outputs]
        again = tuple(None if end is None else end * 1 for end in ends)  # the model may write into them
        return again if isinstance(output, tuple) else again[0]

    def differentiate(executor, *args, **kwargs):
        with torch.enable_grad():
            output = executor(*args, **kwargs)
            sum((part * drawer(5)(*part.shape)).sum() for part in tensors(output)).backward()
        return output.detach()

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "differentiate", differentiate)
    handle = blocks_of(patcher)[-1].register_forward_hook(cut_off)
    run(patcher, tiny, steps=1, latent=latent)
    handle.remove()
    gradients = [None if end is None else torch.zeros_like(end) if end.grad is None else end.grad for end in ends]
    stack = last_stack(patcher.model.diffusion_model)
    streams = stack.returned(gradients[0] if len(gradients) == 1 else tuple(gradients), sizes)
    return [None if stream is None else stream.abs().sum(-1) > 0 for stream in streams]


def look_at(name: str, latent: torch.Tensor | None = None) -> Witness:
    tiny, witness = shared(name), Witness()
    run(cached_by(tiny.patcher, between(0, 0, IMPOSSIBLE, witness)).patcher, tiny, steps=1, latent=latent)
    return witness


# -- what the model goes on with --------------------------------------------------------------------------------------


def followed(name: str) -> bool:
    return RECIPES[name].network in AFTER and name != "hidream_o1_edit"  # it finds its own cache by chance


@pytest.mark.parametrize("name", filter(followed, RECIPES))
def test_a_reused_call_goes_on_with_its_own_entry_plus_the_stored_residual(name):
    """By hand, from what the plain model gives to its first block and to the module behind its last one."""
    tiny = shared(name)
    run(tiny.patcher, tiny, steps=1)  # HiDream-O1 keeps the prompt's keys and values of its first call ever
    sizes = look_at(name).sizes[0]
    (first, first_end), (second, second_end) = passing(tiny.patcher, tiny, sizes)
    cache = cached_by(tiny.patcher, between(0, 0))
    (_, _), (_, reused_end) = passing(cache.patcher, tiny, sizes)
    assert [evaluation.action for evaluation in cache.report.trace[:2]] == ["computed", "reused"]
    assert len(reused_end) == len(AFTER[RECIPES[name].network])
    for index, end in enumerate(reused_end):
        tokens = end.shape[1]  # some models drop the references behind the picture first
        expected = second[index][:, :tokens] + (first_end[index] - first[index][:, :tokens])
        assert torch.allclose(end, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
        assert not torch.allclose(end, second_end[index], rtol=1e-3)


def passing(patcher, tiny, sizes: Sizes) -> list[tuple[Streams, Streams]]:
    """Of the first two calls: the streams that enter the blocks, and as much of them as the model takes thereafter."""
    network = patcher.model.diffusion_model
    architecture = ARCHITECTURES[type(network).__name__]
    block, stack = next(architecture.blocks(network))
    entries, ends = [], []

    def note_entry(module, args, kwargs):
        entries.append(tuple(stream.clone() for stream in stack.read(args, kwargs, sizes)))
        ends.append([])

    def note_end(module, args, kwargs):
        tokens = (args or tuple(kwargs.values()))[0]
        like = entries[-1][len(ends[-1])]
        if tokens.numel() > like.numel():
            tokens = last_stack(network).returned(tokens, sizes)[0]
        ends[-1].append(tokens.reshape(like.shape[0], -1, *like.shape[2:]).clone())

    handles = [block.register_forward_pre_hook(note_entry, with_kwargs=True)]
    followers = [network.get_submodule(path) for path in AFTER[type(network).__name__]]
    handles += [module.register_forward_pre_hook(note_end, with_kwargs=True) for module in followers]
    run(patcher, tiny, steps=4)
    for handle in handles:
        handle.remove()
    return list(zip(entries, ends, strict=True))[:2]
