"""The cache together with other nodes that reach into a model call."""

import comfy.hooks
import comfy.patcher_extension
import comfy.samplers
import pytest
import torch
from comfy_extras import nodes_custom_sampler
from comfy_extras.nodes_context_windows import ContextWindowsManualNode

from stepcache.cache_core.method import Boundary
from stepcache.model_patches.install import apply_cache

from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, cached
from ..control import with_control
from ..exactness import assert_exact_when_nothing_is_reused, assert_repeats_are_exact
from ..sampling import count_block_runs, run
from ..tiny_models import build, conditioning, drawer, rename, shared

every_method = pytest.mark.parametrize("method", METHODS)


# -- several calls of the same conditioning in an evaluation ----------------------------------------------------------


def with_windows(patcher, schedule):
    """Look at a video through windows of 4 frames, of which neighbours share 2."""
    return ContextWindowsManualNode.execute(
        patcher, context_length=4, context_overlap=2, context_schedule=schedule, context_stride=2,
        closed_loop=False, fuse_method="pyramid", dim=2, freenoise=False,
    ).result[0]  # fmt: skip


@pytest.fixture
def windowed():
    """A video of 8 frames, seen through the same windows in each evaluation."""
    tiny = shared("wan_t2v")
    return with_windows(tiny.patcher, "standard_static"), tiny, torch.zeros(1, 16, 8, 8, 8)


@every_method
@pytest.mark.parametrize("cfg", [1.0, 4.0])
def test_context_windows(windowed, method, cfg):
    patcher, tiny, latent = windowed
    plain = assert_exact_when_nothing_is_reused(patcher, tiny, method, latent=latent, cfg=cfg)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=6, latent=latent, cfg=cfg), atol=1e-3)
    permissive = cached(patcher, method, PERMISSIVE)
    with count_block_runs(patcher) as runs:
        out = run(permissive.patcher, tiny, steps=6, latent=latent, cfg=cfg)
    assert torch.isfinite(out).all()
    calls = permissive.report.trace[0].computed_calls
    assert calls == 3 and runs.count == calls * permissive.report.computed
    assert [evaluation.reused_calls for evaluation in permissive.report.trace] == [0, 3, 3, 3, 3, 0]


@every_method
def test_windows_do_not_share_what_they_keep(windowed, method):
    """Another window's residual would change the second result at a sigma."""
    patcher, tiny, latent = windowed
    model = assert_repeats_are_exact(patcher, tiny, method, latent=latent)
    assert model.report.reused == 3


@every_method
def test_a_window_is_reused_only_if_the_evaluation_before_had_it(method):
    """With a uniform schedule the windows move from evaluation to evaluation."""
    tiny = shared("wan_t2v")
    seen = [{}]  # of each evaluation: frames of a window -> whether it was computed

    def evaluation(executor, *args):
        seen.append({})
        return executor(*args)

    def note(executor, x, t, c_concat, c_crossattn, control, options, **kwargs):
        with count_block_runs(tiny.patcher) as runs:
            output = executor(x, t, c_concat, c_crossattn, control, options, **kwargs)
        seen[-1][tuple(options["context_window"].index_list)] = runs.count > 0
        return output

    patcher = with_windows(tiny.patcher, "standard_uniform")
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREDICT_NOISE, "evaluation", evaluation)
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "note", note)
    run(cached(patcher, method, PERMISSIVE).patcher, tiny, steps=8, latent=torch.zeros(1, 16, 9, 8, 8))
    assert len({frozenset(windows) for windows in seen[1:]}) > 1
    for before, now in zip(seen, seen[1:], strict=False):
        assert all(computed or window in before for window, computed in now.items())


@every_method
@pytest.mark.parametrize("tokens", [7, 50])
def test_area_conditioning(method, tokens):
    """The area and the whole picture have other sizes; ComfyUI gives positive and negative of an area one uuid."""
    tiny = shared("flux_dev")
    area = conditioning(tiny.name, 13, tokens=tokens, area=(4, 4, 2, 2), strength=1.0, set_area_to_bounds=False)
    settings = dict(positive=tiny.positive + area, cfg=4.0)
    plain = assert_exact_when_nothing_is_reused(tiny.patcher, tiny, method, **settings)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=6, cfg=4.0), atol=1e-3)
    model = assert_repeats_are_exact(tiny.patcher, tiny, method, **settings)
    assert model.report.reused == 3


@every_method
def test_positives_that_change_half_way(method):
    """Two positives, each active for a part: the second has nothing stored when it begins."""
    tiny = shared("flux_dev")
    first = conditioning(tiny.name, 11, start_percent=0.0, end_percent=0.5)
    second = conditioning(tiny.name, 13, start_percent=0.5, end_percent=1.0)
    assert_exact_when_nothing_is_reused(tiny.patcher, tiny, method, positive=first + second)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, steps=10, positive=first + second)).all()
    assert permissive.report.computed >= 3  # first, last, and where the second positive begins
    assert any("nothing stored" in evaluation.reason for evaluation in permissive.report.trace)


# -- what a stored result depends on ----------------------------------------------------------------------------------


@every_method
def test_control_that_begins_half_way_is_not_answered_from_before(method):
    tiny = shared("flux_dev")
    controlled = with_control(tiny)
    [[_, values]] = controlled.positive
    always = values["control"].get_control

    def from_half_way(x_noisy, t, *args):
        return always(x_noisy, t, *args) if float(t.flatten()[0]) < 0.75 else None

    values["control"].get_control = from_half_way
    assert_exact_when_nothing_is_reused(tiny.patcher, controlled, method)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    run(permissive.patcher, controlled, steps=10)
    assert_computed_anew_in_the_middle(permissive.report)


@every_method
def test_a_lora_whose_strength_changes_half_way_is_not_answered_from_before(method):
    tiny = build("flux_dev")
    layer = "diffusion_model.single_blocks.2.linear2"
    draw = drawer(9)
    weights = {f"{layer}.lora_up.weight": draw(64, 2), f"{layer}.lora_down.weight": draw(2, 192)}
    hooks = comfy.hooks.create_hook_lora(weights, 1.0, 0.0)
    keyframes = comfy.hooks.HookKeyframeGroup()
    for strength, start in ((0.0, 0.0), (0.5, 0.5)):
        keyframes.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=1))
    hooks.set_keyframes_on_hooks(keyframes)
    hooked = dict(positive=conditioning("flux_dev", 11, hooks=hooks))
    tiny.patcher.register_all_hook_patches(hooks, comfy.hooks.create_target_dict(comfy.hooks.EnumWeightTarget.Model))
    plain = assert_exact_when_nothing_is_reused(tiny.patcher, tiny, method, **hooked)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=6), atol=1e-3)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    run(permissive.patcher, tiny, steps=10, **hooked)
    assert_computed_anew_in_the_middle(permissive.report)


def assert_computed_anew_in_the_middle(report):
    actions = [evaluation.action for evaluation in report.trace]
    computed = [index for index, action in enumerate(actions) if action == "computed"]
    assert len(computed) == 3 and computed[0] == 0 and 3 <= computed[1] <= 7 and computed[2] == 9


# -- models that are not as expected ----------------------------------------------------------------------------------


@every_method
def test_too_few_blocks_are_refused_with_the_cure(method):
    tiny = build("wan_t2v")
    settings = METHODS[method](PERMISSIVE)
    blocks = len(tiny.patcher.model.diffusion_model.blocks)
    greedy = type(settings)(
        "greedy", settings.probe, settings.policy, settings.predictor, Boundary(head=blocks - 1, tail=1)
    )
    with pytest.raises(ValueError, match=f"always computes {blocks} blocks.*nothing is left to skip.*Choose"):
        apply_cache(tiny.patcher, greedy)


@every_method
def test_a_second_model_of_unknown_class_is_learned_and_the_report_says_so(method):
    tiny, second = shared("flux_dev"), build("flux_dev", seed=1).patcher
    plain = guided(tiny, tiny.patcher, second)
    rename(second.model.diffusion_model, "UnheardFlux")
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(guided(tiny, exact.patcher, second), plain)
    assert any("UnheardFlux" in message for message in exact.report.messages)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    with count_block_runs(second) as runs:
        assert torch.isfinite(guided(tiny, permissive.patcher, second)).all()
    assert runs.count == 2  # the first is watched, the last is always computed


@every_method
def test_a_second_model_of_a_known_class_has_its_own_cache(method):
    tiny, second = shared("flux_dev"), build("flux_dev", seed=1).patcher
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(guided(tiny, exact.patcher, second), guided(tiny, tiny.patcher, second))
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    with count_block_runs(second) as runs:
        assert torch.isfinite(guided(tiny, permissive.patcher, second)).all()
    assert runs.count == permissive.report.computed == 2


def guided(tiny, patcher, second):
    """Sample with the positive on one model and the negative on another."""
    if not hasattr(nodes_custom_sampler, "Guider_DualModel"):
        pytest.skip("this ComfyUI has no DualModelGuider")
    guider = nodes_custom_sampler.Guider_DualModel(patcher, second)
    guider.set_conds(tiny.positive, tiny.negative)
    guider.set_cfg(4.0)
    sigmas = comfy.samplers.calculate_sigmas(patcher.get_model_object("model_sampling"), "simple", 10)
    noise = drawer(3)(*tiny.latent.shape)
    return guider.sample(noise, tiny.latent, comfy.samplers.sampler_object("euler"), sigmas, disable_pbar=True, seed=1)


# -- packs that run the model in another way inside our wrapper -------------------------------------------------------


def in_single_rows(executor, x, t, *args, **kwargs):
    """As packs do that save memory: one row of the batch after the other."""

    def cut(value, row):
        whole = torch.is_tensor(value) and value.ndim and value.shape[0] == x.shape[0]
        return value[row : row + 1] if whole else value

    return torch.cat(
        [
            executor(*(cut(v, row) for v in (x, t, *args)), **{name: cut(v, row) for name, v in kwargs.items()})
            for row in range(x.shape[0])
        ]
    )


def guided_inside(executor, x, t, context, *args, **kwargs):
    """As packs do that bring their own guidance: the model runs twice in a call."""
    positive, negative = executor(x, t, context, *args, **kwargs), executor(x, t, -context, *args, **kwargs)
    return negative + 3 * (positive - negative)


@every_method
@pytest.mark.parametrize("name", ["flux_dev", "wan_t2v"])
@pytest.mark.parametrize("wrapper", [in_single_rows, guided_inside])
def test_a_model_run_in_parts_or_twice_is_computed(method, name, wrapper):
    tiny = shared(name)
    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.DIFFUSION_MODEL, "other pack", wrapper)
    permissive = cached(patcher, method, PERMISSIVE)
    assert torch.equal(run(permissive.patcher, tiny, steps=6, cfg=3.0), run(patcher, tiny, steps=6, cfg=3.0))
    assert permissive.report.reused == 0 and "nothing is reused" in permissive.report.summary().replace("\n", " ")
