"""Figures and texts of a report."""

import json

import pytest

from stepcache.cache_core.report import Evaluation, RunReport


def report():
    trace = [
        Evaluation(i, float(i), 1 - i / 4, "because", 0.1, 1 - i % 2, i % 2, s) for i, s in enumerate((9, 1, 2, 1))
    ]
    return RunReport("TeaCache", "Flux", {"threshold": 0.1}, ["note"], 4, trace, 2**20, 4, 13.0, True)


def test_counts_and_estimated_speedup():
    """The first computed evaluation (9 s, with loading) is left out: 3 x 2 s over 4 s."""
    assert (report().evaluations, report().computed, report().reused, report().speedup) == (4, 2, 2, 1.5)


@pytest.mark.parametrize(
    ("steps", "hits", "cost", "speedup"),
    [(28, 12, 0.0, 1.75), (28, 12, 1 / 57, 1.727273), (28, 14, 0.0, 2.0), (50, 40, 0.1, 3.571429)],
)
def test_reused_evaluations_are_not_free(steps, hits, cost, speedup):
    """EX-C2, after a first evaluation that does not count."""
    trace = [Evaluation(0, computed_calls=1, seconds=99.0)]
    for index in range(steps):
        reused = index < hits
        trace.append(Evaluation(index + 1, None, None, "", None, 1 - reused, int(reused), cost if reused else 1.0))
    assert RunReport("m", trace=trace).speedup == pytest.approx(speedup, rel=1e-5)


def test_nothing_reused_is_no_speedup():
    assert RunReport("m", trace=[Evaluation(0, computed_calls=1, seconds=1.0)]).speedup == 1.0
    assert RunReport("m").speedup == 1.0


def test_texts():
    assert report().summary() == "2 of 4 reused · 1.50x · 1.0 MiB\nthreshold: 0.1\nnote"
    assert "2 of 4 evaluations computed, 2 reused" in report().log_line()


def test_the_log_line_has_one_full_stop_between_messages():
    made = RunReport("m", messages=["A sentence.", "a remark", "Another."])
    assert made.log_line().endswith("cache 0.0 MiB. A sentence. a remark. Another")


def test_dictionary_is_json_with_a_version():
    as_dict = json.loads(json.dumps(report().as_dict(), allow_nan=False))
    assert as_dict["version"] == 1
    assert as_dict["trace"][1]["action"] == "reused" and as_dict["trace"][0]["action"] == "computed"


def test_what_an_adaptive_sampler_saved():
    """Of 10 steps 4 were taken: 3 + 6 evaluations of 2 s each, over 4 s."""
    adaptive = report()
    assert adaptive.sigmas == [1, 0.75, 0.5, 0.25] and "longest" not in adaptive.summary()
    adaptive.steps, adaptive.steps_saved = 10, 6
    for evaluation, landing in zip(adaptive.trace, (0.75, 0.5, 0.25, 0.0), strict=True):
        evaluation.landing, evaluation.stride = landing, 2.5
    assert adaptive.sigmas == [1, 0.75, 0.5, 0.25, 0.0] == adaptive.as_dict()["sigmas"]
    assert adaptive.speedup == 4.5
    assert "4 for 10 steps, the longest 2.5" in adaptive.summary() and "4 for 10 steps" in adaptive.log_line()


# -- a budget ---------------------------------------------------------------------------------------------------------


def report_of(mask: str, speedup: float = 2.0) -> RunReport:
    """The first six evaluations are not held against a threshold, the others against 0.01 times their index."""
    trace = [
        Evaluation(i, float(i), 1.0, "warm-up" if i < 6 else "change", 0.1, int(flag), 1 - int(flag), 1.0,
                   None if i < 6 else 0.01 * i)
        for i, flag in enumerate(mask)
    ]  # fmt: skip
    return RunReport("m", settings={"threshold": 0.1}, steps=len(mask), trace=trace, asked=speedup)


def test_the_texts_say_what_was_asked_for():
    made = report_of("111000101001")
    assert "\nasked for 2.00x: 6 of 12 computed\n" in made.summary()
    assert "(threshold 0.1), asked for 2.00x: 6 of 12 evaluations computed" in made.log_line()
    assert made.as_dict()["asked"] == 2.0


def test_the_report_shows_where_the_threshold_was():
    made = report_of("111000101001")
    made.note_budget()
    assert made.settings == {"threshold": "0.06 to 0.11"} and made.messages == []


def test_one_message_says_that_the_budget_could_not_be_kept_and_why():
    made = report_of("111111110001")
    made.note_budget()
    made.note_budget()
    assert made.messages == ["The budget was not kept: 9 evaluations computed instead of 6 (6 by: warm-up)"]


@pytest.mark.parametrize(("mask", "told"), [("1" * 6 + "0" * 14, False), ("1" * 5 + "0" * 15, True), ("10" * 10, True)])
def test_one_evaluation_more_or_less_is_near_enough(mask, told):
    made = report_of(mask, len(mask) / 7)
    made.note_budget()
    assert bool(made.messages) is told


def test_without_a_budget_nothing_is_noted():
    made = report_of("111111110001", 0.0)
    made.note_budget()
    assert made.settings == {"threshold": 0.1} and made.messages == []
    assert "asked" not in made.summary() + made.log_line()


def test_a_run_that_was_stopped_misses_nothing():
    made = report_of("111111")
    made.steps = 12
    made.note_budget()
    assert made.messages == []


# -- branches ---------------------------------------------------------------------------------------------------------


def test_branches_are_told_where_they_differ():
    apart, together = Evaluation(3), Evaluation(4)
    apart.ran("reused", [1])
    apart.ran("computed", [0])
    together.ran("reused", [0, 1])
    assert apart.action == "computed" and apart.as_dict()["branches"] == ["computed", "reused"]
    assert together.action == "reused" and together.as_dict()["branches"] == []
    assert apart.as_short_dict()["branches"] == ["computed", "reused"] and "branches" not in together.as_short_dict()
