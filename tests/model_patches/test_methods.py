"""What every method promises, on architectures that differ in what can go wrong.

TeaCache and First Block Cache run on all of them in test_contract.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import comfy.hooks
import comfy.model_management
import pytest
import torch

from stepcache.cache_core.methods import dbcache, first_block_cache
from stepcache.cache_core.policies import ChangeFromAnchor
from stepcache.cache_core.probes import ModelInput
from stepcache.model_patches.live_run import ranges

from ..caching import (
    EVERY_METHOD,
    FORETOLD,
    IMPOSSIBLE,
    LOOKING,
    OTHERS,
    PERMISSIVE,
    PLANNED,
    UNCHANGED,
    cached,
    cached_by,
    first_computed,
    normal,
)
from ..control import with_control
from ..exactness import assert_repeats_are_reused_exactly
from ..leftovers import fingerprint, only_new_objects, state_objects, with_input_watch  # noqa: F401
from ..sampling import MIDDLE, count_block_runs, main_layer, run
from ..tiny_models import TinyModel, blocks_of, build, build_unet, conditioning, drawer, rename, shared

Interrupt = comfy.model_management.InterruptProcessingException

LISTED = [
    "flux_dev",  # two stacks
    "wan_t2v",
    "z_image",
    "ltx_av",  # a nested latent, and two streams through each block
    "cosmos1",  # the batch is not the first dimension of its tokens
    "minimax_h3",  # no batch dimension
    "hunyuan_dit",  # late blocks take what early ones gave
    "hunyuan3d_21",
    "sd3",
    "hidream",
    "seedvr2",  # rows of a batch see each other
]
UNLISTED = ["unet", "renamed"]


def shares(methods, names, of: int = 3):
    """Pairs such that each method meets a third of the names, and each name a third of the methods."""
    chosen = [(m, n) for i, m in enumerate(methods) for j, n in enumerate(names) if (i + j) % of == 0]
    return pytest.mark.parametrize(("method", "name"), chosen)


other_method = pytest.mark.parametrize("method", OTHERS)


@cache
def unlisted(name: str) -> TinyModel:
    if name == "renamed":
        tiny = build("wan_t2v")
        rename(tiny.patcher.model.diffusion_model, "Unheard")
        return tiny
    text = [[drawer(seed)(1, 7, 32), {"pooled_output": None}] for seed in (11, 12)]
    return TinyModel(name, build_unet(), torch.zeros(1, 4, 8, 8), [text[0]], [text[1]])


def model(name: str) -> TinyModel:
    return unlisted(name) if name in UNLISTED else shared(name)


def actions(report) -> list[str]:
    return [evaluation.action for evaluation in report.trace]


def computed_at(report) -> tuple[int, ...]:
    return tuple(evaluation.index for evaluation in report.trace if not evaluation.reused)


# -- everywhere -------------------------------------------------------------------------------------------------------


@shares(OTHERS, [*LISTED, *UNLISTED])
def test_nothing_reused_is_exact_and_much_reused_leaves_nothing(name, method):
    tiny = model(name)
    plain = run(tiny.patcher, tiny, steps=5, cfg=4.0)
    before = fingerprint(tiny.patcher)
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(run(exact.patcher, tiny, steps=5, cfg=4.0), plain)
    assert (exact.report.evaluations, exact.report.reused) == (5, 0)

    watching, written = with_input_watch(tiny.patcher)
    permissive = cached(watching, method, PERMISSIVE)
    first = run(permissive.patcher, tiny, steps=5, cfg=4.0)
    known = first_computed(method) if name in LISTED else 3
    assert torch.isfinite(first).all() and not torch.equal(first, plain)
    assert actions(permissive.report)[known:] == ["reused"] * (4 - known) + ["computed"]
    assert actions(permissive.report)[0] == "computed"
    assert torch.equal(run(permissive.patcher, tiny, steps=5, cfg=4.0), first)
    assert written and not any(written)
    assert fingerprint(tiny.patcher) == before
    assert state_objects() == []


@shares([method for method in OTHERS if method not in ("spectrum", "meancache")], LISTED)
def test_reuse_at_an_unchanged_input_is_exact(name, method):
    """Spectrum smooths, and MeanCache answers for the step ahead: both give something else even then."""
    tiny = shared(name)
    composed = EVERY_METHOD[method](PERMISSIVE if method in PLANNED else UNCHANGED)
    if method in PLANNED:
        composed = replace(composed, probe=ModelInput(), policy=ChangeFromAnchor(UNCHANGED))
    if method == "easycache":
        composed = replace(composed, policy=ChangeFromAnchor(UNCHANGED))
    rounding = 1e-4 if method == "easycache" else 1e-6  # it divides by sigma and multiplies again, at up to 80
    assert_repeats_are_reused_exactly(tiny.patcher, tiny, composed, rounding, cfg=4.0)


@shares(OTHERS, [name for name in LISTED if name != "seedvr2"])
def test_split_calls_give_the_result_of_batched_ones(name, method, monkeypatch):
    tiny = shared(name)
    some = cached(tiny.patcher, method, PERMISSIVE)
    batched = run(some.patcher, tiny, steps=5, cfg=4.0)
    monkeypatch.setattr(tiny.patcher.model, "memory_required", lambda *args, **kwargs: 1e30)
    split = run(some.patcher, tiny, steps=5, cfg=4.0)
    assert (split - batched).abs().max() <= 1e-3 * batched.abs().max()


@shares(OTHERS, ["flux_dev", "cosmos1", "hunyuan_dit", "unet"], of=2)
def test_rows_of_a_batch_are_like_single_runs(name, method):
    tiny = model(name)
    noise = drawer(3)(2, *tiny.latent.shape[1:])
    patcher = cached(tiny.patcher, method, PERMISSIVE).patcher
    rows = run(patcher, tiny, steps=5, cfg=4.0, noise=noise, batch=2)
    for row, row_noise in zip(rows.split(1), noise.split(1), strict=True):
        alone = run(patcher, tiny, steps=5, cfg=4.0, noise=row_noise)
        assert (row - alone).abs().max() <= 1e-4 * alone.abs().max()


@pytest.mark.parametrize(("name", "kind"), [("flux_dev", Interrupt), ("renamed", RuntimeError)])
@other_method
def test_an_exception_restores_the_blocks_and_leaves_nothing_behind(name, kind, method):
    tiny = model(name)
    some = cached(tiny.patcher, method, CHANCE)
    expected = run(some.patcher, tiny, steps=6)
    error = kind("stop")
    with pytest.raises(kind) as caught:
        run_and_raise(some.patcher, tiny, error)
    assert caught.value is error
    assert all("forward" not in vars(block) for block in blocks_of(tiny.patcher))
    del caught
    error.__traceback__ = None
    assert state_objects() == []
    assert torch.equal(run(some.patcher, tiny, steps=6), expected)


CHANCE = 0.15
"""A threshold at which each method computes some evaluations and reuses others, whichever they are."""


def run_and_raise(patcher, tiny, error):
    with count_block_runs(patcher, MIDDLE) as runs:

        def stop(*_):
            if runs.count == 2:
                raise error

        handle = main_layer(blocks_of(patcher)[MIDDLE]).register_forward_pre_hook(stop)
        try:
            run(patcher, tiny, steps=6)
        finally:
            handle.remove()


# -- samplers and schedules -------------------------------------------------------------------------------------------

RUNS = {
    "heun": dict(sampler="heun", steps=6),
    "dpmpp_2m": dict(sampler="dpmpp_2m", steps=8),
    "euler_ancestral": dict(sampler="euler_ancestral", steps=8),
    "denoise": dict(denoise=0.5, steps=6),
    "guidance": dict(cfg=4.0, steps=6),
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
@other_method
def test_samplers_and_schedules(settings, method):
    tiny = shared("sd3")
    plain = run(tiny.patcher, tiny, **settings)
    assert torch.equal(run(cached(tiny.patcher, method, IMPOSSIBLE).patcher, tiny, **settings), plain)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, **settings)).all()
    assert permissive.report.reused > 0
    assert actions(permissive.report)[0] == actions(permissive.report)[-1] == "computed"


# -- one decision for all branches, or one for each -------------------------------------------------------------------


@pytest.mark.parametrize("method", [method for method in EVERY_METHOD if method != "meancache"])
def test_branches_that_agree_need_no_common_decision(method):
    together, apart = (branches_at(method, PERMISSIVE, shared=shared_) for shared_ in (True, False))
    assert torch.equal(together[0], apart[0])


@pytest.mark.parametrize("method", ["first_block", "dbcache", "easycache"])
def test_branches_that_disagree_go_their_own_way(method):
    usual = normal("wan_t2v", method)
    traces = [branches_at(method, factor * usual, shared=False)[1].trace for factor in (0.3, 0.5, 0.7, 1.0, 1.4)]
    assert any(each.computed_calls and each.reused_calls for trace in traces for each in trace)
    trace = branches_at(method, usual, shared=True)[1].trace
    assert not any(each.computed_calls and each.reused_calls for each in trace)


def branches_at(method, threshold, **limits):
    tiny = shared("wan_t2v")
    some = cached(tiny.patcher, method, threshold, **limits)
    negative = conditioning(tiny.name, 12, tokens=9)  # another length: a call of its own
    return run(some.patcher, tiny, steps=10, cfg=4.0, negative=negative), some.report


# -- what is known before sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{}, dict(max_consecutive=1), dict(start_percent=0.3), dict(warmup=4, max_reused=2)])
@pytest.mark.parametrize("method", FORETOLD)
def test_the_report_says_which_steps_will_be_computed(method, limits):
    tiny = shared("flux_dev")
    some = cached(tiny.patcher, method, normal(tiny.name, method), **limits)
    run(some.patcher, tiny, steps=12, cfg=4.0)
    assert 0 < some.report.reused < 11
    assert some.report.settings["computes"] == ranges(computed_at(some.report))


# -- single methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flux_dev", "wan_t2v", "hunyuan_dit", "ltx_av"])
def test_dbcache_with_one_head_and_no_tail_block_is_first_block_cache(name):
    tiny, threshold = shared(name), min(normal(name, "first_block"), LOOKING)
    ours, theirs = (cached_by(tiny.patcher, method) for method in (dbcache(threshold, 1), first_block_cache(threshold)))
    assert torch.equal(run(ours.patcher, tiny, steps=10, cfg=4.0), run(theirs.patcher, tiny, steps=10, cfg=4.0))
    assert 0 < ours.report.reused == theirs.report.reused


@pytest.mark.parametrize("name", ["flux_dev", "ltx_av"])
def test_easycache_takes_another_size_and_several_latents(name):
    tiny = shared(name)
    some = cached(tiny.patcher, "easycache", PERMISSIVE)
    first = run(some.patcher, tiny, steps=6, batch=2)
    if not tiny.latent.is_nested:
        run(some.patcher, tiny, steps=6, latent=torch.zeros(1, 16, 16, 8))
    assert torch.equal(run(some.patcher, tiny, steps=6, batch=2), first)
    assert some.report.reused == 3


def changing_prompt(tiny):
    early = conditioning(tiny.name, 11, start_percent=0.0, end_percent=0.47)  # 0.47: between two evaluations
    return dict(positive=early + conditioning(tiny.name, 13, start_percent=0.47, end_percent=1.0))


def ending_control(tiny):
    [[_, values]] = (positive := with_control(tiny).positive)
    values["control"].timestep_percent_range = (0.0, 0.47)
    return dict(positive=positive)


def changing_lora(tiny):
    layer = "diffusion_model.single_blocks.2.linear2"
    draw = drawer(9)
    weights = {f"{layer}.lora_up.weight": draw(64, 2), f"{layer}.lora_down.weight": draw(2, 192)}
    hooks = comfy.hooks.create_hook_lora(weights, 1.0, 0.0)
    keyframes = comfy.hooks.HookKeyframeGroup()
    for strength, start in ((0.0, 0.0), (0.5, 0.47)):
        keyframes.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=1))
    hooks.set_keyframes_on_hooks(keyframes)
    tiny.patcher.register_all_hook_patches(hooks, comfy.hooks.create_target_dict(comfy.hooks.EnumWeightTarget.Model))
    return dict(positive=conditioning(tiny.name, 11, hooks=hooks))


@pytest.mark.parametrize("change", [changing_prompt, ending_control, changing_lora])
def test_meancache_computes_anew_what_guidance_joins_after_a_change(change):
    tiny = build("flux_dev")
    settings = change(tiny)
    some = cached(tiny.patcher, "meancache", PERMISSIVE)
    run(some.patcher, tiny, steps=10, cfg=4.0, **settings)
    first, middle, last = computed_at(some.report)
    assert (first, last) == (0, 9) and 3 <= middle <= 7
