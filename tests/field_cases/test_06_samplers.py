"""CASE-06: samplers with several model calls in a step, or with calls between the steps.

Users saw step counters run past the end with heun, division by zero in the statistics, and blurred pictures: the second call
of a step had been answered with the result of the first.
"""

from itertools import pairwise

import comfy.patcher_extension
import pytest
import torch

from ..caching import PERMISSIVE, cached, normally_cached
from ..sampling import MIDDLE, count_block_runs, run

SAMPLERS = [
    "heun",
    "heunpp2",
    "dpm_2",
    "dpmpp_2s_ancestral",
    "res_multistep",
    "seeds_3",
    "sa_solver_pece",
    "dpm_adaptive",
]
TWICE_AT_A_SIGMA = ["heun", "heunpp2", "sa_solver_pece"]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("setting", ["normal", "permissive"])
def test_counts_are_right(tiny, method, sampler, setting):
    model = normally_cached(tiny, method) if setting == "normal" else cached(tiny.patcher, method, PERMISSIVE)
    with count_block_runs(tiny.patcher, MIDDLE) as runs:
        out = run(model.patcher, tiny, steps=8, sampler=sampler)
    report = model.report
    assert torch.isfinite(out).all()
    assert report.evaluations == report.computed + report.reused == len(report.trace) >= 8
    assert report.computed == runs.count >= 2
    assert report.steps == 8


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_two_steps(tiny, method, sampler):
    model = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(model.patcher, tiny, steps=2, sampler=sampler)).all()
    assert model.report.computed >= 2
    assert model.report.summary() and model.report.log_line() and model.report.as_dict()["steps"] == 2


@pytest.mark.parametrize("sampler", TWICE_AT_A_SIGMA)
def test_a_second_call_at_a_sigma_gets_its_own_answer(tiny, method, sampler):
    calls = {}

    def note(executor, x, timestep, *args):
        x = x.clone()
        denoised = executor(x, timestep, *args)
        calls.setdefault(float(timestep.flatten()[0]), []).append((x, denoised.clone()))
        return denoised

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREDICT_NOISE, "note", note)
    model = cached(patcher, method, PERMISSIVE)
    run(model.patcher, tiny, steps=8, sampler=sampler)
    pairs = [pair for at_one_sigma in calls.values() for pair in pairwise(at_one_sigma)]
    assert len(pairs) >= 6 and model.report.reused > 0
    for (x, denoised), (other_x, other_denoised) in pairs:
        assert not torch.equal(x, other_x)
        same_point = torch.allclose(x, other_x, atol=1e-5)  # but for rounding: both calls had one answer and led here
        assert same_point or not torch.equal(denoised, other_denoised)
