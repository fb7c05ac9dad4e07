"""Where a budget lands, on drawn scores and on the evaluations of several kinds of samplers."""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepcache.cache_core.method import CacheMethod
from stepcache.cache_core.methods import dbcache, teacache
from stepcache.cache_core.policies.budget import coming_steps, reference_profile, step_at
from stepcache.cache_core.report import Evaluation, RunReport
from stepcache.cache_core.step_masks import step_mask
from stepcache.cache_core.types import Run

from .driving import computed_in, run_of

many = settings(max_examples=40, deadline=None, derandomize=True, database=None)

SAMPLERS = {
    "euler": lambda steps: [float(i) for i in range(steps)],
    "heun": lambda steps: [0.0, *(float(i) for i in range(1, steps) for _ in range(2))],
    "dpm_2": lambda steps: [i / 2 for i in range(2 * steps - 1)],
    "three a step": lambda steps: [i / 4 for i in range(4 * steps - 3) if i % 4 < 3],
    "heunpp2": lambda steps: [0.0, 1.0, 1.0, *(float(i) for i in range(2, steps) for _ in range(3))],
}
"""Positions of the evaluations by the number of steps."""

speedups = st.floats(1.0, 5.0)
steps = st.integers(10, 100)
samplers = st.sampled_from(sorted(SAMPLERS))


@dataclass(frozen=True)
class Landed:
    mask: str
    trace: list[Evaluation]

    @property
    def computed(self) -> int:
        return self.mask.count("1")

    def asked(self, speedup: float) -> float:
        return len(self.mask) / speedup

    def misses(self, speedup: float) -> bool:
        return abs(self.computed - self.asked(speedup)) > max(1.0, 0.05 * self.asked(speedup))


def land(method: CacheMethod, run: Run, positions: list[float], changes: list[float]) -> Landed:
    """Judge scores that grow by `changes` (taken in turn) since the last computed evaluation; the first is computed."""
    trace: list[Evaluation] = []
    policy, mask, score = method.new_policy(trace), "", math.inf
    policy.begin(run, 0)
    for index, position in enumerate(positions):
        step = step_at(position, run.sigmas)
        trace.append(Evaluation(index, position, step.sigma))
        score += changes[index % len(changes)]
        decision = policy.decide(step, score)
        policy.reused(step) if decision.reuse else policy.computed(step, ())
        mask += "01"[not decision.reuse]
        trace[-1].signal = score if math.isfinite(score) else None
        trace[-1].reason, trace[-1].threshold = decision.reason, decision.threshold
        trace[-1].reused_calls, trace[-1].computed_calls = int(decision.reuse), int(not decision.reuse)
        score = score if decision.reuse else 0.0
    return Landed(mask, trace)


def landed(speedup, count, changes, sampler="euler", **limits) -> Landed:
    return land(teacache(0.1, speedup=speedup, **limits), run_of(count), SAMPLERS[sampler](count), changes)


# -- landing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [[0.03], [1e-9], [1e9], [0.0], [0.001 * 1.1**i for i in range(100)], [0.5 * 0.95**i for i in range(100)],
     [0.01] * 9 + [1.0] * 3, [0.0, 0.0, 0.0, 5.0]],
    ids=["constant", "tiny", "huge", "zeros", "rising", "falling", "bursts", "rare"],
)  # fmt: skip
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_it_lands_whatever_the_signal_does(changes, sampler):
    for count in (10, 28, 100):
        for speedup in (1.0, 1.3, 2.0, 3.0, 5.0):
            assert not landed(speedup, count, changes, sampler).misses(speedup), (count, speedup)


@many
@given(speedups, steps, samplers, st.lists(st.floats(0.0, 10.0), min_size=1, max_size=60))
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
    run = land(teacache(0.1), run_of(30), SAMPLERS["euler"](30), [0.04])
    assert run.mask == "100" * 9 + "101"
    assert {evaluation.threshold for evaluation in run.trace[1:-1]} == {0.1}


# -- limits -----------------------------------------------------------------------------------------------------------

LIMITS = {
    "warm-up": dict(warmup=6),
    "in a row": dict(max_consecutive=2),
    "in all": dict(max_reused=9),
    "no last step": dict(last_step=False),
}


@many
@given(speedups, steps, st.sampled_from(sorted(LIMITS)), st.lists(st.floats(0.0, 10.0), min_size=1, max_size=60))
def test_limits_hold_and_what_they_leave_lands_as_near_as_possible(speedup, count, name, changes):
    limits = LIMITS[name]
    run = landed(speedup, count, changes, **limits)
    fewest = landed(1e9, count, [1.0], **limits).computed
    asked = max(run.asked(speedup), fewest)
    assert abs(run.computed - asked) <= max(1.0, 0.05 * asked)
    assert run.mask[: limits.get("warmup", 1)] == "1" * limits.get("warmup", 1)
    assert "000" not in run.mask or "max_consecutive" not in limits


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("start", "end"), [(1.0, 0.4), (0.7, 0.0), (0.8, 0.3)])
def test_windows_are_known_ahead(start, end, sampler):
    """What is computed outside is saved inside, before and after."""
    run = replace(run_of(40), start_sigma=start, end_sigma=end)
    landed_at = land(teacache(0.1, speedup=1.6), run, SAMPLERS[sampler](40), [0.02, 0.04])
    assert not landed_at.misses(1.6)
    inside = [flag for flag, each in zip(landed_at.mask, landed_at.trace, strict=True) if end <= each.sigma <= start]
    assert 0 < inside.count("1") < len(inside)


def test_masked_steps_are_in_the_budget():
    run = land(dbcache(0.1, 1, mask="ultra", speedup=2.0), run_of(28), SAMPLERS["euler"](28), [0.03])
    assert run.computed == 14 and step_mask("ultra", 28) < set(computed_in(run.mask))


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


# -- what is still to come --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_is_to_come_is_known_after_two_steps(sampler):
    run, positions = run_of(12), SAMPLERS[sampler](12)
    past = [Evaluation(index, position) for index, position in enumerate(positions)]
    for index, position in enumerate(positions):
        coming = coming_steps(past[:index], step_at(position, run.sigmas), run.sigmas)
        if position >= 3:
            assert [step.position for step in coming] == positions[index + 1 :]


def test_a_step_between_two_sigmas():
    step = step_at(1.25, (1.0, 0.8, 0.4, 0.0))
    assert (step.index, step.total, step.next_sigma) == (1, 3, 0.4) and step.sigma == pytest.approx(0.7)


@given(st.lists(st.floats(0.0, 700.0), min_size=2, max_size=30))
@many
def test_every_step_has_a_weight(sigmas):
    """Also where sigmas repeat, rise, or are no times of a flow."""
    weights = reference_profile(sigmas)
    mean = sum(weights) / len(weights)
    assert len(weights) == len(sigmas) - 1 and min(weights) >= 0.2 * mean > 0


# -- the report -------------------------------------------------------------------------------------------------------


def report(mask: str, reason: str = "warm-up") -> RunReport:
    trace = [
        Evaluation(i, float(i), 1.0, reason if i < 6 else "change", 0.1, int(flag), 1 - int(flag), 1.0,
                   None if i < 6 else 0.01 * i)
        for i, flag in enumerate(mask)
    ]  # fmt: skip
    return RunReport("m", settings={"speedup": 2.0, "threshold": 0.1}, steps=len(mask), trace=trace)


def test_the_report_shows_where_the_threshold_was():
    made = report("111000101001")
    made.note_budget(2.0)
    assert made.settings == {"speedup": 2.0, "threshold": "0.06 to 0.11"} and made.messages == []


def test_one_message_says_that_the_budget_was_impossible():
    made = report("111111110001")
    made.note_budget(2.0)
    made.note_budget(2.0)
    assert made.messages == ["Speedup 2 asks for 6 computed evaluations, 9 were (6 by: warm-up)"]


def test_a_run_that_was_stopped_misses_nothing():
    made = replace(report("111111"), steps=12)
    made.note_budget(2.0)
    assert made.messages == []
