"""TeaCache's signal is what really enters a model's first attention."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from stepcache.cache_core.distances import relative_l1
from stepcache.cache_core.methods import teacache
from stepcache.model_patches import modulation
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.stacks import Sizes
from stepcache.model_patches.variants import table

from ..caching import IMPOSSIBLE, between, cached_by
from ..sampling import run
from ..tiny_models import RECIPES, shared
from ..witness import Witness, tensors

FIRST_LAYERS = {
    modulation.flux: "img_attn.qkv",
    modulation.qwen_image: "attn",
    modulation.wan: "self_attn",
    modulation.lumina2: "attention",
    modulation.sd3: "x_block.attn.qkv",
    modulation.ltxv: "attn1",
    modulation.ltx_av: "attn1",
    modulation.joyimage: "attn",
    modulation.hidream: "block.attn1",
    modulation.mochi: "attn.qkv_x",
    modulation.aura_flow: "attn.w2q",
    modulation.cogvideo: "q",
    modulation.cosmos_predict2: "self_attn",
    modulation.hunyuan_dit: "attn1",
    modulation.pixart: "attn",
    modulation.ace_step: "attn",
    modulation.ace_step_15: "self_attn",
    modulation.omnigen2: "attn",
    modulation.boogu: "img_instruct_attn",
    modulation.kandinsky5: "self_attention",
    modulation.krea2: "attn",
    modulation.ideogram4: "attention",
    modulation.ernie: "self_attention",
    modulation.minimax: "attn",
    modulation.pixeldit: "attn",
    modulation.stable_audio: "self_attn",
    modulation.triposplat: "attn",
}
"""What the modulated image enters in block 0. Elsewhere the signal is of the tokens that enter the block itself."""


def takes_masks(name: str) -> bool:
    """Whether it is a video model that samples with a mask; some make it a channel of their input instead."""
    shape = RECIPES[name].latent
    return len(shape) == 4 and shape[1] > 1 and name not in ("hunyuan_video_15", "kandinsky5")


@pytest.mark.parametrize("name", RECIPES)
def test_the_signal_is_what_enters_the_first_attention(name):
    """Of positive and negative in one batch, so that a wrong row of the modulation shows."""
    assert_signal_enters(shared(name))


@pytest.mark.parametrize("name", filter(takes_masks, RECIPES))
def test_the_signal_of_a_video_whose_first_frame_is_given(name):
    """Some models tell each frame or token its own timestep then."""
    tiny = shared(name)
    mask = torch.ones(1, 1, *tiny.latent.shape[2:])
    mask[:, :, 0] = 0
    assert_signal_enters(tiny, mask=mask)


OF_THE_EMBEDDING = {
    entry["class"]
    for figures in table("teacache")["entries"]
    if figures.get("signal") == "time_embedding"
    for entry in table("variants")["variants"]
    if entry["name"] in figures["variants"]
}


def embeds(name: str) -> bool:
    return RECIPES[name].network in OF_THE_EMBEDDING and name not in ("wan_5b", "z_image_omni")  # several rows a latent


@pytest.mark.parametrize("name", filter(embeds, RECIPES))
def test_figures_of_the_time_embedding_get_the_models_own(name):
    """One row a latent, which changes from step to step."""
    tiny = shared(name)
    network = tiny.patcher.model.diffusion_model
    made = []
    module = network.get_submodule(ARCHITECTURES[RECIPES[name].network].time_embedding)
    handle = module.register_forward_hook(lambda module, args, output: made.append(output.clone()))
    cache = cached_by(tiny.patcher, teacache(IMPOSSIBLE, time_embedding=True))
    run(cache.patcher, tiny, steps=4, cfg=4.0)
    handle.remove()
    assert {embedding.shape[0] for embedding in made} == {2}
    changes = [float(relative_l1(now[:1], before[:1])) for before, now in pairwise(made)]
    assert [evaluation.signal for evaluation in cache.report.trace[1:]] == pytest.approx(changes)
    assert min(changes) > 1e-3


def assert_signal_enters(tiny, **settings):
    architecture = ARCHITECTURES[RECIPES[tiny.name].network]
    block, stack = next(architecture.blocks(tiny.patcher.model.diffusion_model))
    layer = FIRST_LAYERS.get(architecture.modulated_input, "")
    entering: list[list[torch.Tensor]] = []

    def note(module, args, kwargs):
        given = tensors(*args, *kwargs.values()) if layer else stack.read(args, kwargs, Sizes(2))
        entering.append([tensor.clone() for tensor in given])

    witness = Witness()
    handle = block.get_submodule(layer).register_forward_pre_hook(note, with_kwargs=True)
    run(cached_by(tiny.patcher, between(0, 0, IMPOSSIBLE, witness)).patcher, tiny, steps=2, cfg=4.0, **settings)
    handle.remove()
    assert len(entering) == len(witness.signals) >= 2
    for given, signal in zip(entering, witness.signals, strict=True):
        assert any(has_run(tokens, signal) for tokens in given)


def has_run(tokens: torch.Tensor, part: torch.Tensor) -> bool:
    """Whether `part` is a run of the tokens: (B, M, D) in (B, N, D)."""
    if part.numel() and tokens.numel() % (part.shape[0] * part.shape[-1]):
        return False
    tokens = tokens.reshape(part.shape[0], -1, part.shape[-1])
    part = part.reshape(part.shape[0], -1, part.shape[-1])
    starts = range(tokens.shape[1] - part.shape[1] + 1)
    return any(torch.allclose(tokens[:, i : i + part.shape[1]], part, rtol=1e-5, atol=1e-5) for i in starts)
