"""A plan that is left when its forecasts turn out worse than recorded."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from stepcache.cache_core.forecasting import Forecaster, ForecastPlan, Segment
from stepcache.cache_core.methods import stepcache
from stepcache.cache_core.policies import Followed
from stepcache.cache_core.policies.followed import ROUNDING
from stepcache.cache_core.predictors import FittedLine
from stepcache.cache_core.types import Step

from .driving import computed_in, noise, run_of, sample, steps_of
from .recordings import recorded, smooth, straight

STEPS = (0, 1, 3, 6, 8)
PLAN = ForecastPlan(Forecaster(recorded(smooth(12))), STEPS)


def drawn(elements, seed=0):
    """Outputs of a run, (12, E), that have nothing to do with each other."""
    return torch.randn(12, elements, generator=torch.Generator().manual_seed(seed))


def driven(outputs, factor, plan=PLAN):
    """The steps that were computed, and the reasons, of a run with these outputs, (T, E)."""
    run, policy = run_of(len(outputs)), Followed(plan, factor)
    policy.begin(run, 0)
    computed, reasons = [], []
    for step, output in zip(steps_of(run), torch.as_tensor(outputs).float(), strict=True):
        score = policy.observe(None)
        decision = policy.decide(step, None if score is None else float(score))
        reasons.append(decision.reason)
        if decision.reuse and computed:
            policy.reused(step)
        else:
            policy.computed(step, (output,))
            computed.append(step.index)
    return tuple(computed), reasons


@pytest.mark.parametrize("factor", [0.0, 1.5, 3.0])
def test_on_a_run_like_the_recording_the_plan_is_followed(factor):
    computed, reasons = driven(smooth(12), factor)
    assert computed == STEPS and not any("more" in reason for reason in reasons)


def test_on_another_run_more_is_computed_and_said():
    computed, reasons = driven(drawn(6, seed=1), 3.0)
    assert set(STEPS) < set(computed)
    told = [reason for reason in reasons if "one more since the last forecast was" in reason]
    assert len(told) >= len(computed) - len(STEPS)


@pytest.mark.parametrize("tuned", [(), tuple(Segment(a, b, 2.5, -0.5) for a, b in pairwise((*STEPS, 12)))])
def test_a_forecast_is_judged_by_the_same_forecast_in_the_recording_also_after_the_plan_was_left(tuned):
    outputs, policy, judged = torch.as_tensor(smooth(12)).float(), Followed(replace(PLAN, tuned=tuned), 3.0), []
    policy.begin(run_of(12), 0)
    for step in steps_of(run_of(12)):
        decision = policy.decide(step, 1e9 if step.index == 4 else None)  # a surprise behind step 3
        if decision.reuse:
            policy.reused(step)
            continue
        policy.computed(step, (outputs[step.index],))
        if step.index:
            judged.append(max(float(policy.missed), ROUNDING) / policy.expected)
    assert len(judged) == len(STEPS) and judged == pytest.approx([1.0] * len(STEPS), rel=0.03)  # it is by a sketch


def test_a_factor_of_zero_never_looks():
    policy = Followed(PLAN)
    policy.begin(run_of(12), 0)
    assert driven(drawn(6), 0.0)[0] == STEPS
    for step in steps_of(run_of(12)):
        policy.computed(step, (torch.full((6,), math.nan, device="meta"),))  # cannot be read
        assert policy.observe(None) is None


def test_every_surprise_adds_one_step():
    rough = drawn(6, seed=2)
    computed, reasons = driven(rough, 1e-6)
    surprises = sum("one more" in reason for reason in reasons)
    assert len(computed) <= len(STEPS) + surprises and computed[:2] == (0, 1)


def test_an_exact_recording_is_no_reason_for_more_on_the_like():
    """What is off by rounding alone is not too far off, and nothing is divided by zero."""
    plan = ForecastPlan(Forecaster(recorded(straight(12))), STEPS)
    still = ForecastPlan(Forecaster(recorded([[1.0, 2.0]] * 12)), STEPS)
    rounded = torch.as_tensor([[1.0, 2.0]] * 12) * (1 + ROUNDING * torch.linspace(-1, 1, 24).view(12, 2))
    assert driven(rounded, 3.0, still)[0] == STEPS
    assert set(STEPS) < set(driven(drawn(6), 3.0, plan)[0])
    assert set(STEPS) < set(driven(drawn(2), 3.0, still)[0])


def test_values_that_are_not_finite_make_it_compute():
    outputs = torch.as_tensor(smooth(12))
    outputs[3] = math.nan
    assert set(STEPS) < set(driven(outputs, 3.0)[0])


def test_an_evaluation_between_the_steps_is_no_measure():
    policy = Followed(PLAN, 3.0)
    policy.begin(run_of(12), 0)
    for position in (0, 0.5):
        policy.computed(Step(position, 12, 0.5), (torch.randn(6),))
        assert policy.line.computed == (0,) and policy.missed is None
    policy.computed(Step(1, 12, 0.5), (torch.randn(6),))
    found = policy.missed
    policy.computed(Step(1.5, 12, 0.5), (torch.randn(6),))
    assert policy.line.computed == (0, 1) and policy.missed is found and found is not None
    policy.computed(Step(1, 12, 0.5), (torch.randn(6),))  # the same step again
    assert policy.line.computed == (0, 1) and policy.missed is None


# -- the fitted line ----------------------------------------------------------------------------------------------------------


def test_it_forecasts_by_the_factors_of_the_plan():
    line, outputs = FittedLine(PLAN.segment_after), torch.as_tensor(smooth(12))
    for step in (0, 1, 3):
        line.update(Step(step, 12, 0.5), (outputs[step],))
    segment = PLAN.segment_after((0, 1, 3))
    for position in (4, 4.5, 5):
        weights = segment.weights((0, 1, 3), position)
        expected = sum(weight * outputs[step] for weight, step in zip(weights, (0, 1, 3), strict=True))
        assert torch.allclose(line.predict(Step(position, 12, 0.5))[0], expected)


def test_it_holds_the_first_output_and_at_most_three():
    line = FittedLine(PLAN.segment_after)
    assert not line.ready
    line.update(Step(0, 12, 1.0), (torch.ones(2), None))
    assert line.ready and torch.equal(line.predict(Step(1, 12, 0.9))[0], torch.ones(2))
    assert line.predict(Step(1, 12, 0.9))[1] is None
    for step in range(1, 9):
        line.update(Step(step, 12, 0.5), (torch.full((2,), float(step)), None))
    assert len(line.values) == 3 and line.computed == tuple(range(9))


def test_the_last_output_at_a_step_counts_and_none_between_the_steps():
    line = FittedLine(PLAN.segment_after)
    for position, value in ((0, 1.0), (0.5, 9.0), (1, 2.0), (1, 3.0)):
        line.update(Step(position, 12, 0.5), (torch.full((2,), value),))
    assert line.computed == (0, 1) and [float(value[0][0]) for value in line.values] == [1, 3]


# -- the method ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [0.0, 0.01])
def test_the_method_computes_the_plan(guard):
    plan = ForecastPlan(Forecaster(recorded(smooth(10))), (0, 1, 2, 5))
    sampled = sample(stepcache(plan, guard), latents=noise(1))
    more = set(computed_in(sampled.mask)) - {0, 1, 2, 5}
    assert {0, 1, 2, 5} <= set(computed_in(sampled.mask)) and bool(more) == bool(guard)  # it is no recording of this


def test_limits_go_before_the_plan():
    plan = ForecastPlan(Forecaster(recorded(smooth(10))), (0, 1, 2, 5))
    assert sample(stepcache(plan, max_consecutive=1), latents=noise(1)).mask == "1110110101"
    assert sample(stepcache(plan), latents=noise(1)).mask == "1110010000"


def test_without_a_guard_it_is_foretold():
    plan = ForecastPlan(Forecaster(recorded(smooth(10))), (0, 1, 2, 5))
    assert (
        stepcache(plan, 3.0).foretold(run_of(10)) == stepcache(plan, per_branch=True).foretold(run_of(10)) == plan.steps
    )
