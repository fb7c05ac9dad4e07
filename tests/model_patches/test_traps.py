"""Models that need more of the cache than an entry in the table says: each trap, and that it is handled.

Those of what models add between blocks are in `test_between_blocks.py`, that of weights loaded ahead in
`test_prefetch.py`.
"""

from __future__ import annotations

from dataclasses import replace

import comfy.samplers
import pytest
import torch
from comfy.patcher_extension import WrappersMP

from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, UNCHANGED, between, cached
from ..exactness import assert_repeats_are_reused_exactly
from ..sampling import count_block_runs, evaluate_twice, run
from ..tiny_models import build, shared

every_method = pytest.mark.parametrize("method", METHODS)


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
