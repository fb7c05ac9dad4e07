"""Models that need more of the cache than an entry in the table: each trap, and that it is handled."""

from __future__ import annotations

from dataclasses import replace

import comfy.samplers
import pytest
import torch
from comfy.patcher_extension import WrappersMP

from stepcache.cache_core.method import CacheMethod
from stepcache.cache_core.types import Streams
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.stacks import Sizes

from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, between, cached, cached_by
from ..control import with_control
from ..sampling import count_block_runs, count_runs, evaluate_twice, run
from ..tiny_models import RECIPES, build, shared

UNCHANGED = 1e-6  # a threshold that reuses only where the input is the same

every_method = pytest.mark.parametrize("method", METHODS)


def assert_repeats_are_reused_exactly(patcher, tiny, method: CacheMethod, calls: int = 3, **settings):
    """Evaluate every sigma twice on the same x: the second result is the first, though it is reused."""
    pairs = []
    cache = cached_by(patcher, method)
    run(cache.patcher, tiny, steps=4, sampler=comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs}), **settings)
    for first, second in pairs:
        assert (second - first).abs().max() <= ROUNDING.get(tiny.name, 1e-6) * first.abs().max()
    assert cache.report.reused == calls
    return cache


ROUNDING = {"pixeldit": 1e-5}
"""Where more than 1e-6 is rounding: PixelDiT's random pixel blocks amplify the last digit of the tokens."""


# -- blocks after the skipped ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_a_block_that_runs_behind_the_skipped_ones_gets_every_stream(name):
    """It reads text and other streams, which nothing reads behind the last block."""
    tiny = shared(name)
    run(tiny.patcher, tiny, steps=1)  # HiDream-O1 keeps the prompt's keys and values of its first call ever
    if name == "hidream_o1_edit":
        pytest.skip("finds its own cache by chance: below")
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
    assert last.count == 4 and first_of_tail.count == (4 if tail <= head else cache.report.computed == 2 and 2)
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


# -- models that exchange rows ----------------------------------------------------------------------------------------


exchanging = pytest.mark.parametrize("name", ["seedvr2", "hunyuan3d_21"])


@every_method
@exchanging
def test_a_stored_result_is_not_used_for_another_composition_of_the_batch(name, method, monkeypatch):
    """They exchange the halves of a batch. ComfyUI batches or splits by free memory, anew in each evaluation."""
    tiny = shared(name)
    model = tiny.patcher.model
    memory_required = model.memory_required
    splits = iter([0, 0, 1, 1, 0, 0, 1, 0])

    def change_free_memory(executor, *args, **kwargs):
        needed = 1e30 if next(splits) else 0
        monkeypatch.setattr(
            model, "memory_required", lambda *args, **kwargs: needed or memory_required(*args, **kwargs)
        )
        return executor(*args, **kwargs)

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(WrappersMP.PREDICT_NOISE, "memory", change_free_memory)
    cache = cached(patcher, method, PERMISSIVE)
    run(cache.patcher, tiny, steps=8, cfg=4.0)
    calls = [(evaluation.computed_calls, evaluation.reused_calls) for evaluation in cache.report.trace]
    assert calls == [(1, 0), (0, 1), (2, 0), (0, 2), (1, 0), (0, 1), (2, 0), (1, 0)]


@every_method
@exchanging
def test_a_stored_result_is_not_used_for_another_order_of_the_batch(name, method):
    tiny = shared(name)
    patcher = tiny.patcher.clone()
    swaps = iter([0, 0, 1, 1, 0, 0])

    def turned(value):
        return value.flip(0) if torch.is_tensor(value) and value.ndim and value.shape[0] == 2 else value

    def swap_rows(executor, *args, **kwargs):
        *args, options = args
        if not next(swaps):
            return executor(*args, options, **kwargs)
        options = options | {key: options[key][::-1] for key in ("cond_or_uncond", "uuids")}
        kwargs = {name: turned(value) for name, value in kwargs.items()}
        return turned(executor(*map(turned, args), options, **kwargs))

    patcher.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "swap", swap_rows)
    cache = cached(patcher, method, PERMISSIVE)
    run(cache.patcher, tiny, steps=6, cfg=4.0)
    calls = [(evaluation.computed_calls, evaluation.reused_calls) for evaluation in cache.report.trace]
    assert calls == [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (1, 0)]


# -- models with caches of their own ----------------------------------------------------------------------------------


def cleared_before_each_call(tiny, cleared=lambda call: True):
    """A clone whose model forgets its prompt before a call, and what it holds after each."""
    network = tiny.patcher.model.diffusion_model
    patcher = tiny.patcher.clone()
    held = []

    def clear(executor, *args, **kwargs):
        if cleared(len(held)):
            network.clear_kv_cache()
        output = executor(*args, **kwargs)
        held.append(list(network._kv_cache_entries))
        return output

    patcher.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "clear", clear)
    return patcher, held


@every_method
def test_a_reused_call_does_not_fill_the_models_cache_with_nothing(method):
    """HiDream-O1 keeps what its layers return for the prompt, and skipped layers return nothing."""
    tiny = build("hidream_o1")
    patcher, held = cleared_before_each_call(tiny)
    cache = cached(patcher, method, PERMISSIVE)
    run(cache.patcher, tiny, steps=6)
    assert [evaluation.action for evaluation in cache.report.trace] == ["computed", *["reused"] * 4, "computed"]
    assert [len(entries) for entries in held] == [1, 0, 0, 0, 0, 1]


@every_method
@pytest.mark.parametrize("name", ["hidream_o1", "hidream_o1_edit"])
def test_runs_leave_the_models_cache_as_plain_ones_do(name, method):
    tiny, fresh = build(name), build(name)
    run(cached(tiny.patcher, method, PERMISSIVE).patcher, tiny, steps=4, cfg=4.0)
    after = run(tiny.patcher, tiny, steps=4, cfg=4.0)
    assert torch.allclose(after, run(fresh.patcher, fresh, steps=4, cfg=4.0), atol=1e-4)
    tiny.patcher.model.diffusion_model.clear_kv_cache()
    fresh.patcher.model.diffusion_model.clear_kv_cache()
    assert torch.equal(run(tiny.patcher, tiny, steps=4, cfg=4.0), run(fresh.patcher, fresh, steps=4, cfg=4.0))


@every_method
@pytest.mark.parametrize("cold", [lambda call: True, lambda call: call % 3 == 1, lambda call: False])
@pytest.mark.parametrize("name", ["hidream_o1", "hidream_o1_edit"])
def test_reuse_is_exact_whether_or_not_the_model_remembers_the_prompt(name, method, cold):
    """A call with the prompt has other tokens than one without. References are found again by chance (by `id`)."""
    tiny = build(name)
    patcher, _ = cleared_before_each_call(tiny, cold)
    pairs = []
    cache = cached(patcher, method, UNCHANGED)
    run(cache.patcher, tiny, steps=6, sampler=comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs}))
    for first, second in pairs:
        assert (second - first).abs().max() <= 1e-5 * first.abs().max()
    assert cache.report.reused > 0 or name == "hidream_o1_edit"


# -- blocks that always run -------------------------------------------------------------------------------------------


@every_method
def test_the_first_block_of_seedvr2_always_runs(method):
    """It expands the timestep to all tokens, for the head too."""
    tiny = shared("seedvr2")
    cache = cached(tiny.patcher, method, PERMISSIVE)
    with count_block_runs(tiny.patcher, 0) as first, count_block_runs(tiny.patcher, -1) as last:
        run(cache.patcher, tiny, steps=6)
    assert (first.count, last.count) == (6, 2)


# -- two pictures in one ----------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("name", ["ltx_av", "ltx_av_23"])
def test_ltx_2_without_audio(name, method):
    """Its second stream has no tokens then."""
    tiny = shared(name)
    video = replace(tiny, latent=tiny.latent.unbind()[0])
    plain = run(tiny.patcher, video, steps=4, cfg=4.0)
    assert torch.equal(run(cached(tiny.patcher, method, IMPOSSIBLE).patcher, video, steps=4, cfg=4.0), plain)
    for tail in (0, 1):
        assert_repeats_are_reused_exactly(tiny.patcher, video, between(1, tail, UNCHANGED), cfg=4.0)


@every_method
def test_a_causal_model_that_records_each_block_of_frames_is_computed(method):
    """Its sampler winds the blocks' records back after each call: one that did not record would be wound too far."""
    tiny = shared("wan_causal_ar")
    settings = dict(steps=4, latent=torch.zeros(1, 16, 3, 8, 8), sampler=comfy.samplers.ksampler("ar_video"))
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.equal(run(permissive.patcher, tiny, **settings), run(tiny.patcher, tiny, **settings))
    assert permissive.report.reused == 0
    assert "records" in permissive.report.trace[1].reason
