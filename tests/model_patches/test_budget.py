"""A budget is kept on every architecture, and whatever sampler, window or condition there is."""

from __future__ import annotations

import pytest
import torch

from ..caching import cached, first_computed
from ..control import with_control
from ..sampling import run
from ..tiny_models import RECIPES, build, conditioning, shared

EVERY = [name for name in RECIPES if name != "hidream_o1_edit"]  # as in test_contract.py
MISSED = "The budget was not kept: "
METHODS = ("teacache", "first_block", "dbcache", "seacache", "easycache")


def lands(report, speedup: float) -> bool:
    asked = report.evaluations / speedup
    return abs(report.computed - asked) <= max(1.0, 0.05 * asked)


def at_speedup(tiny, method: str, speedup: float, **limits):
    return cached(tiny.patcher, method, 0.1, speedup=speedup, **limits)


@pytest.mark.parametrize(("name", "method"), [(name, METHODS[i % 2]) for i, name in enumerate(EVERY)])
def test_every_architecture_lands(name, method):
    tiny = shared(name)
    some = at_speedup(tiny, method, 2.0)
    assert torch.isfinite(run(some.patcher, tiny, steps=10)).all()
    assert (some.report.evaluations, some.report.computed, some.report.messages) == (10, 5, [])


@pytest.mark.parametrize("steps", [4, 10, 28, 100])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_lands_at_any_number_of_steps(method, steps):
    tiny = shared("flux_dev")
    some = at_speedup(tiny, method, 2.5)
    run(some.patcher, tiny, steps=steps, cfg=4.0)
    least = first_computed(method) + 1
    assert some.report.computed == pytest.approx(max(steps / 2.5, least), abs=0.5)
    if steps < 10:
        return
    judged = [each for each in some.report.trace if each.threshold is not None]
    assert judged and all(f"budget {steps / 2.5:g}, " in each.reason for each in judged)
    assert " to " in some.report.settings["threshold"]


SAMPLERS = ["heun", "dpm_2", "dpm_2_ancestral", "dpmpp_sde", "dpmpp_2s_ancestral", "dpmpp_2m", "uni_pc",
            "dpm_fast", "seeds_2", "seeds_3", "res_multistep"]  # fmt: skip


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_with_several_evaluations_a_step_land(sampler):
    tiny = shared("sd3")
    some = at_speedup(tiny, "first_block", 2.0)
    run(some.patcher, tiny, steps=20, sampler=sampler)
    assert lands(some.report, 2.0) and some.report.messages == []


@pytest.mark.parametrize(("sampler", "speedup"), [("heunpp2", 2.0), ("heunpp2", 3.0), ("dpm_adaptive", 2.0)])
def test_a_sampler_that_goes_back_lands_or_says_so(sampler, speedup):
    """Every time that sigma rises one more is computed, which no budget foresees."""
    tiny = shared("sd3")
    some = at_speedup(tiny, "first_block", speedup)
    run(some.patcher, tiny, steps=10, sampler=sampler)
    said = any(MISSED in message for message in some.report.messages)
    assert lands(some.report, speedup) is not said
    assert some.report.computed < 0.6 * some.report.evaluations


PARTS = [dict(denoise=0.5), dict(start=5), dict(last=15), dict(start=4, last=16), dict(scheduler="karras")]


@pytest.mark.parametrize("sampler", ["euler", "heun", "dpm_2"])
@pytest.mark.parametrize("settings", PARTS, ids=str)
def test_a_part_of_the_schedule_lands_on_its_part(settings, sampler):
    tiny = shared("flux_dev")
    some = at_speedup(tiny, "teacache", 2.0)
    run(some.patcher, tiny, steps=20, sampler=sampler, **settings)
    assert lands(some.report, 2.0) and some.report.messages == []


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_of_pictures_lands(method):
    tiny = shared("flux_dev")
    some = at_speedup(tiny, method, 2.0)
    run(some.patcher, tiny, steps=16, batch=3, cfg=4.0)
    assert some.report.computed == 8 and some.report.messages == []


@pytest.mark.parametrize(
    "limits", [dict(start_percent=0.3), dict(end_percent=0.7), dict(max_consecutive=1), dict(warmup=5)]
)
def test_limits_are_in_the_budget(limits):
    tiny = shared("flux_dev")
    some = at_speedup(tiny, "first_block", 1.6, **limits)
    run(some.patcher, tiny, steps=30)
    assert lands(some.report, 1.6)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_branches_land_together_and_apart(method, apart):
    """Each of the three prompts has a length, and so a call, of its own."""
    tiny = shared("wan_t2v")
    some = at_speedup(tiny, method, 2.0, shared=not apart)
    positive = conditioning(tiny.name, 11) + conditioning(tiny.name, 13, tokens=5)
    negative = conditioning(tiny.name, 12, tokens=9)
    run(some.patcher, tiny, steps=30, cfg=4.0, positive=positive, negative=negative)
    assert some.report.trace[0].computed_calls == 3
    assert lands(some.report, 2.0) and some.report.messages == []


def test_a_prompt_or_control_that_changes_midway_starts_no_new_budget():
    tiny = build("flux_dev")
    early, late = dict(start_percent=0.0, end_percent=0.5), dict(start_percent=0.5, end_percent=1.0)
    prompts = conditioning(tiny.name, 11, **early) + conditioning(tiny.name, 13, **late)
    [[_, values]] = (controlled := with_control(tiny).positive)
    values["control"].timestep_percent_range = (0.0, 0.5)
    for positive in (prompts, controlled):
        some = at_speedup(tiny, "first_block", 2.5)
        run(some.patcher, tiny, steps=30, positive=positive)
        assert some.report.computed == 12
        anew = any(each.reason == "nothing stored for this branch yet" for each in some.report.trace[1:])
        assert anew or positive is controlled


def test_one_message_says_that_the_limits_leave_no_room():
    tiny = shared("flux_dev")
    some = at_speedup(tiny, "first_block", 4.0, end_percent=0.5)
    run(some.patcher, tiny, steps=20)
    [message] = some.report.messages
    computed = some.report.computed
    outside = sum(each.reason == "outside the start/end window" for each in some.report.trace)
    why = f"({outside} by: outside the start/end window)"
    assert message == f"{MISSED}{computed} evaluations computed instead of 5 {why}"
    assert computed == 1 + outside + 1
