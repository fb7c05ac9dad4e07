"""What is known of ComfyUI's samplers before they run, against what they do."""

import sys
from contextlib import contextmanager
from pathlib import Path

import comfy.samplers
import pytest
import torch
from comfy.k_diffusion import sampling
from comfy.patcher_extension import WrappersMP
from comfy_extras.nodes_advanced_samplers import SamplerEulerCFGpp
from torch.utils._python_dispatch import TorchDispatchMode

from stepcache.cache_core.schedule import StepClock
from stepcache.model_patches.samplers import ONE_EVALUATION_A_STEP, one_evaluation_a_step

from ..caching import EVERY_METHOD, FORETOLD, PERMISSIVE, cached, normally_cached
from ..sampling import run
from ..tiny_models import TinyModel, build_unet, conditioning, drawer, shared

PARTS = {
    "whole": dict(steps=7),
    "first part": dict(steps=7, last=4),
    "second part": dict(steps=7, start=3),
    "denoise": dict(steps=7, denoise=0.5),
    "one step": dict(steps=1),
    "two steps": dict(steps=2),
    "of one's own": dict(sigmas=[0.9, 0.5, 0.7, 0.2, 0.1]),
}


def unet() -> TinyModel:
    text = [[drawer(seed)(1, 7, 32), {"pooled_output": None}] for seed in (11, 12)]
    return TinyModel("unet", build_unet(), torch.zeros(1, 4, 8, 8), [text[0]], [text[1]])


def evaluated(tiny, sampler, **settings):
    """The sigmas of the schedule as a cache sees it, and those at which the sampler evaluates."""
    schedule, seen = [], []

    def at_run(executor, noise, latent, sampler, sigmas, *args, **kwargs):
        schedule.extend(sigmas.tolist())
        return executor(noise, latent, sampler, sigmas, *args, **kwargs)

    def at_evaluation(executor, x, timestep, *args, **kwargs):
        seen.append(float(timestep.flatten()[0]))
        return executor(x, timestep, *args, **kwargs)

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, "test", at_run)
    patcher.add_wrapper_with_key(WrappersMP.PREDICT_NOISE, "test", at_evaluation)
    run(patcher, tiny, sampler=sampler, cfg=2.0, **settings)
    return schedule, seen


@pytest.mark.parametrize("sampler", comfy.samplers.SAMPLER_NAMES)
def test_the_table_says_what_samplers_do(sampler):
    """For a model of noise prediction and for a flow model; a sampler that keeps to every schedule is in the table."""
    claimed = one_evaluation_a_step(comfy.samplers.sampler_object(sampler))
    for tiny in (unet(), shared("sd3")):
        for settings in PARTS.values() if claimed else [PARTS["whole"]]:
            schedule, seen = evaluated(tiny, sampler, **settings)
            if not claimed and seen != schedule[:-1]:
                return
            clock = StepClock(schedule)
            assert [clock.step(sigma) for sigma in seen] == [clock.step(sigma) for sigma in schedule[:-1]]
    assert claimed


def test_every_name_of_the_table_is_met():
    functions = {comfy.samplers.sampler_object(name).sampler_function.__name__ for name in comfy.samplers.SAMPLER_NAMES}
    assert functions >= ONE_EVALUATION_A_STEP


def other_euler():
    def sample_euler(model, x, sigmas, **options):
        return sampling.sample_heun(model, x, sigmas, **options)

    return sample_euler


def test_only_comfyuis_own_functions_are_known(monkeypatch):
    mine = other_euler()
    assert not one_evaluation_a_step(comfy.samplers.KSAMPLER(mine))
    assert not one_evaluation_a_step(comfy.samplers.ksampler("euler", {"s_churn": 0.1}))
    assert one_evaluation_a_step(comfy.samplers.ksampler("euler", {"s_churn": 0.0, "s_noise": 1.1}))
    assert not one_evaluation_a_step(object())
    monkeypatch.setattr(sampling, "sample_euler", mine)
    assert not one_evaluation_a_step(comfy.samplers.sampler_object("euler"))


# -- what it is for: sigma is not read ------------------------------------------------------------------------------------

RUNS = {
    "whole": dict(steps=8),
    "first part": dict(steps=12, last=8),
    "second part": dict(steps=16, start=8),
    "denoise": dict(steps=8, denoise=0.5),
    "batch": dict(steps=8, batch=2),
    "inpainting": dict(steps=8, mask=torch.tensor([0.0, 1.0]).repeat_interleave(4).expand(1, 1, 8, 8)),
    "multistep": dict(steps=8, sampler="dpmpp_2m"),
    "equal sigmas": dict(sigmas=[1.0, 0.9, 0.7, 0.7, 0.5, 0.3, 0.2, 0.1, 0.0]),
}


def perturbed(patcher):
    """Calls the positive conditioning once more in every evaluation, as guidance by perturbation does."""

    def again(args):
        options = args["model_options"]
        (other,) = comfy.samplers.calc_cond_batch(args["model"], [args["cond"]], args["input"], args["sigma"], options)
        return args["denoised"] + 0.5 * (args["cond_denoised"] - other)

    patcher = patcher.clone()
    patcher.set_model_sampler_post_cfg_function(again)
    return patcher


@contextmanager
def sigma_is_read():
    """As if no sampler were known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepcache.model_patches.install.one_evaluation_a_step", lambda sampler: False)
        yield


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("method", EVERY_METHOD)
def test_planned_methods_read_nothing_and_others_once_an_evaluation(method, settings):
    """I-26, and that nothing else changes."""
    tiny = shared("flux_dev")
    model = normally_cached(tiny, method)
    out = run(model.patcher, tiny, cfg=3.0, **settings)
    report = model.report
    assert report.evaluations == 8 and report.reused > 0
    assert report.device_reads == (0 if method in FORETOLD else 8)
    with sigma_is_read():
        assert torch.equal(run(model.patcher, tiny, cfg=3.0, **settings), out)
    assert model.report.device_reads == 8
    facts = [(e.sigma, e.position, e.action, e.reason, e.signal) for e in report.trace]
    assert [(e.sigma, e.position, e.action, e.reason, e.signal) for e in model.report.trace] == facts


@pytest.mark.parametrize("settings", [dict(steps=8), dict(steps=8, positive=conditioning("sd3", 11, tokens=9))])
@pytest.mark.parametrize("method", ["taylorseer", "meancache", "teacache", "easycache"])
def test_more_model_calls_need_no_more_reads(method, settings):
    tiny = shared("sd3")
    model = cached(perturbed(tiny.patcher), method, PERMISSIVE)
    run(model.patcher, tiny, cfg=3.0, **settings)
    assert (model.report.evaluations, model.report.device_reads) == (8, 0 if method in FORETOLD else 8)
    assert model.report.reused > 0


@pytest.mark.parametrize("method", FORETOLD)
def test_the_pack_takes_no_value_out_of_a_tensor_besides(method):
    """Also not by the way, as in a condition on one. Spectrum's small system is on the CPU."""
    tiny = shared("sd3")
    model = normally_cached(tiny, method)
    with watch_reads() as read:
        run(model.patcher, tiny, steps=8, cfg=3.0)
    assert {file.name for file in read} == ({"chebyshev.py"} if method == "spectrum" else set())
    assert model.report.reused > 0


@contextmanager
def watch_reads():
    """The files of the pack in which a value is taken out of a tensor."""
    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._local_scalar_dense.default:
                frame = sys._getframe(1)
                while frame and "torch" in frame.f_code.co_filename:
                    frame = frame.f_back
                if frame and frame.f_globals["__name__"].startswith("stepcache."):
                    found.append(Path(frame.f_code.co_filename))
            return function(*args, **(kwargs or {}))

    with Watch():
        yield found


@pytest.mark.parametrize("kind", [WrappersMP.OUTER_SAMPLE, WrappersMP.SAMPLER_SAMPLE, WrappersMP.PREDICT_NOISE])
def test_nodes_in_between_make_it_read(kind):
    tiny = shared("sd3")
    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(kind, "other", lambda executor, *args, **kwargs: executor(*args, **kwargs))
    model = normally_cached(tiny, "taylorseer")
    other = cached(patcher, "taylorseer", 0.1)
    assert torch.equal(run(other.patcher, tiny, steps=8), run(model.patcher, tiny, steps=8))
    assert (other.report.device_reads, model.report.device_reads) == (8, 0)


@pytest.mark.parametrize("sampler", ["heun", "dpm_2", "er_sde", "sa_solver_pece"])
def test_other_samplers_are_read(sampler):
    tiny = shared("sd3")
    model = normally_cached(tiny, "taylorseer")
    run(model.patcher, tiny, steps=8, sampler=sampler)
    assert model.report.device_reads == model.report.evaluations


# -- samplers that look into guidance -------------------------------------------------------------------------------------

CFG_PP = [name for name in comfy.samplers.SAMPLER_NAMES if name.endswith("_cfg_pp")]


@pytest.mark.parametrize("sampler", CFG_PP)
def test_a_sampler_that_looks_into_guidance_gets_no_old_unconditional(sampler):
    """CFG++ reads the unconditional prediction of each evaluation, which a reused guided prediction does not have."""
    tiny = shared("sd3")
    settings = dict(steps=8, cfg=2.0, sampler=sampler)
    model = cached(tiny.patcher, "meancache", PERMISSIVE)
    assert torch.equal(run(model.patcher, tiny, **settings), run(tiny.patcher, tiny, **settings))
    report = model.report
    assert report.reused == 0 and "computes" not in report.settings
    (message,) = report.messages
    assert message.startswith("this sampler looks at what guidance is made of")
    assert report.evaluations >= 8 and all(message.startswith(evaluation.reason) for evaluation in report.trace)


@pytest.mark.parametrize("version", ["regular", "alternative"])
def test_a_sampler_that_a_node_makes_gets_none_either_also_without_guidance(version):
    """ComfyUI's SamplerEulerCFG++; the second one is a function of the node's own."""
    tiny = shared("sd3")
    sampler = SamplerEulerCFGpp.execute(version).result[0]
    for cfg in (1.0, 2.0):
        model = cached(tiny.patcher, "meancache", PERMISSIVE)
        outputs = [run(patcher, tiny, steps=8, cfg=cfg, sampler=sampler) for patcher in (model.patcher, tiny.patcher)]
        assert torch.equal(*outputs) and model.report.reused == 0 and len(model.report.messages) == 1


@pytest.mark.parametrize("sampler", [name.removesuffix("_cfg_pp") for name in CFG_PP])
def test_the_same_samplers_without_cfg_pp_get_reused_predictions(sampler):
    tiny = shared("sd3")
    model = cached(tiny.patcher, "meancache", PERMISSIVE)
    assert torch.isfinite(run(model.patcher, tiny, steps=8, cfg=2.0, sampler=sampler)).all()
    assert model.report.reused > 0 and model.report.messages == []


@pytest.mark.parametrize("method", ["first_block", "easycache", "taylorseer"])
@pytest.mark.parametrize("sampler", CFG_PP)
def test_caches_below_guidance_serve_such_a_sampler(method, sampler):
    """Guidance joins reused results as it joins computed ones."""
    tiny = shared("sd3")
    model = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(model.patcher, tiny, steps=8, cfg=2.0, sampler=sampler)).all()
    assert model.report.reused > 0 and not any("guidance" in message for message in model.report.messages)


def test_functions_of_other_nodes_do_not_count_as_the_samplers():
    tiny = shared("sd3")
    model = cached(perturbed(tiny.patcher), "meancache", PERMISSIVE)
    run(model.patcher, tiny, steps=8, cfg=2.0)
    assert model.report.reused > 0 and model.report.messages == []
