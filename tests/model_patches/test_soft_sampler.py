"""SoftCache Sampler with real samplers' nodes around it: exactness, what it visits, and where it stops."""

from dataclasses import replace
from itertools import pairwise

import comfy.hooks
import comfy.model_sampling
import comfy.patcher_extension
import comfy.samplers
import pytest
import torch
from comfy_extras.nodes_context_windows import ContextWindowsManualNode
from comfy_extras.nodes_custom_sampler import DualModelGuider
from comfy_extras.nodes_differential_diffusion import DifferentialDiffusion

from stepcache.cache_core.stepping import StepRule
from stepcache.model_patches.branches import changes
from stepcache.model_patches.install import ConflictingCache
from stepcache.model_patches.soft_sampler import SoftCache, shift_of

from ..caching import PERMISSIVE, cached
from ..control import with_control
from ..recipes import RECIPES
from ..sampling import MIDDLE, count_block_runs, run
from ..tiny_models import build, build_unet, conditioning, drawer, shared
from .test_two_experts import ExpertGuider

EAGER = StepRule(3.0, early_guard=0.1, change_guard=100.0)
"""Random weights change more from step to step than trained ones."""

STEPS = 16
WrappersMP = comfy.patcher_extension.WrappersMP


class Sampled:
    """A run with the sampler: its latent, its report, and the progress as the callback heard it."""

    def __init__(self, patcher, tiny, rule=EAGER, extrapolation=1.0, steps=STEPS, guider=None, **settings):
        reports, self.progress = [], []
        sampler = SoftCache(rule, extrapolation, listener=reports.append).sampler()

        def callback(step, x0, x, total):
            self.progress.append((step, total))

        if guider:
            sigmas = sigmas_of(patcher, steps)
            noise = drawer(3)(*tiny.latent.shape)
            self.out = guider.sample(noise, tiny.latent, sampler, sigmas, callback=callback, disable_pbar=True, seed=1)
        else:
            self.out = run(patcher, tiny, steps=steps, sampler=sampler, callback=callback, **settings)
        self.report = reports[-1]

    @property
    def actions(self):
        return "".join(evaluation.action[0] for evaluation in self.report.trace)

    @property
    def longest(self):
        return max(evaluation.stride for evaluation in self.report.trace)


def sigmas_of(patcher, steps=STEPS):
    return comfy.samplers.calculate_sigmas(patcher.get_model_object("model_sampling"), "simple", steps)


def assert_sound(sampled, steps=STEPS, last=0.0):
    """I-20."""
    report = sampled.report
    assert torch.isfinite(sampled.out).all()
    assert report.sigmas[-1] == last and all(high > low for high, low in pairwise(report.sigmas))
    assert report.evaluations + report.steps_saved == steps and report.finished
    assert not any(evaluation.computed_calls and evaluation.reused_calls for evaluation in report.trace)
    shown = [step + 1 for step, _ in sampled.progress]
    assert shown[0] == 1 and shown[-1] == steps and shown == sorted(shown) and len(shown) == report.evaluations
    assert {total for _, total in sampled.progress} == {steps}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_model_is_sampled_or_refused(name):
    tiny = shared(name)
    if isinstance(tiny.patcher.get_model_object("model_sampling"), comfy.model_sampling.CONST):
        assert_sound(Sampled(tiny.patcher, tiny, cfg=3.0))
    else:
        with pytest.raises(ValueError, match="flow models"):
            Sampled(tiny.patcher, tiny)


MODELS = ("flux_dev", "wan_t2v", "qwen_image", "hunyuan_video")


@pytest.mark.parametrize("name", MODELS)
def test_without_a_threshold_it_is_euler_and_with_one_it_steps_further(name):
    tiny = shared(name)
    plain = run(tiny.patcher, tiny, steps=STEPS, cfg=3.0)
    exact = Sampled(tiny.patcher, tiny, StepRule(0.0), cfg=3.0)
    assert torch.equal(exact.out, plain) and exact.actions == "c" * STEPS
    assert exact.report.sigmas == sigmas_of(tiny.patcher).tolist()
    eager = Sampled(tiny.patcher, tiny, cfg=3.0)
    assert_sound(eager)
    assert eager.report.reused >= 2 and eager.report.steps_saved >= 2 and eager.longest > 1.5
    assert not torch.equal(eager.out, plain)


def test_a_tiny_threshold_is_euler_to_the_last_bit():
    tiny = shared("flux_dev")
    sampled = Sampled(tiny.patcher, tiny, StepRule(1e-9), cfg=3.0)
    assert torch.equal(sampled.out, run(tiny.patcher, tiny, steps=STEPS, cfg=3.0))


def test_a_stride_of_one_visits_all_nodes():
    tiny = shared("flux_dev")
    sampled = Sampled(tiny.patcher, tiny, replace(EAGER, max_stride=1.0))
    assert sampled.report.sigmas == sigmas_of(tiny.patcher).tolist()
    assert sampled.report.reused > 2 and sampled.report.steps_saved == 0


@pytest.mark.parametrize("tail", ["t", "u"])
def test_the_same_seed_gives_the_same_result(tail):
    """I-5, I-7: also after another run in between."""
    tiny = shared("flux_dev")
    rule = replace(EAGER, tail=tail)
    first = Sampled(tiny.patcher, tiny, rule, cfg=3.0)
    Sampled(tiny.patcher, tiny, rule, cfg=1.0, seed=7, steps=9)
    again = Sampled(tiny.patcher, tiny, rule, cfg=3.0)
    assert torch.equal(first.out, again.out) and first.report.sigmas == again.report.sigmas


def test_the_model_is_left_as_it_was():
    """I-19."""
    tiny = shared("flux_dev")
    before, plain = str(tiny.patcher.model_options), run(tiny.patcher, tiny, steps=4)
    Sampled(tiny.patcher, tiny)
    assert str(tiny.patcher.model_options) == before
    assert torch.equal(run(tiny.patcher, tiny, steps=4), plain)


# -- guidance -------------------------------------------------------------------------------------------------------------


def seen_sigmas(patcher):
    """A clone that notes (conditionings, sigma, the schedule it is told) of each model call."""
    seen = []

    def note(executor, x, t, c_concat, c_crossattn, control, options, **kwargs):
        seen.append((tuple(options["cond_or_uncond"]), float(t[0]), options["sample_sigmas"].tolist()))
        return executor(x, t, c_concat, c_crossattn, control, options, **kwargs)

    patcher = patcher.clone()
    patcher.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "note", note)
    return patcher, seen


@pytest.mark.parametrize("tokens", [7, 50], ids=["one call", "two calls"])
def test_both_branches_see_the_same_sigmas(tokens):
    tiny = shared("flux_dev")
    patcher, seen = seen_sigmas(tiny.patcher)
    sampled = Sampled(patcher, tiny, cfg=4.0, negative=conditioning(tiny.name, 12, tokens=tokens))
    assert_sound(sampled)
    assert sampled.report.reused >= 2
    of_branch = [sorted({sigma for conds, sigma, _ in seen if branch in conds}, reverse=True) for branch in (0, 1)]
    assert of_branch[0] == of_branch[1] == sampled.report.sigmas[:-1]


def test_separate_calls_decide_as_one_batch_does(monkeypatch):
    """I-16: the branch that changes most decides, whichever is called first."""
    tiny = shared("flux_dev")
    batched = Sampled(tiny.patcher, tiny, cfg=4.0)
    monkeypatch.setattr(tiny.patcher.model, "memory_required", lambda *args, **kwargs: 1e30)
    with count_block_runs(tiny.patcher, MIDDLE) as runs:
        split = Sampled(tiny.patcher, tiny, cfg=4.0)
    assert split.actions == batched.actions and split.report.reused >= 2
    assert split.report.sigmas == pytest.approx(batched.report.sigmas, abs=1e-5)
    assert (split.out - batched.out).abs().max() < 1e-3
    assert runs.count == 2 * split.report.computed


def test_two_models_under_one_guider():
    tiny, other = shared("flux_dev"), build("flux_dev", seed=1)

    def sampled(rule):
        guider = DualModelGuider.execute(tiny.patcher, tiny.positive, 3.0, other.patcher, tiny.negative).result[0]
        return Sampled(tiny.patcher, tiny, rule, guider=guider)

    def plain():
        guider = DualModelGuider.execute(tiny.patcher, tiny.positive, 3.0, other.patcher, tiny.negative).result[0]
        noise, euler = drawer(3)(*tiny.latent.shape), comfy.samplers.sampler_object("euler")
        return guider.sample(noise, tiny.latent, euler, sigmas_of(tiny.patcher), disable_pbar=True, seed=1)

    assert torch.equal(sampled(StepRule(0.0)).out, plain())
    with count_block_runs(tiny.patcher) as of_one, count_block_runs(other.patcher) as of_other:
        eager = sampled(EAGER)
    assert_sound(eager)
    assert of_one.count == of_other.count == eager.report.computed and eager.report.reused >= 2


def test_a_guider_that_changes_its_model_on_the_way():
    """No sampler can foresee that; nothing of the first model goes into the second."""
    high, low = shared("wan22_i2v"), build("wan22_i2v", seed=1)

    def sampled(rule):
        guider = ExpertGuider(high.patcher, low.patcher, change=0.8)
        guider.set_conds(high.positive, high.negative)
        return Sampled(high.patcher, high, rule, guider=guider)

    eager = sampled(EAGER)
    assert_sound(eager)
    first_of_low = next(evaluation for evaluation in eager.report.trace if evaluation.sigma <= 0.8)
    assert first_of_low.reason == "nothing stored for this branch yet" and eager.report.reused >= 2


# -- schedules ------------------------------------------------------------------------------------------------------------


def test_the_realised_schedule_is_told_to_the_model():
    tiny = shared("flux_dev")
    patcher, seen = seen_sigmas(tiny.patcher)
    sampled = Sampled(patcher, tiny)
    realised = sampled.report.sigmas
    for index, (_, sigma, told) in enumerate(seen):
        assert told[: index + 1] == realised[: index + 1] and sigma == told[index]


@pytest.mark.parametrize(("rule", "stays"), [(StepRule(0.0), True), (EAGER, False)], ids=["euler", "eager"])
def test_the_schedule_is_put_on_the_device_only_where_it_moved(rule, stays):
    tiny, seen = shared("flux_dev"), []

    def note(executor, x, t, c_concat, c_crossattn, control, options, **kwargs):
        seen.append(options["sample_sigmas"])
        return executor(x, t, c_concat, c_crossattn, control, options, **kwargs)

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "note", note)
    report = Sampled(patcher, tiny, rule).report
    moved = sum(evaluation.stride != 1 for evaluation in report.trace[:-1])
    assert len({id(schedule) for schedule in seen}) <= 1 + moved and (moved == 0) == stays


@pytest.mark.parametrize("rule", [StepRule(0.0), EAGER], ids=["euler", "eager"])
def test_a_part_of_the_schedule_ends_at_its_last_sigma(rule):
    """Split sampling."""
    tiny = shared("flux_dev")
    part = sigmas_of(tiny.patcher, 20)[4:15]
    sampled = Sampled(tiny.patcher, tiny, rule, sigmas=part, steps=10)
    assert_sound(sampled, 10, float(part[-1]))
    if rule.threshold == 0:
        assert torch.equal(sampled.out, run(tiny.patcher, tiny, sigmas=part))
    else:
        assert sampled.report.steps_saved > 0


def test_no_step_and_one_step():
    tiny = shared("flux_dev")
    sampler = SoftCache(EAGER).sampler()
    for sigmas in ([1.0, 0.0], [1.0]):
        assert torch.equal(
            run(tiny.patcher, tiny, sampler=sampler, sigmas=sigmas), run(tiny.patcher, tiny, sigmas=sigmas)
        )


def test_repeated_sigmas_are_passed_over():
    tiny = shared("flux_dev")
    doubled = torch.tensor([1.0, 0.75, 0.75, 0.5, 0.0, 0.0])
    sampled = Sampled(tiny.patcher, tiny, StepRule(0.0), sigmas=doubled)
    assert torch.equal(sampled.out, run(tiny.patcher, tiny, sigmas=[1.0, 0.75, 0.5, 0.0]))


def test_rising_sigmas_are_refused_with_the_cure():
    tiny = shared("flux_dev")
    with pytest.raises(ValueError, match="another sampler"):
        Sampled(tiny.patcher, tiny, sigmas=torch.tensor([0.1, 0.5, 1.0]))


def test_the_shift_of_models():
    assert shift_of(shared("flux_dev").patcher.get_model_object("model_sampling")) == pytest.approx(3.158193, rel=1e-5)
    sampling = shared("sd3").patcher.get_model_object("model_sampling")
    assert shift_of(sampling) == pytest.approx(sampling.shift, rel=1e-5)


# -- where something changes ----------------------------------------------------------------------------------------------


def landed_at(sampled, percent):
    """Whether a long step ended at a percent of sampling, or just behind it."""
    sigma = float(shared("flux_dev").patcher.get_model_object("model_sampling").percent_to_sigma(percent))
    landings = [evaluation.landing for evaluation in sampled.report.trace]
    return any(0 <= sigma - landing < 1e-6 for landing in landings)


def test_conditioning_that_changes_on_the_way():
    tiny = shared("flux_dev")
    assert not landed_at(Sampled(tiny.patcher, tiny), 0.61)
    parts = conditioning(tiny.name, 11, start_percent=0.0, end_percent=0.61)
    parts += conditioning(tiny.name, 13, start_percent=0.61, end_percent=1.0)
    patcher, seen = seen_sigmas(tiny.patcher)
    sampled = Sampled(patcher, tiny, positive=parts)
    assert_sound(sampled)
    assert landed_at(sampled, 0.61)
    assert {len(conds) for conds, _, _ in seen} == {1}  # never both at once
    change = float(tiny.patcher.get_model_object("model_sampling").percent_to_sigma(0.61))
    assert next(e for e in sampled.report.trace if e.sigma <= change).action == "computed"


def test_control_that_begins_and_ends_on_the_way():
    tiny = shared("flux_dev")
    controlled = with_control(tiny)
    controlled.positive[0][1]["control"].set_cond_hint(torch.zeros(1, 3, 8, 8), 1.0, (0.63, 0.91))
    sampled = Sampled(tiny.patcher, controlled, replace(EAGER, threshold=9.0))
    assert_sound(sampled)
    assert landed_at(sampled, 0.63) and landed_at(sampled, 0.91)


def test_a_lora_whose_strength_changes_on_the_way():
    tiny = build("flux_dev")
    draw, layer = drawer(9), "diffusion_model.single_blocks.2.linear2"
    hooks = comfy.hooks.create_hook_lora(
        {f"{layer}.lora_up.weight": draw(64, 2), f"{layer}.lora_down.weight": draw(2, 192)}, 1.0, 0.0
    )
    keyframes = comfy.hooks.HookKeyframeGroup()
    for strength, start in ((0.0, 0.0), (0.5, 0.65)):
        keyframes.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=1))
    hooks.set_keyframes_on_hooks(keyframes)
    tiny.patcher.register_all_hook_patches(hooks, comfy.hooks.create_target_dict(comfy.hooks.EnumWeightTarget.Model))
    sampled = Sampled(tiny.patcher, tiny, positive=conditioning("flux_dev", 11, hooks=hooks))
    assert_sound(sampled)
    assert landed_at(sampled, 0.65)
    sigma = next(e.landing for e in sampled.report.trace if e.landing < 0.63)
    assert next(e for e in sampled.report.trace if e.sigma == sigma).action == "computed"


def test_the_sigmas_of_changes_are_those_at_which_they_have_happened():
    found = changes({"positive": [{"timestep_start": 0.7, "timestep_end": 0.3}], "negative": None})
    assert sorted(found) == pytest.approx([0.3, 0.7])
    low, high = sorted(found)
    assert low < torch.tensor(0.3) and not high > 0.7 and torch.tensor(high, dtype=torch.float32).item() == high


# -- other nodes ----------------------------------------------------------------------------------------------------------


def test_a_model_that_carries_a_cache_is_refused():
    tiny = shared("flux_dev")
    with pytest.raises(ConflictingCache, match="already carries another StepCache node"):
        Sampled(cached(tiny.patcher, "teacache", PERMISSIVE).patcher, tiny)


def test_a_model_that_is_no_flow_model_is_refused_with_the_cure():
    unet = build_unet()
    tiny = replace(shared("flux_dev"), patcher=unet, latent=torch.zeros(1, 4, 8, 8))
    text = [[torch.zeros(1, 7, 32), {"pooled_output": None}]]
    with pytest.raises(ValueError, match="flow models.*EasyCache with euler"):
        Sampled(unet, tiny, positive=text, negative=text)


def test_inpainting():
    tiny = shared("flux_dev")
    mask = torch.zeros(1, 8, 8)
    mask[..., 4:] = 1
    latent = drawer(4)(*tiny.latent.shape)
    plain = run(tiny.patcher, tiny, steps=STEPS, latent=latent, mask=mask)
    assert torch.equal(Sampled(tiny.patcher, tiny, StepRule(0.0), latent=latent, mask=mask).out, plain)
    eager = Sampled(tiny.patcher, tiny, latent=latent, mask=mask)
    assert_sound(eager)
    assert (eager.out - plain)[..., :3].abs().max() < 1e-5 < (eager.out - plain)[..., 5:].abs().max()
    assert eager.report.steps_saved >= 2


def test_a_mask_that_changes_with_every_step_keeps_the_native_length():
    tiny = shared("flux_dev")
    patcher = DifferentialDiffusion.execute(tiny.patcher).result[0]
    mask = torch.linspace(0, 1, 8).repeat(1, 8, 1)
    sampled = Sampled(patcher, tiny, latent=drawer(4)(*tiny.latent.shape), mask=mask)
    assert_sound(sampled)
    assert sampled.longest == 1.0 and sampled.report.reused > 2
    assert any("mask changes" in message for message in sampled.report.messages)


def test_a_batch():
    tiny = shared("flux_dev")
    plain = run(tiny.patcher, tiny, steps=STEPS, batch=3)
    assert torch.equal(Sampled(tiny.patcher, tiny, StepRule(0.0), batch=3).out, plain)
    assert_sound(Sampled(tiny.patcher, tiny, batch=3))


@pytest.mark.parametrize("schedule", ["standard_static", "standard_uniform"])
def test_context_windows(schedule):
    tiny = shared("wan_t2v")
    windowed = ContextWindowsManualNode.execute(
        tiny.patcher, context_length=4, context_overlap=2, context_schedule=schedule, context_stride=1, closed_loop=False,
        fuse_method="pyramid", dim=2, freenoise=False,
    ).result[0]  # fmt: skip
    latent = torch.zeros(1, 16, 9, 8, 8)
    exact = Sampled(windowed, tiny, StepRule(0.0), latent=latent)
    assert torch.equal(exact.out, run(windowed, tiny, steps=STEPS, latent=latent))
    eager = Sampled(windowed, tiny, latent=latent)
    assert_sound(eager)
    assert schedule == "standard_uniform" or eager.report.reused >= 2


def test_an_interrupt_passes_and_leaves_nothing():
    """I-6."""
    tiny = shared("flux_dev")
    whole = Sampled(tiny.patcher, tiny)

    def stop(step, x0, x, total):
        if step >= 5:
            raise InterruptedError

    reports = []
    sampler = SoftCache(EAGER, listener=reports.append).sampler()
    with pytest.raises(InterruptedError):
        run(tiny.patcher, tiny, steps=STEPS, sampler=sampler, callback=stop)
    assert reports[-1].finished and reports[-1].steps_saved == 0
    assert torch.equal(Sampled(tiny.patcher, tiny).out, whole.out)


def test_a_model_whose_grid_is_not_known_is_judged_unfiltered_and_says_so():
    tiny = shared("stable_audio3")
    sampled = Sampled(tiny.patcher, tiny)
    assert_sound(sampled)
    assert any("unfiltered" in message for message in sampled.report.messages)


def test_the_console_shows_the_native_steps(capsys):
    tiny = shared("flux_dev")
    noise = drawer(3)(*tiny.latent.shape)
    guider = comfy.samplers.CFGGuider(tiny.patcher)
    guider.set_conds(tiny.positive, tiny.negative)
    guider.sample(noise, tiny.latent, SoftCache(EAGER).sampler(), sigmas_of(tiny.patcher), disable_pbar=False, seed=1)
    shown = capsys.readouterr().err
    assert f"{STEPS}/{STEPS}" in shown and "100%" in shown
