"""A position comes from sigma alone, whatever the sampler does."""

import pytest

from stepcache.cache_core.schedule import StepClock

CLOCK = StepClock((1.0, 0.75, 0.5, 0.0))


@pytest.mark.parametrize(
    ("sigma", "position"), [(1.0, 0), (0.75, 1), (0.875, 0.5), (0.25, 2.5), (0.0, 3), (2.0, 0), (-1.0, 3)]
)
def test_position_of_nodes_between_and_outside(sigma, position):
    assert CLOCK.step(sigma).position == pytest.approx(position)


def test_a_rounded_sigma_is_its_node():
    assert CLOCK.step(0.75000006).position == 1


def test_every_evaluation_that_may_be_the_final_one_is_last():
    """Also those between the two nodes before the end: dpm_fast and dpm_adaptive end there."""
    sigmas = (0.76, 0.75, 0.51, 0.5, 0.25, 0.0)
    assert [CLOCK.step(sigma).is_last for sigma in sigmas] == [False, False, True, True, True, True]


@pytest.mark.parametrize(
    ("sigmas", "positions"),
    [((0.5, 0.5, 0.25, 0.0), (1, 1, 2, 3)), ((0.5, 0.25, 0.25, 0.0), (0, 2, 2, 3)), ((0.1, 0.5, 1.0), (0, 1, 2))],
)
def test_repeated_and_rising_nodes(sigmas, positions):
    clock = StepClock(sigmas)
    assert tuple(clock.step(sigma).position for sigma in sigmas) == positions


@pytest.mark.parametrize("sigmas", [(), (0.5,), (1.0, 0.0)])
def test_a_schedule_of_at_most_one_step_is_all_last(sigmas):
    assert StepClock(sigmas).step(0.5).is_last
