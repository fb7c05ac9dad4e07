"""Which runs a report finds: those behind its input, whatever else ran on the same model."""

import pytest
from comfy_execution.graph import DynamicPrompt
from comfy_execution.progress import reset_progress_state
from comfy_execution.utils import CurrentNodeContext

from stepcache.cache_core.report import RunReport
from stepcache.nodes.runs import KEPT, RunLog, runs_behind, upstream

PROMPT = {
    "1": {"inputs": {"name": "a file", "numbers": [1, 2, 3]}},
    "2": {"inputs": {"model": ["1", 0]}},
    "3": {"inputs": {"model": ["2", 0], "latent": ["9", 0]}},
    "4": {"inputs": {"samples": ["3", 0]}},
    "5": {"inputs": {"model": ["2", 0], "after": ["4", 0]}},
    "6": {"inputs": {"model": ["2", 0]}},
}


def ran(log, sampler, prompt, name, finished=True):
    """A run as its session tells of it: several times, the last time finished."""
    report = RunReport(name)
    with CurrentNodeContext(prompt, sampler):
        log(report)
        report.finished = finished
        log(report)
    return report


def names(logs, nodes):
    return [run.report.method for run in runs_behind(logs, nodes)]


def test_upstream_follows_all_links_and_nothing_else():
    assert upstream(PROMPT, "5", "after") == {"4", "3", "2", "1", "9"}
    assert upstream(PROMPT, "5", "missing") == upstream(PROMPT, "77", "after") == set()


def test_every_report_is_shown_and_a_run_is_logged_once_with_where_it_was_made():
    shown = []
    log = RunLog(shown.append)
    report = ran(log, "3", "first prompt", "run")
    (run,) = log.runs
    assert shown == [report, report]
    assert (run.report, run.sampler, run.prompt) == (report, "3", "first prompt")


def test_a_display_that_fails_does_not_lose_the_run():
    def failing(report):
        raise OSError

    log, report = RunLog(failing), RunReport("run")
    try:
        log(report)
    except OSError:
        report.finished = True  # the session then hears it no more
    assert names([log], set()) == ["run"]


def test_samplers_that_the_value_does_not_depend_on_are_left_out():
    log = RunLog(lambda report: None)
    ran(log, "3", "p", "mine")
    ran(log, "6", "p", "another's")
    assert names([log], {"3", "1"}) == ["mine"]


def test_each_sampler_counts_with_its_last_prompt_and_all_of_its_runs_there():
    log = RunLog(lambda report: None)
    ran(log, "3", "first", "old")
    ran(log, "6", "first", "kept by ComfyUI")
    ran(log, "3", "second", "tile 1")
    ran(log, "3", "second", "tile 2")
    assert names([log], {"3", "6"}) == ["kept by ComfyUI", "tile 1", "tile 2"]


def test_two_models_are_in_the_order_of_their_runs():
    high, low = RunLog(lambda report: None), RunLog(lambda report: None)
    ran(high, "3", "p", "high noise")
    ran(low, "6", "p", "low noise")
    assert names([low, high], {"3", "6"}) == ["high noise", "low noise"]


@pytest.mark.parametrize(("sampler", "nodes"), [("3", set()), (None, {"3"})], ids=["no nodes known", "in a thread"])
def test_where_it_cannot_be_told_the_newest_prompt_counts(sampler, nodes):
    log = RunLog(lambda report: None)
    if sampler:
        ran(log, sampler, "first", "old")
        ran(log, sampler, "second", "new")
    else:
        log(RunReport("new", finished=True))
    assert names([log], nodes) == ["new"]
    assert names([], nodes) == []


def test_runs_of_other_branches_of_the_workflow_are_left_out():
    log = RunLog(lambda report: None)
    ran(log, "6", "p", "another's")
    assert names([log], {"3", "1"}) == []


def test_a_node_that_was_made_at_run_time_stands_for_the_one_that_made_it():
    log, prompt = RunLog(lambda report: None), DynamicPrompt(PROMPT)
    prompt.add_ephemeral_node("3.0.0.1", PROMPT["3"], "3", "3")
    reset_progress_state("p", prompt)
    try:
        ran(log, "3.0.0.1", "p", "made")
    finally:
        reset_progress_state("", DynamicPrompt({}))
    assert names([log], {"3"}) == ["made"] and log.runs[0].sampler == "3"


def test_one_log_given_twice_counts_once():
    log = RunLog(lambda report: None)
    ran(log, "3", "p", "run")
    assert names([log, log], {"3"}) == ["run"]


def test_unfinished_runs_are_left_out_and_the_log_is_bounded():
    log = RunLog(lambda report: None)
    ran(log, "3", "p", "broken off", finished=False)
    assert names([log], {"3"}) == []
    for number in range(2 * KEPT):
        ran(log, "3", "p", str(number))
    assert names([log], {"3"}) == [str(number) for number in range(KEPT, 2 * KEPT)]
