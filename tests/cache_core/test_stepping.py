"""EX-SC1, EX-SC3 to EX-SC5, I-20: when SoftCache reuses, how far it steps then, and what becomes of the schedule."""

import math
from itertools import pairwise

import numpy
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepcache.cache_core.methods import softcache
from stepcache.cache_core.stepping import TOLERANCE, AdaptiveSchedule, StepRule, before_shift, evenly, falling, shifted
from stepcache.cache_core.types import Step

UNIFORM = [1 - i / 10 for i in range(11)]
SHIFT_3 = [shifted(sigma, 3) for sigma in UNIFORM]


def followed(steps: AdaptiveSchedule, changes=0.04):
    """Euler with dx/dt = 1 + t from x = 1: the visited sigmas, 'F' or 'C' for each, the landings, and the last x.

    1 + t is what is cached; `changes` is the change at every node, or a function of its index.
    """
    predictor, x, mask, visited, landings = softcache(1.0).new_predictor(), 1.0, "", [], []
    while not steps.ended:
        here, at = steps.sigma, Step(0.0, 10, steps.sigma)
        change = changes(steps.index) if callable(changes) else changes
        reused = bool(mask) and steps.decide(at, change).reuse
        if reused:
            (velocity,) = predictor.predict(at)
        else:
            velocity = torch.tensor([2 - here], dtype=torch.float64)
            predictor.update(at, (velocity,))
        mask += "FC"[reused]
        visited.append(here)
        landings.append(steps.land(reused))
        x += (here - landings[-1].sigma) * float(velocity)
    return visited, mask, landings, x


def lengths(visited, landings):
    return [here - landing.sigma for here, landing in zip(visited, landings, strict=True)]


def near(values):
    return pytest.approx(values, rel=1e-5, abs=1e-6)


def test_a_step_by_the_headroom_and_the_tail_after_it():
    """EX-SC1."""
    steps = AdaptiveSchedule(StepRule(0.1, early_guard=0.15), UNIFORM)
    steps.land(reused=False)
    assert steps.decide(None, 0.02).reuse
    assert steps.land(reused=True).stride == near(1.0)  # guarded
    assert steps.decide(None, 0.03).reuse
    landing = steps.land(reused=True)
    assert (landing.headroom, landing.stride, landing.sigma) == near((0.5, 4.5, 0.35))
    assert [1 - sigma for sigma in steps.sigmas[3:]] == near([0.65, 0.766667, 0.883333, 1])


def test_a_run_on_a_uniform_schedule():
    """EX-SC3."""
    visited, mask, landings, x = followed(AdaptiveSchedule(StepRule(0.1), UNIFORM))
    assert mask == "FCCF" and x == near(2.070224)
    assert [1 - sigma for sigma in visited] == near([0, 0.1, 0.62, 0.924])
    assert lengths(visited, landings) == near([0.1, 0.52, 0.304, 0.076])


def test_no_threshold_is_euler():
    """EX-SC3."""
    for threshold in (0.0, 1e-9):
        visited, mask, _, x = followed(AdaptiveSchedule(StepRule(threshold), UNIFORM))
        assert visited == UNIFORM[:-1] and mask == "F" * 10 and x == near(2.45)


def test_a_stride_of_one_visits_all_nodes():
    """EX-SC3."""
    visited, mask, _, x = followed(AdaptiveSchedule(StepRule(0.1, max_stride=1), UNIFORM))
    assert visited == UNIFORM[:-1] and mask == "FCCFCCFCCF" and x == near(2.42)


@pytest.mark.parametrize(
    ("tail", "lands", "mask", "last"),
    [("t", [0.463636, 0.0], "FCCFCC", 2.320243), ("u", [0.463636, 0.008974, 0.0], "FCCFCCF", 2.324323)],
)
def test_a_run_on_a_shifted_schedule(tail, lands, mask, last):
    """EX-SC4."""
    visited, taken, landings, x = followed(AdaptiveSchedule(StepRule(0.1, tail=tail), SHIFT_3, shift=3.0))
    assert (taken, x) == (mask, near(last))
    assert [1 - sigma for sigma in visited[:3]] == near([0, 0.035714, 0.076923])
    assert [landing.stride for landing in landings[:4]] == near([1, 1, 1, 1])  # guarded, or computed
    assert visited[3:5] == near([0.875, 0.818182])
    assert [landing.sigma for landing in landings[4:]] == near(lands)
    assert followed(AdaptiveSchedule(StepRule(0.0), SHIFT_3))[3] == near(2.428359)


def test_a_large_change_keeps_the_native_length():
    """EX-SC5."""
    steps = AdaptiveSchedule(StepRule(0.3), UNIFORM)
    visited, mask, landings, x = followed(steps, changes=lambda index: 0.2 if index == 2 else 0.02)
    assert mask == "FCC" and x == near(2.0)
    assert visited == near([1, 0.9, 0.146667])
    assert lengths(visited, landings) == near([0.1, 0.753333, 0.146667])


def test_the_shift_and_its_inverse():
    assert [before_shift(sigma, 3) for sigma in SHIFT_3] == near(UNIFORM)
    assert shifted(before_shift(0.463636, 3.158193), 3.158193) == near(0.463636)
    assert evenly(0.463636, 0.0, 2, shift=3) == near([0.463636, 0.274194, 0.0])


def test_the_largest_change_of_the_branches_counts():
    steps = AdaptiveSchedule(StepRule(0.1), UNIFORM)
    steps.land(reused=False)
    assert steps.decide(None, 0.03).reuse and steps.decide(None, 0.06).reuse and steps.decide(None, 0.01).reuse
    assert steps.land(reused=True).headroom == near(0.4)
    assert not steps.decide(None, 0.05).reuse


@pytest.mark.parametrize("change", [None, math.nan, math.inf])
def test_a_change_that_is_not_known_computes(change):
    steps = AdaptiveSchedule(StepRule(1e9), UNIFORM)
    steps.land(reused=False)
    assert not steps.decide(None, change).reuse
    assert not steps.decide(None, 0.01).reuse  # what another branch says later does not mend it
    assert steps.land(reused=False).sigma == UNIFORM[2]
    assert steps.decide(None, 0.01).reuse


def test_a_long_step_ends_where_something_changes():
    steps = AdaptiveSchedule(StepRule(1.0), UNIFORM, stops=[0.625, 0.95, 0.25])
    for reused in (False, True, True):
        steps.land(reused)
    assert steps.sigmas[:4] == near([1.0, 0.9, 0.625, 0.25])
    steps = AdaptiveSchedule(StepRule(1.0), UNIFORM, stops=[0.875])
    steps.land(reused=False)
    steps.land(reused=True)
    assert steps.sigmas[2:] == near([0.875 * i / 8 for i in range(8, -1, -1)])  # one step fewer than before


def test_a_change_just_behind_a_node_is_passed_as_by_any_sampler():
    behind = float(numpy.nextafter(numpy.float32(0.5), numpy.float32(0)))
    steps = AdaptiveSchedule(StepRule(1.0), [1.0, 0.75, 0.5, 0.25, 0.0], stops=[behind])
    for reused in (False, False, True, True):
        steps.land(reused)
    assert steps.sigmas == [1.0, 0.75, 0.5, 0.25, 0.0]
    steps = AdaptiveSchedule(StepRule(1.0), [1.0, 0.75, 0.5, 0.25, 0.0], stops=[behind])
    steps.land(reused=False)
    steps.land(reused=True)  # a long step goes behind the change
    assert steps.sigmas == [1.0, 0.75, behind, 0.25, 0.0]


def test_of_two_changes_at_one_place_a_long_step_passes_both():
    """One conditioning ends where the next begins."""
    behind = float(numpy.nextafter(numpy.float32(0.625), numpy.float32(0)))
    steps = AdaptiveSchedule(StepRule(1.0), UNIFORM, stops=[0.625, behind])
    steps.land(reused=False)
    assert steps.land(reused=True).sigma == behind
    assert steps.land(reused=True).sigma < 0.3


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (dict(threshold=-0.1), "threshold is -0.1. Use a number from 0 up"),
        (dict(threshold=math.nan), "threshold is nan"),
        (dict(threshold=math.inf), "threshold is inf"),
        (dict(max_stride=0.5), "max_stride is 0.5. Use a number from 1 up"),
        (dict(early_guard=-1), "early_guard is -1"),
        (dict(change_guard=math.nan), "change_guard is nan"),
        (dict(tail="v"), "tail is 'v'. Use one of t, u"),
    ],
)
def test_rules_out_of_range_are_refused_with_the_cure(values, problem):
    with pytest.raises(ValueError, match=problem):
        StepRule(**{"threshold": 0.1, **values})


def test_repeated_sigmas_are_one_node_and_rising_ones_are_refused():
    assert falling([1.0, 1.0, 0.5, 0.0, 0.0]) == [1.0, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"rise from 0.5 to 0.7.*another sampler"):
        falling([1.0, 0.5, 0.7, 0.0])


# -- any schedule ---------------------------------------------------------------------------------------------------------

sigmas_32 = st.floats(0, 1, width=32, allow_subnormal=False)
schedules = st.lists(sigmas_32, min_size=2, max_size=40, unique=True).map(lambda drawn: sorted(drawn, reverse=True))
rules = st.builds(
    StepRule,
    threshold=st.floats(0, 3),
    max_stride=st.floats(1, 40),
    early_guard=st.floats(0, 1),
    change_guard=st.floats(0, 1),
    tail=st.sampled_from(["t", "u"]),
)
changes = st.lists(st.floats(0, 1), min_size=40, max_size=40)
shifts = st.floats(0.5, 12)


def run_through(steps, change_of, forced=()):
    """The landings; `forced` nodes are computed whatever `decide` says."""
    landings = []
    while not steps.ended:
        index = steps.index
        reuse = index > 0 and steps.decide(None, change_of[index]).reuse and index not in forced
        landings.append(steps.land(reuse))
        assert len(landings) <= steps.native_steps
    return landings


@settings(max_examples=150)
@example(StepRule(1.0, max_stride=1.1, early_guard=0.0), [1.0, 0.75390625, 0.75, 0.0], [0.0] * 40, 1.0, [], set())
@given(rules, schedules, changes, shifts, st.lists(sigmas_32, max_size=4), st.sets(st.integers(0, 39)))
def test_sigmas_fall_to_the_last_in_no_more_steps_than_the_schedule_has(rule, native, change_of, shift, stops, forced):
    """I-20."""
    steps = AdaptiveSchedule(rule, native, stops, shift)
    landings = run_through(steps, change_of, forced)
    nodes = [native[0], *(landing.sigma for landing in landings)]
    assert nodes == steps.sigmas and nodes[-1] == native[-1]
    assert all(high > low for high, low in pairwise(nodes))
    assert all(float(numpy.float32(sigma)) == sigma for sigma in nodes)
    for here, landing in zip(nodes, landings, strict=False):
        longest = rule.max_stride * (here - landing.sigma) / landing.stride  # times the native interval
        assert not landing.headroom or here - landing.sigma <= longest * (1 + 1e-6) + TOLERANCE


@settings(max_examples=100)
@given(rules, schedules, changes, st.lists(sigmas_32, min_size=1, max_size=4))
def test_no_long_step_passes_a_stop(rule, native, change_of, stops):
    steps = AdaptiveSchedule(rule, native, stops)
    while not steps.ended:
        here, following = steps.sigma, steps.sigmas[steps.index + 1]
        landed = steps.land(steps.index > 0 and steps.decide(None, change_of[steps.index]).reuse).sigma
        assert landed == following or not any(landed + TOLERANCE < stop < here - TOLERANCE for stop in steps.stops)


@settings(max_examples=50)
@given(schedules, changes)
def test_the_native_schedule_is_followed_where_nothing_allows_more(native, change_of):
    for rule in (
        StepRule(0.0),
        StepRule(1.0, max_stride=1),
        StepRule(1.0, early_guard=2),
        StepRule(1.0, change_guard=0),
    ):
        steps = AdaptiveSchedule(rule, native)
        run_through(steps, [change + 1e-3 for change in change_of])
        assert steps.sigmas == native
