"""CASE-10: sampling split over several samplers, start/end windows, degenerate schedules.

Users saw the second sampler begin with the leftovers of the first, windows counted anew in each stage, and division by zero
with one step or with equal sigmas.
"""

import comfy.samplers
import pytest
import torch

from ..caching import PERMISSIVE, cached, normally_cached
from ..sampling import run
from ..tiny_models import build, drawer

WINDOW = dict(start_percent=0.2, end_percent=0.8)


@pytest.mark.parametrize("same_model", [True, False])
def test_the_second_stage_starts_clean(tiny, method, same_model):
    first = normally_cached(tiny, method)
    second = first if same_model else normally_cached(tiny, method)
    half = run(first.patcher, tiny, steps=10, last=5)
    out = run(second.patcher, tiny, **stage_2(half))
    fresh = build(tiny.name)
    assert torch.equal(out, run(normally_cached(fresh, method).patcher, fresh, **stage_2(half)))


def test_a_guider_that_samples_twice(tiny, method):
    """The conditionings keep their ids in the second run; still nothing is left of the first."""
    model = normally_cached(tiny, method)
    guider = comfy.samplers.CFGGuider(model.patcher)
    guider.set_conds(tiny.positive, tiny.negative)
    options = guider.model_options
    sigmas = comfy.samplers.calculate_sigmas(tiny.patcher.get_model_object("model_sampling"), "simple", 10)
    euler = comfy.samplers.sampler_object("euler")
    noise = drawer(3)(*tiny.latent.shape)
    first, second = (guider.sample(noise, tiny.latent, euler, sigmas, disable_pbar=True, seed=1) for _ in range(2))
    assert torch.equal(first, second)
    assert len(model.reports) == 2 and model.report.reused > 0
    assert guider.model_options is options and "stepcache" not in options["transformer_options"]


@pytest.mark.parametrize("part", [dict(start=0, last=1), dict(start=3, last=4)])
def test_a_part_of_one_step(tiny, method, part):
    model = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.equal(run(model.patcher, tiny, steps=4, **part), run(tiny.patcher, tiny, steps=4, **part))
    assert (model.report.evaluations, model.report.computed) == (1, 1)


def test_one_step(tiny, method):
    model = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.equal(run(model.patcher, tiny, steps=1), run(tiny.patcher, tiny, steps=1))


@pytest.mark.parametrize("sigmas", [[0.5, 0.5, 0.25, 0.0], [0.5, 0.25, 0.25, 0.0]])
@pytest.mark.parametrize("sampler", ["euler", "heun", "dpmpp_2m"])
def test_equal_sigmas(tiny, method, sigmas, sampler):
    model = cached(tiny.patcher, method, PERMISSIVE)
    out = run(model.patcher, tiny, sigmas=sigmas, sampler=sampler)
    if sampler == "euler":  # the others divide by the width of a step, with or without a cache
        assert torch.isfinite(out).all()
    assert model.report.trace[0].action == model.report.trace[-1].action == "computed"


def test_a_window_is_of_the_whole_schedule(tiny, method):
    model = cached(tiny.patcher, method, PERMISSIVE, **WINDOW)
    half = run(model.patcher, tiny, steps=20, last=10)
    run(model.patcher, tiny, **stage_2(half, steps=20))
    run(model.patcher, tiny, steps=10, denoise=0.5)
    percent_to_sigma = tiny.patcher.get_model_object("model_sampling").percent_to_sigma
    start, end = percent_to_sigma(0.2), percent_to_sigma(0.8)
    for report in model.reports:
        reused = [evaluation.sigma for evaluation in report.trace if evaluation.action == "reused"]
        assert reused and all(end <= sigma <= start for sigma in reused)
    outside = [e for report in model.reports for e in report.trace if not end <= e.sigma <= start]
    assert outside and all(evaluation.action == "computed" for evaluation in outside)


def stage_2(latent, steps=10):
    return dict(steps=steps, start=steps // 2, latent=latent, no_noise=True)
