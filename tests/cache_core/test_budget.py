"""Where a budget lands, on drawn scores and on the evaluations of several kinds of samplers."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepcache.cache_core.method import CacheMethod
from stepcache.cache_core.methods import dbcache, teacache
from stepcache.cache_core.model_call import finite
from stepcache.cache_core.policies.budget import reference_profile
from stepcache.cache_core.report import Evaluation
from stepcache.cache_core.schedule import StepClock
from stepcache.cache_core.step_masks import step_mask
from stepcache.cache_core.types import Run

from .driving import POSITIONS, computed_in, run_of

many = settings(max_examples=60)

speedups = st.floats(1.0, 5.0)
steps = st.integers(4, 100)
samplers = st.sampled_from(sorted(POSITIONS))
sizes = st.floats(1e-6, 1e3)
profiles = st.one_of(
    st.builds(lambda size: [size], sizes),
    st.builds(lambda size, rate: [size * rate**i for i in range(200)], sizes, st.floats(1.01, 1.2)),  # rising
    st.builds(lambda size, rate: [size * rate**i for i in range(200)], sizes, st.floats(0.8, 0.99)),  # falling
    st.builds(lambda size, gap, spike: [size] * gap + [size * spike], sizes, st.integers(1, 20), st.floats(2.0, 1e3)),
    st.lists(st.floats(0.0, 10.0), min_size=1, max_size=60),
)
"""What the score grows by from one evaluation to the next: constant, rising, falling, with spikes, or anyhow."""


@dataclass(frozen=True)
class Landed:
    mask: str
    trace: list[Evaluation]

    @property
    def computed(self) -> int:
        return self.mask.count("1")

    def asked(self, speedup: float) -> float:
        """At least the first evaluation and the last step."""
        ends = sum(each.index == 0 or each.reason == "last step" for each in self.trace)
        return max(len(self.mask) / speedup, ends)

    def misses(self, speedup: float) -> bool:
        return abs(self.computed - self.asked(speedup)) > max(1.0, 0.05 * self.asked(speedup))


def land(method: CacheMethod, run: Run, positions: list[float], changes: list[float]) -> Landed:
    """Judge scores that grow by `changes` (taken in turn) since the last computed evaluation; the first is computed."""
    trace: list[Evaluation] = []
    policy, mask, score = method.new_policy(trace), "", math.inf
    clock = StepClock(run.sigmas)
    policy.begin(run, 0)
    for index, position in enumerate(positions):
        step = clock.at(position)
        trace.append(Evaluation(index, position, step.sigma))
        score += changes[index % len(changes)]
        decision = policy.decide(step, score)
        policy.reused(step) if decision.reuse else policy.computed(step, ())
        mask += "01"[not decision.reuse]
        trace[-1].signal = finite(score)
        trace[-1].reason, trace[-1].threshold = decision.reason, finite(decision.threshold)
        trace[-1].reused_calls, trace[-1].computed_calls = int(decision.reuse), int(not decision.reuse)
        score = score if decision.reuse else 0.0
    return Landed(mask, trace)


def landed(speedup, count, changes, sampler="euler", **limits) -> Landed:
    return land(teacache(0.1, speedup=speedup, **limits), run_of(count), POSITIONS[sampler](count), changes)


# -- landing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [[0.03], [1e-9], [1e9], [0.0], [0.001 * 1.1**i for i in range(100)], [0.5 * 0.95**i for i in range(100)],
     [0.01] * 9 + [1.0] * 3, [0.0, 0.0, 0.0, 5.0]],
    ids=["constant", "tiny", "huge", "zeros", "rising", "falling", "bursts", "rare"],
)  # fmt: skip
@pytest.mark.parametrize("sampler", POSITIONS)
def test_it_lands_whatever_the_signal_does(changes, sampler):
    for count in (4, 10, 28, 100):
        for speedup in (1.3, 2.0, 5.0):
            assert not landed(speedup, count, changes, sampler).misses(speedup), (count, speedup)


@many
@given(speedups, steps, samplers, profiles)
def test_it_lands_on_drawn_scores(speedup, count, sampler, changes):
    assert not landed(speedup, count, changes, sampler).misses(speedup)


@many
@given(speedups, steps, st.lists(st.sampled_from([0.02, 0.5, math.inf, math.nan]), min_size=1, max_size=60))
def test_scores_that_are_not_finite_compute_and_nothing_is_computed_beside_them_once_the_budget_is_spent(
    speedup, count, changes
):
    run = landed(speedup, count, changes)
    blind = [index for index in range(count) if not math.isfinite(changes[index % len(changes)])]
    assert set(blind) <= set(computed_in(run.mask))
    assert not run.misses(speedup) or run.computed - run.asked(speedup) <= len(blind) + 0.5
    assert run.computed >= run.asked(speedup) - 0.5


def test_a_short_spell_of_scores_that_are_not_finite_is_made_up_for():
    run = landed(2.5, 40, [0.02] * 6 + [math.nan] * 5 + [0.02] * 29)
    assert run.computed == 16 and run.mask[6:11] == "11111"


def test_without_speedup_the_threshold_stays_as_it_is():
    run = land(teacache(0.1), run_of(30), POSITIONS["euler"](30), [0.04])
    assert run.mask == "100" * 9 + "101"
    assert {evaluation.threshold for evaluation in run.trace[1:-1]} == {0.1}


# -- limits -----------------------------------------------------------------------------------------------------------

LIMITS = {
    "warm-up": dict(warmup=6),
    "in a row": dict(max_consecutive=2),
    "in all": dict(max_reused=9),
    "warm-up in part": dict(warmup=9, warmup_interval=3),
    "no last step": dict(last_step=False),
}


@many
@given(speedups, steps, st.sampled_from(sorted(LIMITS)), profiles)
def test_limits_hold_and_what_they_leave_lands_as_near_as_possible(speedup, count, name, changes):
    limits = LIMITS[name]
    run = landed(speedup, count, changes, **limits)
    fewest = landed(1e9, count, [1.0], **limits).computed
    asked = max(run.asked(speedup), fewest)
    assert abs(run.computed - asked) <= max(1.0, 0.05 * asked)
    assert set(run.mask[: limits.get("warmup", 1) : limits.get("warmup_interval", 1)]) == {"1"}
    assert "000" not in run.mask or "max_consecutive" not in limits


@pytest.mark.parametrize("sampler", POSITIONS)
@pytest.mark.parametrize(("start", "end"), [(1.0, 0.4), (0.7, 0.0), (0.8, 0.3)])
def test_windows_are_known_ahead(start, end, sampler):
    """What is computed outside is saved inside, before and after."""
    run = replace(run_of(40), start_sigma=start, end_sigma=end)
    landed_at = land(teacache(0.1, speedup=1.6), run, POSITIONS[sampler](40), [0.02, 0.04])
    assert not landed_at.misses(1.6)
    inside = [flag for flag, each in zip(landed_at.mask, landed_at.trace, strict=True) if end <= each.sigma <= start]
    assert 0 < inside.count("1") < len(inside)


def test_masked_steps_are_in_the_budget():
    run = land(dbcache(0.1, 1, mask="ultra", speedup=2.0), run_of(28), POSITIONS["euler"](28), [0.03])
    assert run.computed == 14 and step_mask("ultra", 28) < set(computed_in(run.mask))


def test_a_limit_on_accumulated_changes_holds_under_a_budget():
    """It is the policy's own: evaluations that the budget decides count, too."""
    run = land(dbcache(0.1, 1, max_accumulated=0.5, speedup=4.0), run_of(40), POSITIONS["euler"](40), [0.03])
    reasons = [each.reason for each in run.trace]
    first = next(index for index, reason in enumerate(reasons) if reason.endswith(" in all"))
    judged = sum(each.signal for each in run.trace[1:first])
    assert judged >= 0.5 > judged - run.trace[first - 1].signal
    assert set(run.mask[first:]) == {"1"} and run.misses(4.0)


# -- the signal decides -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(2, 35))
def test_a_sudden_change_is_computed_where_it_happens(at):
    """Up to the last that the budget has beside the last step."""
    calm = landed(2.5, 40, [0.02])
    changes = [0.02] * 40
    changes[at] = 0.6
    sudden = landed(2.5, 40, changes)
    assert sudden.mask[at] == "1" and sudden.computed == calm.computed == 16
    assert sudden.mask[:at] == calm.mask[:at]


@pytest.mark.parametrize("first", [6, 16, 26])
def test_more_is_computed_while_more_changes(first):
    lively = [0.02] * first + [0.06] * 8 + [0.02] * 40
    more, usual = (landed(2.5, 40, changes).mask[first : first + 8].count("1") for changes in (lively, [0.02]))
    assert more > usual


@many
@given(st.floats(-12, 12), st.floats(1.2, 4.0))
def test_the_scale_of_the_signal_does_not_matter_for_long(exponent, speedup):
    """Nor does the threshold at the start: after some evaluations it is where the signal is."""
    changes = [0.02, 0.03, 0.025]
    near, far = (landed(speedup, 60, [scale * change for change in changes]) for scale in (1.0, 10.0**exponent))
    ahead = [index for index in computed_in(near.mask) if 12 <= index < 48]
    assert abs(len(ahead) - sum(12 <= index < 48 for index in computed_in(far.mask))) <= 4


def test_early_steps_are_computed_more_densely():
    """Their errors count most."""
    mask = landed(2.5, 40, [0.02]).mask
    quarters = [mask[start : start + 10].count("1") for start in range(0, 40, 10)]
    assert quarters[0] > quarters[1] >= quarters[2] >= quarters[3] - 1


def test_the_reason_says_what_is_spent():
    run = landed(2.0, 28, [0.03])
    assert run.trace[1].reason == "accumulated change 0.0300 < 0.03333 (budget 14, 1 spent)"
    assert all("(budget 14, " in each.reason for each in run.trace[1:-1])
    assert run.trace[-1].reason == "last step"


# -- how densely --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.0, 700.0), min_size=2, max_size=30))
@many
def test_every_step_has_a_weight(sigmas):
    """Also where sigmas repeat, rise, or are no times of a flow."""
    weights = reference_profile(sigmas)
    mean = sum(weights) / len(weights)
    assert len(weights) == len(sigmas) - 1 and min(weights) >= 0.2 * mean > 0
