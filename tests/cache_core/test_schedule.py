"""A position comes from sigma alone, whatever the sampler does."""

import pytest

from stepcache.cache_core.schedule import StepClock, part_covered
from stepcache.cache_core.types import Run

from .driving import POSITIONS, run_of

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


@pytest.mark.parametrize("position", [0.0, 0.25, 1.0, 2.5])
def test_the_way_back_from_a_position(position):
    step = CLOCK.at(position)
    assert step == CLOCK.step(step.sigma) and step.position == position


@pytest.mark.parametrize("sampler", POSITIONS)
def test_what_is_to_come_is_known_after_two_steps(sampler):
    positions = POSITIONS[sampler](12)
    clock = StepClock(run_of(12).sigmas)
    for index, position in enumerate(positions):
        if position >= 3:
            assert [step.position for step in clock.coming(positions[: index + 1])] == positions[index + 1 :]


def test_a_last_step_that_does_not_end_at_zero_is_evaluated_like_the_others():
    """Where only a part of the schedule is run."""
    assert [step.position for step in StepClock((1.0, 0.75, 0.5)).coming([0.0, 0.5])] == [1.0, 1.5]
    assert [step.position for step in StepClock((1.0, 0.75, 0.0)).coming([0.0, 0.5])] == [1.0]


@pytest.mark.parametrize("clock", [CLOCK, StepClock((1.0, 0.5, 0.25))])
def test_nothing_comes_after_the_last_sigma(clock):
    assert clock.coming([0.0, 1.0, float(clock.total)]) == []


def shifted(shift):
    """ComfyUI's percent_to_sigma for a flow model."""
    return lambda percent: shift * (1 - percent) / (1 + (shift - 1) * (1 - percent))


@pytest.mark.parametrize("shift", [1.0, 3.0, 12.0])
@pytest.mark.parametrize(
    ("first", "last", "fraction"), [(0, 20, 1.0), (0, 10, 0.5), (10, 20, 0.5), (15, 20, 0.25), (7, 8, 0.05)]
)
def test_the_fraction_of_a_cut_schedule(shift, first, last, fraction):
    sigmas = [shifted(shift)(step / 20) for step in range(first, last + 1)]
    assert part_covered(sigmas, shifted(shift))[1] == pytest.approx(fraction, abs=1e-6)
    assert part_covered(sigmas[::-1], shifted(shift))[1] == pytest.approx(fraction, abs=1e-6)


def test_a_model_whose_percents_jump_at_both_ends():
    """Models that predict noise answer 999999999.9 at 0 and 0.0 at 1, and 14.6 to 0.03 between."""

    def percent_to_sigma(percent):
        return 999999999.9 if percent <= 0 else 0.0 if percent >= 1 else 14.6 * (0.03 / 14.6) ** percent

    assert part_covered([14.6, 3.0, 0.03, 0.0], percent_to_sigma)[1] == pytest.approx(1, abs=1e-6)
    assert part_covered([14.6, 3.0, 0.6618], percent_to_sigma)[1] == pytest.approx(0.5, abs=1e-4)


def test_no_sigmas_are_no_part_of_anything():
    assert part_covered([], shifted(3.0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("steps", "fraction", "whole"),
    [(8, 1.0, 8), (5, 0.25, 20), (10, 0.99999, 10), (2, 0.5, 4), (3, 0.0, 3), (0, 1.0, 0)],
)
def test_steps_of_the_whole_schedule(steps, fraction, whole):
    run = Run(tuple(range(steps, -1, -1)), 1.0, 0.0, fraction)
    assert (run.steps, run.whole_steps) == (steps, whole)
