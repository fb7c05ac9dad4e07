"""EX-TS5 and EX-DP1 to EX-DP3: schedules found before sampling."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from stepcache.cache_core.planning import cheapest_path, general_steps, interval_steps, linear_costs, window_steps
from stepcache.cache_core.types import Run

from .driving import run_of

FIRST = (0, 1, 1.8, 2.4, 2.8, 2.9, 3.3, 4.1, 5.2)
SECOND = (3.5, 2.4, 1.5, 0.4, 0.5, 2.0, 1.0, 0.6)


def costs_of(values):
    return linear_costs(np.array(values, dtype=float)[:, None])


def cost_of(costs, steps):
    """Of a choice of steps, by the definition: each three that follow one another, the end being the last."""
    path = (*steps, len(costs) - 1)
    return sum(costs[i, j, k] for (i, j), k in zip(pairwise(path), path[2:], strict=False))


def brute_force(costs, computed, forced=2):
    end = len(costs) - 1
    choices = combinations(range(forced, end), computed - forced)
    return min(cost_of(costs, (*range(forced), *chosen)) for chosen in choices)


def approximate(costs, computed):
    """The recursion as published: only the cheapest predecessor of a step is kept."""
    end = len(costs) - 1
    best = {1: (0.0, (0, 1))}
    for _ in range(computed - 2):
        found = {}
        for k in range(2, end):
            ways = [(cost + costs[path[-2], j, k], (*path, k)) for j, (cost, path) in best.items() if j < k]
            if ways:
                found[k] = min(ways)
        best = found
    return min((cost + costs[path[-2], j, end], path) for j, (cost, path) in best.items())


def test_costs_of_lines():
    """EX-DP1."""
    costs = costs_of(FIRST)
    found = [costs[i] for i in ((0, 1, 2), (0, 1, 3), (0, 1, 4), (1, 2, 3), (1, 2, 4), (1, 2, 8))]
    assert found == pytest.approx([0.2, 0.8, 2.0, 0.2, 0.8, 6.9], rel=1e-5)
    assert np.isinf(costs[2, 1, 3]) and np.isinf(costs[1, 1, 3]) and np.isinf(costs[0, 2, 2])


@pytest.mark.parametrize(("computed", "steps", "cost"), [(4, (0, 1, 2, 4), 2.5), (5, (0, 1, 2, 3, 4), 2.1)])
def test_worked_example(computed, steps, cost):
    """EX-DP1."""
    found, total = cheapest_path(costs_of(FIRST), computed)
    assert found == steps and total == pytest.approx(cost, rel=1e-5)
    assert brute_force(costs_of(FIRST), computed) == pytest.approx(cost, rel=1e-5)


def test_the_published_recursion_misses_the_cheapest_path():
    """EX-DP2."""
    costs = costs_of(SECOND)
    found, total = cheapest_path(costs, 4)
    assert found == (0, 1, 3, 4) and total == pytest.approx(3.4, rel=1e-5)
    cost, path = approximate(costs, 4)
    assert path == (0, 1, 2, 4) and cost == pytest.approx(6.3, rel=1e-5)
    assert brute_force(costs, 4) == pytest.approx(3.4, rel=1e-5)


def test_a_cheap_way_to_a_step_may_be_dear_afterwards():
    """EX-DP3: step 4 is reached at 1 through step 2, and at 2 through step 3; then it costs 100, or 0."""
    costs = np.full((6, 6, 6), np.inf)
    for through, reach, on in ((2, 1, 100), (3, 2, 0)):
        costs[0, 1, through], costs[1, through, 4], costs[through, 4, 5] = 0, reach, on
    assert cheapest_path(costs, 4) == ((0, 1, 3, 4), 2.0)
    assert approximate(costs, 4) == (101, (0, 1, 2, 4))


def test_means_are_taken_over_the_elements():
    features = np.stack([np.array(FIRST), np.array(FIRST) * 3], axis=1)
    assert linear_costs(features)[0, 1, 4] == pytest.approx(2 * 2.0)


@pytest.mark.parametrize(("computed", "forced"), [(2, 3), (9, 2), (1, 1), (1, 2), (0, 2)])
def test_what_cannot_be_is_refused(computed, forced):
    with pytest.raises(ValueError, match="cannot compute"):
        cheapest_path(costs_of(FIRST), computed, forced)


def test_no_path_at_a_finite_cost():
    with pytest.raises(ValueError, match="no path"):
        cheapest_path(np.full((6, 6, 6), np.inf), 3)


def test_forced_steps_are_in_the_plan():
    for forced in (2, 3, 4):
        steps, _ = cheapest_path(costs_of(FIRST), 5, forced)
        assert steps[:forced] == tuple(range(forced)) and len(steps) == 5


# -- plans that need no recording ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warmup", "interval", "steps", "expected"),
    [
        (3, 5, 20, (0, 1, 2, 7, 12, 17)),
        (3, 6, 50, (0, 1, 2, 8, 14, 20, 26, 32, 38, 44)),
        (1, 5, 12, (0, 5, 10)),
        (0, 5, 12, (0, 5, 10)),
        (3, 1, 5, range(5)),
        (9, 5, 5, range(5)),
        (3, 5, 1, (0,)),
    ],
)
def test_intervals(warmup, interval, steps, expected):
    """EX-TS5."""
    assert interval_steps(run_of(steps), warmup, interval) == set(expected)


def test_windows_that_grow():
    assert window_steps(run_of(20), 3, 2.0, 0.75) == {0, 1, 2, 4, 6, 9, 13, 18}
    assert window_steps(run_of(6), 1, 1.0, 0.0) == set(range(6))
    assert window_steps(run_of(1), 5, 2.0, 0.75) == {0}


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 50])
def test_a_general_plan_computes_as_many_as_it_is_told(steps):
    for computed in range(1, steps + 3):
        for forced in (1, 2, 3):
            plan = general_steps(run_of(steps), computed, forced)
            assert len(plan) == min(computed, steps) and plan <= set(range(steps)) and steps - 1 in plan
            assert set(range(min(forced, computed - 1, steps))) <= plan


def test_a_general_plan_is_dense_where_errors_grow_most():
    plan = sorted(general_steps(run_of(50), 12))
    gaps = [b - a for a, b in pairwise(plan)]
    assert sum(gaps[:5]) < sum(gaps[-5:])


@pytest.mark.parametrize("sigmas", [(14.6, 3.0, 0.5, 0.03, 0.0), (1.0, 1.0, 1.0, 0.0), (0.0, 0.0, 0.0)])
def test_a_general_plan_for_odd_schedules(sigmas):
    assert len(general_steps(Run(sigmas, 1e9, 0.0), 2)) == 2
