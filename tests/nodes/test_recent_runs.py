"""The runs that a page can ask for."""

from stepcache.cache_core.report import Evaluation, RunReport
from stepcache.nodes.recent_runs import KEPT, Place, RecentRuns

HERE = Place("prompt", "2", "workflow")


def report(evaluations=0):
    return RunReport("m", trace=[Evaluation(index, computed_calls=1) for index in range(evaluations)])


def test_runs_of_a_node_are_counted_in_each_prompt():
    recent = RecentRuns()
    places = [HERE, HERE, Place("prompt", "3", "workflow"), Place("later", "2", "workflow"), HERE]
    assert [recent.begin(place, report()).number for place in places] == [0, 1, 0, 0, 2]


def test_a_run_is_found_by_its_report_and_not_by_an_equal_one():
    recent, first, second = RecentRuns(), report(), report()
    run = recent.begin(HERE, first)
    assert first == second and recent.find(first) is run and recent.find(second) is None


def test_only_the_last_runs_are_kept():
    recent, reports = RecentRuns(), [report() for _ in range(KEPT + 1)]
    runs = [recent.begin(HERE, each) for each in reports]
    assert recent.find(reports[0]) is None and recent.find(reports[1]) is runs[1]
    assert runs[-1].number == KEPT


def test_a_workflow_has_of_each_node_the_runs_of_its_last_prompt():
    recent = RecentRuns()
    recent.begin(HERE, report())
    recent.begin(Place("prompt", "3", "workflow"), report())
    again = [recent.begin(Place("later", "2", "workflow"), report()) for _ in range(2)]
    recent.begin(Place("other", "2", "another"), report())
    found = recent.of_workflow("workflow")
    assert [(run.place.prompt_id, run.place.node, run.number) for run in found] == [
        ("prompt", "3", 0),
        ("later", "2", 0),
        ("later", "2", 1),
    ]
    assert found[1:] == again


def test_news_are_told_once():
    run = RecentRuns().begin(HERE, report(2))
    assert [evaluation["index"] for evaluation in run.news()["evaluations"]] == [0, 1]
    run.report.trace.append(Evaluation(2))
    assert [evaluation["index"] for evaluation in run.news()["evaluations"]] == [2]
    assert run.news()["evaluations"] == []
