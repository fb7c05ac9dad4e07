"""What runs or is added between skipped blocks and behind them: text, U-shaped skips, control, injectors, patches."""

from __future__ import annotations

import pytest
import torch

from stepcache.cache_core.types import Streams
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.stacks import Sizes

from ..caching import UNCHANGED, between, cached_by
from ..control import with_control
from ..exactness import assert_repeats_are_reused_exactly
from ..sampling import count_block_runs, count_runs, run
from ..tiny_models import RECIPES, build, shared

# -- blocks after the skipped ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "hidream_o1_edit"])  # see test_traps.py
def test_a_block_that_runs_behind_the_skipped_ones_gets_every_stream(name):
    """It reads text and other streams, which nothing reads behind the last block."""
    tiny = shared(name)
    run(tiny.patcher, tiny, steps=1)  # HiDream-O1 keeps the prompt's keys and values of its first call ever
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(1, 1, UNCHANGED))


@pytest.mark.parametrize("name", ["hunyuan_dit", "hunyuan3d_21"])
@pytest.mark.parametrize("head", [1, 2])
@pytest.mark.parametrize("tail", [1, 2, 3])
def test_late_blocks_take_what_early_ones_returned(name, head, tail):
    """U-shaped models: what a skipped early block returned is nothing that a late one can use."""
    tiny = shared(name)
    cache = cached_by(tiny.patcher, between(head, tail))
    with count_block_runs(tiny.patcher) as last, count_block_runs(tiny.patcher, -tail) as first_of_tail:
        run(cache.patcher, tiny, steps=4)
    assert last.count == 4 and first_of_tail.count == (4 if tail <= head else 2)
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(head, tail, UNCHANGED))


def assert_counted_once(patcher, tiny, head: int, tail: int):
    """At another input, the last skipped block returns what enters the first plus what all of them added before.

    By hand, from the plain model's own tensors: what is added between them is in that, what comes behind is not.
    """
    (first, first_exit), (second, second_exit) = entries_and_exits(patcher, tiny, head, tail)
    cache = cached_by(patcher, between(head, tail))
    (_, _), (_, reused_exit) = entries_and_exits(cache.patcher, tiny, head, tail)
    assert [evaluation.action for evaluation in cache.report.trace[:2]] == ["computed", "reused"]
    expected = second + (first_exit - first)
    assert torch.allclose(reused_exit, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert not torch.allclose(reused_exit, second_exit, rtol=1e-3)


def entries_and_exits(patcher, tiny, head: int, tail: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of the first two calls: the picture before the first block that can be skipped, and after the last."""
    network = patcher.model.diffusion_model
    places = list(ARCHITECTURES[type(network).__name__].blocks(network))
    (first, stack), (last, last_stack) = places[head], places[-1 - tail]
    entries, exits = [], []

    def note_entry(module, args, kwargs):
        entries.append(image_of(stack.read(args, kwargs, Sizes(1))))

    def note_exit(module, args, output):
        exits.append(image_of(last_stack.returned(output, Sizes(1, entries[-1].shape[1]))))

    handles = [first.register_forward_pre_hook(note_entry, with_kwargs=True), last.register_forward_hook(note_exit)]
    run(patcher, tiny, steps=4)
    for handle in handles:
        handle.remove()
    return list(zip(entries, exits, strict=True))[:2]


def image_of(streams: Streams) -> torch.Tensor:
    assert streams[0] is not None
    return streams[0].clone()


# -- what models add between blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [0, 1, 2])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_vace_control_enters_live_behind_the_last_skipped_block(layers, tail):
    """Control blocks feed main blocks 0; 0 and 2; or all four."""
    tiny = build("wan_vace", vace_layers=layers)
    for head in (0, 1):
        assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(head, tail, UNCHANGED))
        assert_counted_once(tiny.patcher, tiny, head, tail)


@pytest.mark.parametrize(("layers", "tail", "needed"), [(2, 0, False), (2, 1, True), (2, 2, True), (4, 0, True)])
def test_vace_control_that_only_skipped_blocks_take_is_not_computed(layers, tail, needed):
    tiny = build("wan_vace", vace_layers=layers)
    cache = cached_by(tiny.patcher, between(0, tail))
    with count_runs(tiny.patcher.model.diffusion_model.vace_blocks[-1].self_attn.q) as runs:
        run(cache.patcher, tiny, steps=6)
    assert cache.report.computed == 2
    assert runs.count == (6 if needed else 2)


@pytest.mark.parametrize("tail", [0, 4])
def test_face_adapters_between_skipped_blocks_and_behind_the_last(tail):
    """Of ten blocks, 0 and 5 are followed by one."""
    tiny = shared("wan_animate")
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(1, tail, UNCHANGED))
    assert_counted_once(tiny.patcher, tiny, 1, tail)


@pytest.mark.parametrize(("name", "injector"), [("wan_s2v", "audio_injector"), ("wan_dancer", "music_injector")])
def test_an_injector_behind_the_last_block_is_live(name, injector):
    """It writes into what the block returns."""
    tiny = build(name, audio_inject_layers=[0, 2, 4])
    network = tiny.patcher.model.diffusion_model
    cache = cached_by(tiny.patcher, between(0, 0))
    with count_runs(network.get_submodule(injector).injector[2]) as runs:
        run(cache.patcher, tiny, steps=6)
    assert cache.report.computed == 2 and runs.count == 6
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(0, 0, UNCHANGED))


@pytest.mark.parametrize("tail", [0, 1, 2])
@pytest.mark.parametrize("name", ["flux_dev", "qwen_image", "hunyuan_video", "sd3"])
def test_control_between_skipped_blocks_and_behind_the_last(name, tail):
    """The tiny ControlNet adds to the first two blocks of a kind: also to the last skipped one, for some tail."""
    controlled = with_control(shared(name))
    assert_repeats_are_reused_exactly(controlled.patcher, controlled, between(0, tail, UNCHANGED))
    assert_counted_once(controlled.patcher, controlled, 0, tail)


@pytest.mark.parametrize("tail", [0, 1])
@pytest.mark.parametrize("name", ["wan_t2v", "qwen_image", "lumina2", "z_image"])
def test_patches_after_each_block(name, tail):
    """Those after skipped blocks must not count twice; the one after the last is live."""
    tiny = shared(name)
    patcher = tiny.patcher.clone()
    calls = []

    def patch(args):
        calls.append(args["block_index"])
        scale = 1 + 0.1 * args["block_index"]
        return {"img": args["img"] * scale, **({"txt": args["txt"] * scale} if "txt" in args else {})}

    patcher.set_model_patch(patch, "double_block")
    assert_repeats_are_reused_exactly(patcher, tiny, between(0, tail, UNCHANGED))
    assert {calls.count(index) for index in range(4)} == {8}
    if name not in ("lumina2", "z_image"):  # whose picture is not all of what enters
        assert_counted_once(patcher, tiny, 0, tail)


@pytest.mark.parametrize("tail", [0, 1])
@pytest.mark.parametrize("name", ["pid", "cosmos1"])
def test_what_is_added_before_each_block(name, tail):
    """PiD's gated picture and Cosmos' positions."""
    tiny = shared(name)
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, between(1, tail, UNCHANGED))
    assert_counted_once(tiny.patcher, tiny, 1, tail)
