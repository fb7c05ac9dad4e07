"""A run that is recorded is the run as it would have been; StepCache on all kinds of models."""

import comfy.model_base
import comfy.samplers
import numpy as np
import pytest
import torch
from comfy.model_base import ModelType

from stepcache.cache_core.forecasting import Forecaster, ForecastPlan
from stepcache.cache_core.method import Plan
from stepcache.cache_core.methods import stepcache
from stepcache.cache_core.methods.calibrating import computing_all
from stepcache.cache_core.recording import Recorder
from stepcache.model_patches.calibration import general_recording
from stepcache.model_patches.install import apply_cache

from ..caching import cached_by, relative
from ..odd_models import OutOfOrder
from ..sampling import run
from ..tiny_models import TinyModel, build, build_unet, drawer, shared
from .test_fallback import odd
from .test_samplers import watch_reads

STEPS = 12
NAMES = ["flux_dev", "wan_t2v", "ltx_av", "ace1", "stable_audio1", "cosmos1", "hunyuan3d_21", "sd3"]
"""Image, video, several latents packed in one, audio, 3-D."""


def recorded(tiny, settings, patcher=None):
    """The result of a recorded run, its recording and its report."""
    recorders, reports = [], []

    def at_start(facts):
        recorders.append(Recorder(facts["sigmas"], facts["flow"]))
        return Plan(computing_all("recorded"), {}, recorder=recorders[-1])

    model = apply_cache(patcher or tiny.patcher, computing_all(""), reports.append, at_start=at_start)
    result = run(model, tiny, **settings)
    return result, recorders[-1].recording(), reports[-1]


def planned(recording, computed=STEPS // 2, guard=0.0, **kind):
    forecaster = Forecaster(recording)
    return stepcache(ForecastPlan(forecaster, forecaster.plan(computed)), guard, **kind)


def unet():
    text = [[drawer(seed)(1, 7, 32), {"pooled_output": None}] for seed in (11, 12)]
    return TinyModel("unet", build_unet(), torch.zeros(1, 4, 8, 8), [text[0]], [text[1]])


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run_is_the_run_and_a_planned_one_is_near_it(name):
    tiny = shared(name)
    settings = dict(steps=STEPS, cfg=3.0, batch=1 if tiny.latent.is_nested else 2)
    plain = run(tiny.patcher, tiny, **settings)
    result, recording, report = recorded(tiny, settings)
    assert torch.equal(result, plain) and report.reused == 0
    assert recording.steps == STEPS and np.diag(recording.products).min() > 0
    model = cached_by(tiny.patcher, planned(recording))
    result = run(model.patcher, tiny, **settings)
    assert model.report.reused == STEPS // 2 and result.isfinite().all()
    held = cached_by(tiny.patcher, stepcache(ForecastPlan(Forecaster(recording), tuple(range(STEPS // 2)))))
    assert relative(result, plain) < relative(run(held.patcher, tiny, **settings), plain)


@pytest.mark.parametrize(
    "settings",
    [
        dict(sampler="heun"),
        dict(sampler="dpmpp_2m", denoise=0.6),
        dict(sampler="euler_ancestral"),
        dict(scheduler="karras"),
    ],
    ids=lambda settings: "-".join(settings.values() if "denoise" not in settings else ["denoise"]),
)
def test_other_samplers_and_schedules_are_recorded(settings):
    tiny = shared("flux_dev")
    settings = dict(steps=STEPS, cfg=3.0) | settings
    plain = run(tiny.patcher, tiny, **settings)
    result, recording, _ = recorded(tiny, settings)
    assert torch.equal(result, plain) and recording.steps == STEPS


@pytest.mark.parametrize("kind", [ModelType.EPS, ModelType.V_PREDICTION])
def test_a_unet_is_recorded_and_planned(kind):
    tiny = unet()
    tiny.patcher.model.model_sampling = comfy.model_base.model_sampling(tiny.patcher.model.model_config, kind)
    settings = dict(steps=STEPS, cfg=3.0, scheduler="karras")
    plain = run(tiny.patcher, tiny, **settings)
    result, recording, _ = recorded(tiny, settings)
    assert torch.equal(result, plain) and not recording.flow and recording.times.max() < 1
    model = cached_by(tiny.patcher, planned(recording))
    result = run(model.patcher, tiny, **settings)
    assert model.report.reused == STEPS // 2 and relative(result, plain) < 0.5


@pytest.mark.parametrize("kind", [ModelType.EPS, ModelType.V_PREDICTION, ModelType.EDM, ModelType.FLOW])
def test_a_model_that_is_in_no_table_is_recorded_and_planned(kind):
    tiny = odd(OutOfOrder)
    tiny.patcher.model.model_sampling = comfy.model_base.model_sampling(tiny.patcher.model.model_config, kind)
    result, recording, _ = recorded(tiny, dict(steps=STEPS))
    assert torch.equal(result, run(tiny.patcher, tiny, steps=STEPS)) and recording.flow == (kind is ModelType.FLOW)
    model = cached_by(tiny.patcher, planned(recording))
    assert run(model.patcher, tiny, steps=STEPS).isfinite().all() and model.report.reused == STEPS // 2


def test_recording_reads_nothing_before_the_end():
    tiny = shared("sd3")
    with watch_reads() as read:
        _, _, report = recorded(tiny, dict(steps=8, cfg=3.0))
    assert report.device_reads == 0 and read == []


def test_a_run_that_reuses_nothing_and_is_not_recorded_reads_nothing():
    """Not even where sigma is not known from counting."""
    tiny = shared("sd3")
    model = cached_by(tiny.patcher, computing_all("no use"))
    with watch_reads() as read:
        run(model.patcher, tiny, steps=4, sampler="dpmpp_2s_ancestral")
    assert model.report.device_reads == 0 and read == [] and model.report.messages == ["no use"]


def test_a_run_that_stops_early_gives_no_recording():
    tiny, recorders = shared("flux_dev"), []

    def at_start(facts):
        recorders.append(Recorder(facts["sigmas"], facts["flow"]))
        return Plan(computing_all("recorded"), {}, recorder=recorders[-1])

    def stop(step, *_):
        if step == 5:
            raise InterruptedError

    model = apply_cache(tiny.patcher, computing_all(""), at_start=at_start)
    with pytest.raises(InterruptedError):
        run(model, tiny, STEPS, callback=stop)
    assert recorders[-1].recording() is None


# -- where recordings come from another model -----------------------------------------------------------------------------


def test_the_guard_reads_once_a_computed_step_and_adds_nothing_to_a_run_like_the_recording():
    tiny = shared("flux_dev")
    _, recording, _ = recorded(tiny, dict(steps=STEPS, cfg=3.0, seed=1))
    for guard, reads in ((3.0, True), (0.0, False)):
        model = cached_by(tiny.patcher, planned(recording, guard=guard))
        run(model.patcher, tiny, STEPS, cfg=3.0, seed=2)
        assert model.report.computed == STEPS // 2
        assert model.report.device_reads <= (model.report.computed if reads else 0)
        assert bool(model.report.device_reads) == reads


def test_the_guard_adds_steps_where_a_strong_lora_was_switched_on_and_says_so():
    """The model hardly looks at the time, and the LoRA makes it."""
    tiny = build("flux_dev")
    layer = "diffusion_model.time_in.in_layer.weight"
    weight = tiny.patcher.model.diffusion_model.time_in.in_layer.weight
    with torch.no_grad():
        weight.mul_(0.02)
    settings = dict(steps=STEPS, cfg=3.0)
    _, recording, _ = recorded(tiny, settings)
    patched = tiny.patcher.clone()
    assert patched.add_patches({layer: ("diff", (drawer(5)(*weight.shape),))}, 0.3)
    plain = run(patched, tiny, **settings)
    results = {}
    for guard in (0.0, 3.0):
        model = cached_by(patched, planned(recording, computed=4, guard=guard))
        results[guard] = relative(run(model.patcher, tiny, **settings), plain)
        told = [each.reason for each in model.report.trace if "one more since" in each.reason]
        assert (model.report.computed > 4) == bool(told) == bool(guard)
    assert results[3.0] < 0.6 * results[0.0]


def test_a_sampler_that_looks_into_guidance_gets_forecasts_of_each_branch():
    tiny = shared("sd3")
    settings = dict(steps=STEPS, cfg=2.0, sampler="euler_cfg_pp")
    plain = run(tiny.patcher, tiny, **settings)
    result, recording, _ = recorded(tiny, settings)
    assert torch.equal(result, plain)
    model = cached_by(tiny.patcher, planned(recording, guard=3.0, per_branch=True))
    result = run(model.patcher, tiny, **settings)
    assert model.report.reused == STEPS // 2 and model.report.messages == [] and relative(result, plain) < 0.5
    whole = cached_by(tiny.patcher, planned(recording))
    run(whole.patcher, tiny, **settings)
    assert whole.report.reused == 0 and "guidance" in whole.report.messages[0]


@pytest.mark.parametrize("flow", [True, False])
def test_the_general_recording_serves_every_schedule(flow):
    recording = general_recording(flow)
    for steps in (1, 2, 10, 28, 50, 200):
        sigmas = np.append(np.linspace(1, 0.02, steps) if flow else np.geomspace(14.6, 0.03, steps), 0.0)
        assert recording.covers(sigmas)
        assert len(Forecaster(recording.resampled(sigmas)).plan(2)) == min(steps, 2)
