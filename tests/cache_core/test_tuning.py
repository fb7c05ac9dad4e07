"""Plans that are tried out on pictures, here made-up ones of which the outputs are known."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcache.cache_core.forecasting import MOST_SLOPE, Forecaster, ForecastPlan, Segment
from stepcache.cache_core.tuning import RIDGE, best_changes, better_plans, candidates, changed, free_factors, score

from .recordings import few, recorded, seeds, smooth

STEPS = 14


def left_in(pictures, plan):
    """What forecasts of the outputs of some pictures add up to, by picture."""
    forecaster, found = plan.forecaster, []
    for outputs in pictures:
        total = np.zeros(outputs.shape[1])
        for n, segment in enumerate(plan.segments):
            known = plan.steps[max(n - 2, 0) : n + 1]
            for step in range(segment.start + 1, segment.end):
                factors = segment.weights(known, step)
                forecast = sum(factor * outputs[at] for factor, at in zip(factors, known, strict=True))
                total = total + forecaster.weights[step] * (outputs[step] - forecast)
        found.append(total)
    return found


def alike(count, seed=0, by=0.05):
    """Pictures whose outputs differ a little, (count, T, 6)."""
    draw = np.random.default_rng(seed)
    return [smooth(STEPS, seed) + by * np.cumsum(draw.normal(size=(STEPS, 6)), axis=0) for _ in range(count)]


def test_candidates_differ_and_the_first_is_planned_for_all_pictures():
    recordings = [recorded(outputs) for outputs in alike(4, by=0.2)]
    plans = list(candidates(recordings, 6, 24))
    assert plans[0].steps == plans[0].forecaster.plan(6) and plans[0].forecaster.recording.runs == 4
    assert len({plan.steps for plan in plans}) == len(plans) > 3
    assert {Forecaster(each).plan(6) for each in recordings} <= {plan.steps for plan in plans}
    assert {plan.forecaster for plan in plans} == {plans[0].forecaster} and all(not plan.tuned for plan in plans)
    assert list(candidates(recordings, 6, 2)) == plans[:2]
    assert len(list(candidates(recordings[:1], 6, 24))) == 1


def test_planning_can_be_ended_before_every_plan_also_where_all_are_the_same():
    asked = []

    def stop_at_third():
        asked.append(None)
        if len(asked) == 3:
            raise InterruptedError

    plans = candidates([recorded(smooth(STEPS))] * 4, 6, 24, stop_at_third)
    assert next(plans).steps[0] == 0
    with pytest.raises(InterruptedError):
        next(plans)


@few
@given(st.integers(4, STEPS - 1), seeds, st.integers(1, 4))
def test_every_plan_is_better_than_the_last(computed, seed, count):
    pictures = alike(count, seed)
    plans = list(candidates([recorded(each) for each in pictures], computed, 24))
    better = list(better_plans(plans, partial(left_in, pictures)))
    scores = [score(plan, left_in(pictures, plan)) for plan in better]
    assert scores == sorted(scores, reverse=True) and better[0] is plans[0]
    assert scores[-1] <= min(score(plan, left_in(pictures, plan)) for plan in plans)
    assert {plan.steps for plan in better} <= {plan.steps for plan in plans}


def test_fitted_forecasts_serve_pictures_that_were_not_tried():
    together = alike(8, 1, by=0.002)
    pictures, others = together[:4], together[4:]
    plan = next(candidates([recorded(each) for each in pictures], 7, 1))
    *_, fitted = better_plans([plan], partial(left_in, pictures))
    assert fitted.tuned and fitted.steps == plan.steps
    assert score(fitted, left_in(others, fitted)) < score(plan, left_in(others, plan)) - 0.2


def test_of_plans_that_leave_as_much_behind_the_one_that_is_estimated_better_is_taken():
    forecaster = Forecaster(recorded(smooth(STEPS)))
    plans = [ForecastPlan(forecaster, steps) for steps in ((0, 1, 2, 3, 4), forecaster.plan(5))]
    *_, best = better_plans(plans, lambda plan: [np.ones(6)] * 2)
    assert best == plans[1] and forecaster.cost(plans[1].steps) < forecaster.cost(plans[0].steps)


@pytest.mark.parametrize("bound", [-MOST_SLOPE, MOST_SLOPE])
def test_factors_at_their_bound_are_tried_at_another_value_too(bound):
    pictures, asked = alike(2), []
    tuned = (Segment(0, 1), Segment(1, 7, bound), Segment(7, STEPS, bound, bound))

    def left(plan):
        asked.append(plan.tuned)
        return left_in(pictures, plan)

    *_, fitted = better_plans([ForecastPlan(Forecaster(recorded(pictures[0])), (0, 1, 7), tuned)], left)
    assert asked.count(tuned) == 1 and len(asked) == 5 and fitted.tuned != tuned


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_what_leaves_no_number_behind_is_not_taken(broken):
    pictures = alike(2)
    plans = list(candidates([recorded(each) for each in pictures], 6, 2))

    def left(plan, whole):
        return left_in(pictures, plan) if plan in whole else [np.full(6, broken)] * 2

    assert list(better_plans(plans, partial(left, whole=plans[1:]))) == plans[1:]
    assert list(better_plans(plans, partial(left, whole=[]))) == []


def test_a_plan_without_forecasts_is_left_as_it_is():
    pictures = alike(2)
    plan = ForecastPlan(Forecaster(recorded(pictures[0])), tuple(range(STEPS)))
    assert list(better_plans([plan], partial(left_in, pictures))) == [plan]
    assert list(better_plans([], partial(left_in, pictures))) == []


def test_a_picture_without_error_is_no_trouble():
    plan = ForecastPlan(Forecaster(recorded(np.ones((STEPS, 6)))), (0, 1, 5))
    assert list(better_plans([plan], partial(left_in, [np.ones((STEPS, 6))] * 2))) == [plan]


def test_the_asked_for_runs_are_as_many_as_promised():
    pictures, asked = alike(3), []
    plans = list(candidates([recorded(each) for each in pictures], 6, 24))

    def left(plan):
        asked.append(plan)
        return left_in(pictures, plan)

    list(better_plans(plans, left))
    assert len(asked) <= len(plans) + max(len(free_factors(plan.segments)) for plan in plans) + 1


# -- the fit ------------------------------------------------------------------------------------------------------------------


def test_a_slope_needs_two_computed_steps_and_a_bend_three():
    segments = [Segment(0, 2), Segment(2, 4), Segment(4, 5), Segment(5, 9)]
    assert free_factors(segments) == [(1, "slope"), (3, "slope"), (3, "bend")]


def test_factors_are_changed_within_bounds():
    segments = (Segment(0, 1), Segment(1, 4, slope=2.5, bend=0.5))
    assert changed(segments, {(1, "slope"): 9.0, (1, "bend"): -0.75}) == (
        Segment(0, 1), Segment(1, 4, slope=MOST_SLOPE, bend=-0.25),
    )  # fmt: skip


def test_changes_are_those_of_least_squares_but_for_what_holds_them_back():
    responses, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 3)))
    wanted = np.array([0.5, -1.0, 0.2])
    assert best_changes([responses.T] * 3, [-wanted @ responses.T] * 3) == pytest.approx(wanted / (1 + RIDGE))


def test_pictures_that_contradict_each_other_change_nothing():
    responses = np.random.default_rng(0).normal(size=(3, 50))
    behind = np.array([1.0, 2.0, 0.5]) @ responses
    assert best_changes([responses] * 2, [behind, -behind]) == pytest.approx([0, 0, 0])


@few
@given(st.integers(1, 4), seeds)
def test_every_picture_counts_alike(count, seed):
    """However large its error is."""
    draw = np.random.default_rng(seed)
    responses, behind = draw.normal(size=(count, 3, 20)), draw.normal(size=(count, 20))
    scales = draw.uniform(0.01, 100, size=count)
    scaled = best_changes([r * s for r, s in zip(responses, scales, strict=True)],
                          [b * s for b, s in zip(behind, scales, strict=True)])  # fmt: skip
    assert scaled == pytest.approx(best_changes(responses, behind), abs=1e-9)
