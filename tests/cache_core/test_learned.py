"""What was learned of a model, and its form as a file, whoever wrote that."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcache.cache_core.forecasting import Segment
from stepcache.cache_core.learned import (
    MOST_CHARACTERS,
    MOST_RECORDINGS,
    Conditions,
    KeptPlan,
    Learned,
    ModelProfile,
    evaluations_for,
)
from stepcache.cache_core.recording import MOST_STEPS, Recording

from .recordings import CALIBRATIONS, even, few, full_profile, kinds, learned, recorded, seeds, smooth

PLAIN = Conditions("ode", False, 8)
DOCUMENT = json.loads(full_profile().as_json())

HOSTILE = [
    None, "", "x" * 10_000, "1e999", [], [[]], {}, {"0": 0}, True, math.nan, math.inf, -math.inf, -1, -1e300, 0, 0.5, 10**400,
    10**15, 1e15, [0] * 5000, [[[[[1]]]]], {"a": {"b": {"c": []}}},
]  # fmt: skip


# -- as a file ----------------------------------------------------------------------------------------------------------------


def test_it_goes_through_a_file():
    profile = full_profile()
    again = ModelProfile.from_json(profile.as_json())
    assert json.loads(again.as_json()) == DOCUMENT
    assert (again.model, again.identity) == (profile.model, profile.identity)
    assert again.learned == profile.learned and again.calibrations.keys() == CALIBRATIONS.keys()


@few
@given(st.integers(1, 20), seeds, kinds, st.booleans(), st.integers(1, 9))
def test_every_recording_goes_through_a_file(steps, seed, kind, guided, runs):
    recording = recorded(kind(steps, seed), runs=runs)
    profile = ModelProfile("M", "id").with_learned(Learned(Conditions("sde", guided, 3, "ab"), recording))
    assert ModelProfile.from_json(profile.as_json()).learned == profile.learned


def largest(plans) -> str:
    """A profile as full as it gets, with these plans in each of its recordings."""
    (one,) = ModelProfile("", "").with_learned(replace(learned(MOST_STEPS), plans=plans)).learned
    return ModelProfile("M", "id", (one,) * MOST_RECORDINGS).as_json()


def test_the_largest_profile_can_be_read_again():
    text = largest({n: KeptPlan(tuple(range(n))) for n in range(2, MOST_STEPS)})
    assert len(text) < MOST_CHARACTERS / 2 and len(ModelProfile.from_json(text).learned) == MOST_RECORDINGS


def test_the_largest_profile_can_be_read_again_also_if_every_plan_was_tuned():
    tuned = [Segment(at, at + 1, -2.7183, -0.1416) for at in range(MOST_STEPS)]
    text = largest({n: KeptPlan(tuple(range(n)), tuple(tuned[:n])) for n in range(2, MOST_STEPS)})
    assert len(text) < 0.75 * MOST_CHARACTERS and len(ModelProfile.from_json(text).learned) == MOST_RECORDINGS


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("no json", "Expecting value"),
        ("[]", "no set of values"),
        ("null", "no set of values"),
        ("{}", "format is missing"),
        ('{"format": "stepcache profile"}', "version is missing"),
        ('{"format": "a recipe"}', 'is not "stepcache profile"'),
        ('{"format": "stepcache profile", "version": 99}', "version 99"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (" " * (MOST_CHARACTERS + 1), "at most"),
        ('{"format": ' + "9" * 10_000 + "}", None),
        (json.dumps(DOCUMENT)[:-7], None),
    ],
)
def test_what_is_no_profile_is_refused_with_a_reason(text, problem):
    with pytest.raises(ValueError, match=problem):
        ModelProfile.from_json(text)


def paths(value, path=()):
    """Of every value in a document, the containers among them."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from paths(value[key], (*path, key))


def changed(value, path, put):
    """A copy of a document with a value put at a path, or nothing with `put` = `...`."""
    if not path:
        return put
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if put is ... and not rest:
        del copy[key]
    else:
        copy[key] = changed(value[key], rest, put) if rest else put
    return copy


def read(document):
    """The profile, or None if it is refused as it should be; what is raised besides fails the test."""
    try:
        return ModelProfile.from_json(json.dumps(document))
    except ValueError as problem:
        assert str(problem)
        return None


def assert_usable(profile):
    """It can be written, and planned with."""
    assert ModelProfile.from_json(profile.as_json()).learned == profile.learned
    for each in profile.learned:
        plan = each.plan(2)
        assert plan.steps[0] == 0 and plan.segment_after(plan.steps[:1]).start == 0
        assert each.merged(each.recording).recording.runs == 2 * each.recording.runs


@pytest.mark.parametrize("path", list(paths(DOCUMENT)), ids=lambda path: ".".join(map(str, path)))
def test_a_wrong_value_anywhere_is_refused_or_does_no_harm(path):
    for put in (..., *HOSTILE):
        profile = read(changed(DOCUMENT, path, put))
        if profile is not None:
            assert_usable(profile)


@pytest.mark.parametrize(
    "path",
    [
        ("model",), ("identity",), ("version",), ("learned",), ("calibrations",),
        *(("learned", 1, name) for name in ("sigmas", "products", "flow", "runs", "sampler", "guided", "size", "plans")),
        ("learned", 1, "factors"),
        ("learned", 1, "products", 2, 1), ("learned", 1, "plans", "2"), ("learned", 1, "factors", "3", 1),
        ("calibrations", "teacache", "coefficients"), ("calibrations", "magcache", "ratios", "cond"),
        ("calibrations", "dpcache", "plans", "3"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)  # fmt: skip
def test_a_value_of_another_type_is_refused(path):
    for put in (None, [[[]]], {"a": 1}, 10**400, math.nan, 1e999):
        assert read(changed(DOCUMENT, path, put)) is None or (
            put == {"a": 1} and path[-1] in ("calibrations", "factors")
        )


@pytest.mark.parametrize(
    "path", [path for path in paths(DOCUMENT) if isinstance(path[-1], str)], ids=lambda path: ".".join(map(str, path))
)
def test_a_value_that_is_missing_is_refused(path):
    own_choice = "factors" in path or path[-2:-1] in (("plans",), ("ratios",), ("calibrations",))  # some, or none
    if read(changed(DOCUMENT, path, ...)) is not None:
        assert own_choice and path != ("calibrations", "magcache", "ratios", "cond")


@pytest.mark.parametrize("runs", [0, -1, 1.5, 10**400, "2"])
def test_a_number_of_runs_that_cannot_be_is_refused(runs):
    assert read(changed(DOCUMENT, ("learned", 0, "runs"), runs)) is None


def test_a_table_of_too_many_steps_is_refused_before_it_is_made():
    many = {**DOCUMENT["learned"][0], "sigmas": list(even(300_000)), "products": [[1]] * 300_000}
    with pytest.raises(ValueError, match="does not fit"):
        Recording.from_dict(many)


def test_what_a_newer_pack_adds_is_left_out():
    later = changed(DOCUMENT, ("learned", 0), DOCUMENT["learned"][0] | {"later": [1]})
    later = changed(later, ("calibrations", "later"), {"a": 1}) | {"later": {"a": 1}}
    assert json.loads(read(later).as_json()) == DOCUMENT


@pytest.mark.parametrize("put", [[0, 0], [1, 2], [0, 9], [0, 1.5], [0, True], [0], [], [0, -1]])
def test_a_plan_that_is_none_is_refused(put):
    assert read(changed(DOCUMENT, ("learned", 1, "plans", "2"), put)) is None


@pytest.mark.parametrize(
    "put", [[[0, 0]] * 2, [[0, 0]] * 4, [[0, 0, 0]] * 3, [[0, 3.5]] * 3, [[0, 0], [0, 0], [0]], [0] * 6]
)
def test_factors_that_do_not_fit_the_plan_are_refused(put):
    assert read(changed(DOCUMENT, ("learned", 1, "factors", "3"), put)) is None


def test_a_profile_from_before_there_were_factors_is_read():
    plan = read(changed(DOCUMENT, ("learned", 1, "factors"), ...)).learned[1].plans[3]
    assert plan == KeptPlan((0, 1, 2)) != full_profile().learned[1].plans[3]


# -- what serves a run --------------------------------------------------------------------------------------------------------


def found(kept, sigmas, *known):
    return ModelProfile("M", "id", known).find(kept, sigmas)


def test_what_was_learned_with_these_sigmas_is_taken_as_it_is():
    others = [learned(14), learned(24), learned(12, sigmas=tuple(sigma**1.2 for sigma in even(12)))]
    exact = learned(12)
    for known in ([exact, *others], [*others, exact]):
        assert found(PLAIN, even(12), *known) is exact


@pytest.mark.parametrize("sigmas", [(), (1.0,)])
def test_a_run_without_steps_is_served_nothing(sigmas):
    assert found(PLAIN, sigmas, learned(12)) is None


def test_of_others_the_one_with_as_many_steps_is_adapted():
    result = found(PLAIN, even(13), learned(40), learned(14), learned(10))
    assert result.recording.sigmas == even(13) and result.conditions == PLAIN
    assert result.recording.distance(3, 8) == pytest.approx(learned(14).recording.resampled(even(13)).distance(3, 8))


def test_plans_are_of_the_schedule_they_were_made_for():
    planned = replace(learned(12), plans={4: KeptPlan((0, 1, 2, 5))})
    assert found(PLAIN, even(12), planned).plan(4).steps == (0, 1, 2, 5)
    assert found(PLAIN, even(13), planned).plans == {}
    assert planned.plan(4, longest=3).steps != (0, 1, 2, 5) and planned.merged(planned.recording).plans == {}


def test_tuned_plans_hold_whatever_more_is_recorded_but_not_for_another_schedule():
    tuned = KeptPlan((0, 1, 5), (Segment(0, 1), Segment(1, 5, 0.5), Segment(5, 12, 1.5, -0.5)))
    planned = replace(learned(12), plans={3: tuned, 4: KeptPlan((0, 1, 2, 5))})
    assert planned.tuned_plans == planned.merged(planned.recording).plans == {3: tuned}
    assert planned.plan(3).tuned == tuned.tuned and found(PLAIN, even(13), planned).plan(3).tuned == ()


def test_what_was_learned_with_the_same_loras_goes_before_what_is_nearer():
    with_lora, without = learned(20, patches="abcd"), learned(12)
    assert found(replace(PLAIN, patches="abcd"), even(12), with_lora, without).conditions.patches == "abcd"
    assert found(replace(PLAIN, patches="ffff"), even(12), without).conditions.patches == ""


@pytest.mark.parametrize(("size", "taken"), [(8, 8), (7, 8), (9, 8), (10, 11), (6, None), (13, None)])
def test_sizes_may_differ_by_a_factor_of_two(size, taken):
    result = found(replace(PLAIN, size=size), even(12), learned(12, size=8), learned(12, size=11))
    assert (result.conditions.size if result else None) == taken


@pytest.mark.parametrize("other", [dict(sampler="sde"), dict(guided=True)])
def test_another_kind_of_sampler_or_guidance_never_serves(other):
    assert found(PLAIN, even(12), learned(12, **other)) is None


def test_a_coarse_recording_does_not_serve_much_finer_schedules():
    assert found(PLAIN, even(24), learned(12)) is not None
    assert found(PLAIN, even(25), learned(12)) is None
    assert found(PLAIN, even(10), learned(100)) is not None


def test_a_part_of_a_schedule_does_not_serve_the_other():
    assert found(PLAIN, even(20)[10:], learned(10, sigmas=even(20)[:11])) is None
    assert found(PLAIN, even(20)[10:], learned(20)) is not None


def test_the_newest_replaces_what_was_learned_with_the_same_and_the_oldest_gives_way():
    profile = ModelProfile("M", "id")
    for steps in range(4, 4 + MOST_RECORDINGS + 3):
        profile = profile.with_learned(learned(steps))
    assert [each.recording.steps for each in profile.learned] == list(range(7, 7 + MOST_RECORDINGS))
    again = profile.with_learned(learned(10, runs=2))
    assert len(again.learned) == MOST_RECORDINGS
    assert (again.learned[-1].recording.runs, again.learned[-1].recording.steps) == (2, 10)


# -- how many steps to compute ------------------------------------------------------------------------------------------------


@few
@given(st.floats(0.1, 100), st.integers(2, 200))
def test_the_number_of_evaluations_is_possible(speedup, steps):
    count = evaluations_for(speedup, steps)
    assert 2 <= count <= steps and abs(count - min(max(steps / max(speedup, 1), 2), steps)) <= 0.5


def test_smooth_outputs_are_what_tests_take_them_for():
    assert recorded(smooth(9)).distance(0, 1) > recorded(smooth(9)).distance(3, 4)
