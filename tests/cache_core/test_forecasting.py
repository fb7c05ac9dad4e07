"""Forecasts fitted to a recording, and the steps that are planned for them."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcache.cache_core.forecasting import (
    MOST_SLOPE,
    Forecaster,
    ForecastPlan,
    Segment,
    line_costs,
    unwanted_segments,
)
from stepcache.cache_core.planning import cheapest_path
from stepcache.model_patches.calibration import general_recording

from .recordings import even, few, kinds, noisy, recorded, seeds, smooth, straight
from .test_planning import brute_force

CERTAIN = 10**12
"""So many runs that other pictures are taken to be as those recorded."""


def plans(count, computed):
    """All that begin with the first two steps."""
    return [(0, 1, *rest) for rest in combinations(range(2, count), computed - 2)]


def line_cost(outputs, weights, i, j, k):
    """By the definition: the norm of the summed errors at j + 1 .. k - 1 of the best line through i and j."""
    held = sum((weights[q] * (outputs[q] - outputs[j]) for q in range(j + 1, k)), np.zeros(outputs.shape[1]))
    turn = sum((weights[q] * (q - j) / (j - i) for q in range(j + 1, k)), 0.0) * (outputs[j] - outputs[i])
    slope = np.clip(held @ turn / max(turn @ turn, 1e-30), 0, MOST_SLOPE)
    return np.sqrt(np.square(held - slope * turn).mean())


# -- the programme that is exact ----------------------------------------------------------------------------------------------


@few
@given(st.integers(2, 8), seeds, kinds)
def test_costs_are_those_of_the_definition(count, seed, kind):
    outputs = kind(count, seed)
    forecaster = Forecaster(recorded(outputs, runs=CERTAIN))
    costs = line_costs(forecaster.products, forecaster.weights)
    for i, j, k in combinations(range(count + 1), 3):
        assert costs[i, j, k] == pytest.approx(line_cost(outputs, forecaster.weights, i, j, k), abs=1e-6)
    assert np.isinf(costs[2, 1]).all() and np.isinf(costs[:, 1, :2]).all()


@few
@given(st.integers(3, 9), st.data(), seeds, kinds)
def test_no_plan_is_cheaper_than_the_one_found(count, data, seed, kind):
    computed = data.draw(st.integers(2, count - 1))
    forecaster = Forecaster(recorded(kind(count, seed)))
    costs = line_costs(forecaster.products, forecaster.weights)
    steps, cost = cheapest_path(costs, computed)
    assert len(steps) == computed and cost == pytest.approx(brute_force(costs, computed), abs=1e-9)


@few
@given(st.integers(3, 9), st.data(), seeds)
def test_nor_where_limits_hold(count, data, seed):
    forced = data.draw(st.sets(st.integers(0, count - 1), max_size=2))
    longest = data.draw(st.integers(1, 4))
    computed = data.draw(st.integers(2, count - 1))
    forecaster = Forecaster(recorded(noisy(count, seed)))
    costs = line_costs(forecaster.products, forecaster.weights)
    costs[:, unwanted_segments(count, forced, longest)] = np.inf
    least = brute_force(costs, computed)
    if np.isinf(least):
        with pytest.raises(ValueError, match="no path"):
            cheapest_path(costs, computed)
    else:
        steps, cost = cheapest_path(costs, computed)
        assert cost == pytest.approx(least, abs=1e-9) and forced <= {*steps} and longest_gap(steps, count) <= longest


def longest_gap(steps, count):
    """How many steps in a row are left out at most."""
    return max(b - a - 1 for a, b in pairwise([*steps, count]))


# -- plans --------------------------------------------------------------------------------------------------------------------


@few
@given(st.integers(3, 12), st.data(), seeds, kinds)
def test_moving_steps_never_makes_it_worse(count, data, seed, kind):
    computed = data.draw(st.integers(2, count - 1))
    forecaster = Forecaster(recorded(kind(count, seed)))
    found, _ = cheapest_path(line_costs(forecaster.products, forecaster.weights), computed)
    plan = forecaster.plan(computed)
    assert forecaster.cost(plan) <= forecaster.cost(found) * (1 + 1e-9) and len(plan) == computed


@few
@given(st.integers(4, 9), st.data(), seeds)
def test_a_plan_is_near_the_best_there_is(count, data, seed):
    computed = data.draw(st.integers(3, count - 1))
    forecaster = Forecaster(recorded(smooth(count, seed)))
    costs = sorted(forecaster.cost(steps) for steps in plans(count, computed))
    assert forecaster.cost(forecaster.plan(computed)) <= costs[len(costs) // 4] * (1 + 1e-9)


@pytest.mark.parametrize("flow", [True, False])
@pytest.mark.parametrize("count", [10, 20, 28])
def test_computing_more_is_never_worse_for_a_recorded_model(count, flow):
    """But for the last percent, as errors of opposite sign may no longer cancel."""
    sigmas = even(count) if flow else (*np.geomspace(14.6, 0.03, count), 0.0)
    forecaster = Forecaster(general_recording(flow).resampled(sigmas))
    costs = [forecaster.cost(forecaster.plan(computed)) for computed in range(2, count + 1)]
    assert all(more <= 1.02 * fewer for fewer, more in pairwise(costs)) and costs[-1] == 0


@few
@given(st.integers(4, 10), seeds)
def test_computing_more_is_never_much_worse(count, seed):
    forecaster = Forecaster(recorded(smooth(count, seed)))
    costs = [forecaster.cost(forecaster.plan(computed)) for computed in range(2, count + 1)]
    assert all(more <= 1.5 * fewer + 1e-6 for fewer, more in pairwise(costs)) and costs[-1] == 0


@few
@given(st.integers(3, 30), st.data(), seeds)
def test_straight_lines_are_forecast_exactly(count, data, seed):
    computed = data.draw(st.integers(2, count))
    outputs = straight(count, seed)
    forecaster = Forecaster(recorded(outputs))
    costs = line_costs(forecaster.products, forecaster.weights)
    if computed < count:
        assert cheapest_path(costs, computed)[1] <= 1e-5
    plan = forecaster.plan(computed)
    held = sum(forecaster.weights[q] * (outputs[q] - outputs[max(s for s in plan if s <= q)]) for q in range(count))
    assert forecaster.segments(plan)[1][-1] <= 0.05 * np.sqrt(np.square(held).mean()) + 1e-6  # factors are kept small


@pytest.mark.parametrize("count", range(1, 31))
def test_a_plan_of_any_number_of_steps(count):
    forecaster = Forecaster(recorded(smooth(count)))
    for computed in {0, 1, 2, 3, count // 3, count // 2, count - 1, count, count + 2}:
        plan = forecaster.plan(computed)
        assert len(plan) == min(max(computed, 2), count)
        assert plan[:2] == (0, 1)[:count] and plan == tuple(sorted({*plan})) and plan[-1] < count


@few
@given(st.integers(1, 20), st.integers(0, 20), st.sets(st.integers(0, 19)), st.integers(0, 5), seeds, kinds)
def test_limits_hold_and_no_more_is_computed_than_they_need(count, computed, forced, longest, seed, kind):
    forced = {step for step in forced if step < count}
    plan = Forecaster(recorded(kind(count, seed))).plan(computed, forced, longest)
    assert forced <= {*plan} and (not longest or longest_gap(plan, count) <= longest)
    assert min(computed, count) <= len(plan) <= max(computed, fewest(count, forced, longest))


def fewest(count, forced, longest):
    """How many steps must be computed: the first two, the forced ones, and some in each gap that is too long."""
    kept = sorted({*range(min(count, 2)), *forced})
    gaps = [b - a - 1 for a, b in pairwise([*kept, count])]
    return len(kept) + (sum(gap // (longest + 1) for gap in gaps) if longest else 0)


def test_a_plan_is_dense_where_outputs_change():
    outputs = np.array([[0.0], [0], [0], [0], [0], [1], [3], [6], [6], [6], [6], [6]])
    plan = Forecaster(recorded(outputs, gains=(1.0,) * 12)).plan(5)
    assert len({5, 6, 7, 8} & {*plan}) >= 2 and not {2, 3, 4} & {*plan}


def test_a_plan_is_dense_where_errors_grow():
    outputs = noisy(20)
    early, late = (
        Forecaster(recorded(outputs, gains=gains)).plan(10)
        for gains in (tuple(np.geomspace(100, 0.01, 20)), tuple(np.geomspace(0.01, 100, 20)))
    )
    assert sum(early) < sum(late)


def test_one_more_step_helps_most_where_it_is_put():
    forecaster = Forecaster(recorded(smooth(14)))
    plan = forecaster.plan(5)
    everywhere = forecaster.with_one_more(plan, range(14))
    assert everywhere == min(
        (tuple(sorted({*plan, step})) for step in range(14) if step not in plan), key=forecaster.cost
    )
    for after in range(14):
        more = ForecastPlan(forecaster, plan).with_one_more(after).steps
        added = {*more} - {*plan}
        left_out = [step for step in range(after + 1, 14) if step not in plan]
        next_gap = [step for step in left_out if not {*range(left_out[0], step)} & {*plan}]
        others = [tuple(sorted((*plan, step))) for step in next_gap]
        assert (more == plan) if not others else (min(added) > after and more == min(others, key=forecaster.cost))


# -- forecasts ----------------------------------------------------------------------------------------------------------------


def test_weights_of_a_segment():
    segment = Segment(6, 9, slope=0.5, bend=0.25)
    assert segment.weights((1, 2, 6), 8) == pytest.approx([-0.25, 0.25 - 0.25, 1.25])
    assert Segment(6, 9, slope=0.5).weights((2, 6), 7) == pytest.approx([-0.125, 1.125])
    assert Segment(0, 3).weights((0,), 2) == [1]


@few
@given(st.integers(3, 14), st.data(), seeds, kinds)
def test_errors_are_those_of_forecasting_the_outputs_themselves(count, data, seed, kind):
    """In products of outputs as with the outputs."""
    computed = data.draw(st.integers(2, count - 1))
    outputs = kind(count, seed)
    forecaster = Forecaster(recorded(outputs, runs=CERTAIN))
    plan = forecaster.plan(computed)
    segments, errors = forecaster.segments(plan)
    total = np.zeros(outputs.shape[1])
    for n, (segment, error) in enumerate(zip(segments, errors, strict=True)):
        known = plan[max(n - 2, 0) : n + 1]
        for step in range(segment.start + 1, segment.end):
            forecast = sum(weight * outputs[at] for weight, at in zip(segment.weights(known, step), known, strict=True))
            total = total + forecaster.weights[step] * (outputs[step] - forecast)
            off = np.sqrt(np.square(outputs[step] - forecast).mean() / max(np.square(outputs[step]).mean(), 1e-30))
            assert forecaster.expected(known, step, segment) == pytest.approx(off, abs=1e-6, rel=1e-6)
        assert np.sqrt(np.square(total).mean()) == pytest.approx(error, abs=1e-6)


def test_a_segment_makes_up_for_the_error_that_the_one_before_left():
    outputs = np.array([[1.0], [1], [2], [2], [2], [3], [3]])
    forecaster = Forecaster(recorded(outputs, runs=CERTAIN, gains=(1.0,) * 7))
    _, errors = forecaster.segments((0, 1, 3))
    assert errors[1] == pytest.approx(1 / 7) and errors[-1] < 0.05 * errors[1]


def test_forecasts_follow_the_steps_that_are_really_computed():
    plan = ForecastPlan(Forecaster(recorded(smooth(12))), (0, 1, 3, 7))
    for computed in ((0,), (0, 1), (0, 1, 2), (0, 1, 3, 5, 7), (4,)):
        segment = plan.segment_after(computed)
        assert segment.start == computed[-1]
        assert segment.end == min((step for step in plan.steps if step > computed[-1]), default=12)
    assert plan.with_one_more(3).steps != plan.steps and set(plan.steps) < set(plan.with_one_more(3).steps)


def test_tuned_forecasts_hold_while_just_the_plan_was_computed():
    tuned = (Segment(0, 1), Segment(1, 3, 0.5), Segment(3, 7, 0.25, 0.1), Segment(7, 12, 2.0))
    plan = ForecastPlan(Forecaster(recorded(smooth(12))), (0, 1, 3, 7), tuned)
    for n in range(1, 5):
        assert plan.segment_after(plan.steps[:n]) == tuned[n - 1] == plan.segments[n - 1]
    plain = ForecastPlan(plan.forecaster, plan.steps)
    for computed in ((0, 2), (0, 1, 2, 3), (0, 1, 3, 5, 7), (4,)):
        assert plan.segment_after(computed) == plain.segment_after(computed)
    assert plan.with_one_more(3) == plain.with_one_more(3) and plain.segments[0].start == 0 and len(plain.segments) == 4


# -- gains --------------------------------------------------------------------------------------------------------------------


def test_measured_gains_are_used_and_others_estimated():
    assert Forecaster(recorded(smooth(3), gains=(3.0, 2.0, 1.0))).gains.tolist() == [3, 2, 1]
    flow, other = (Forecaster(recorded(smooth(4), flow=flow)).gains for flow in (True, False))
    assert flow.tolist() == pytest.approx([1 / 0.05, 1 / 0.3, 1 / 0.55, 1 / 0.8]) and other.tolist() == [1] * 4


def test_gains_weigh_the_steps_in_sigma():
    weights = Forecaster(recorded(smooth(3), (1.0, 0.9, 0.5, 0.0), gains=(4.0, 2.0, 1.0))).weights
    assert weights.tolist() == pytest.approx([0.4, 0.8, 0.5])
    assert even(2) == (1.0, 0.5, 0.0)
