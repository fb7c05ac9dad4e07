"""The strip on the node, in ComfyUI's own page on a real server."""

import json

import pytest

from devtools import places

from .comfy_page import CACHE, READ_COLOURS, WATCH, contrast, demo_graph, short_graph, with_second_sampler

TIMES = "×"  # noqa: RUF001 - as it is on the node
ENDED = rf"^\d+ of \d+ reused · [\d.]+{TIMES} · [\d.]+ MiB$"
STEPS = 28


EXAMPLES = sorted(places.WORKFLOWS.glob("*.json"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_loaded_with_all_of_our_nodes(page, example):
    graph = json.loads(example.read_text(encoding="utf-8"))
    page.load(graph)
    known = page.page.evaluate(
        "() => app.graph.nodes.filter((node) => node.constructor.nodeData).map(({type}) => type)"
    )
    ours = [node["type"] for node in graph["nodes"] if node["type"].startswith("StepCache")]
    assert ours and set(ours) <= set(known)


def cells(trace):
    """What a row of the strip must hold for a trace."""
    reused = sum(evaluation["action"] == "reused" for evaluation in trace)
    return {"computed": len(trace) - reused, "reused": reused, "expected": 0}


def told(report):
    """The caption of a finished run."""
    size = f"{report['cache_bytes'] / 2**20:.1f} MiB"
    return f"{report['reused']} of {report['evaluations']} reused · {report['speedup']:.2f}{TIMES} · {size}"


def test_the_strip_appears_updates_ends_and_is_there_after_a_reload(page):
    page.load(demo_graph(steps=STEPS))
    saved, sent, height = page.saved_values(), page.sent_inputs(), page.node_height()
    assert page.strips() == []

    page.page.evaluate(WATCH)
    page.queue()
    label = page.wait_for_label(ENDED)
    counts = [int(text.split()[2]) for text in page.page.evaluate("() => window.seenLabels")]
    assert len(counts) >= 3 and counts == sorted(counts) and counts[0] < STEPS == counts[-1]

    (report,), (strip,) = page.kept_runs(), page.strips()
    assert label == told(report) and report["reused"] >= 5
    (row,) = strip["rows"]
    assert row.items() >= cells(report["trace"]).items() and row["signal"] >= 1 and row["threshold"] >= 1
    assert strip["visible"] and 200 < strip["width"] <= 320
    assert strip["notes"].startswith("threshold 0.1 · figures general rule")
    assert (page.saved_values(), page.sent_inputs()) == (saved, sent), "nothing of it is saved or sent"
    assert page.node_height() > height

    colours = page.page.evaluate(READ_COLOURS)
    assert contrast(colours["reused"], colours["behind"]) >= 3 and contrast(colours["text"], colours["behind"]) >= 4.5

    for scale in (1.6, 0.35):
        page.look_at(CACHE, scale)
        assert page.strips()[0]["visible"]
        page.shot(f"strip-{scale}")

    page.reload()
    page.wait_for_label(ENDED)
    (again,) = page.strips()
    assert {**again, "width": 0} == {**strip, "width": 0}
    assert page.saved_values() == saved


def test_several_samplers_and_several_prompts(page):
    page.load(with_second_sampler(short_graph()))
    page.queue()
    page.other_seeds()
    page.queue()
    page.wait_for_queue()
    page.wait_for_label(r"^1: .* MiB; 2: .* MiB$")
    first, second = page.kept_runs()
    (strip,) = page.strips()
    assert strip["label"] == f"1: {told(first)}; 2: {told(second)}"
    assert [row["reused"] for row in strip["rows"]] == [first["reused"], second["reused"]]
    assert min(first["reused"], second["reused"]) >= 2
    page.look_at(CACHE, 1.2)
    page.shot("two-samplers")


def test_a_node_in_a_subgraph(page):
    page.load(short_graph())
    page.page.evaluate("(id) => { app.graph.convertToSubgraph(new Set([app.graph.getNodeById(id)])) }", CACHE)
    page.queue()
    page.wait_for_queue()
    (report,) = page.kept_runs()
    assert report["node"].endswith(f":{CACHE}")
    page.page.evaluate(
        "() => { const outer = app.graph.nodes.find((node) => node.subgraph); app.canvas.openSubgraph(outer.subgraph, outer) }"
    )
    assert page.wait_for_label(ENDED) == told(report)
    page.page.wait_for_function("() => document.querySelector('.stepcache-strip').checkVisibility()")
    page.shot("subgraph")


def test_settings(page):
    page.load(short_graph())
    height = page.node_height()
    page.queue()
    label = page.wait_for_label(ENDED)
    page.page.wait_for_timeout(300)
    with_signal = page.node_height()

    page.set("StepCache.Strip.Detail", "cells only")
    page.page.wait_for_function("() => document.querySelector('.stepcache-strip .signal').getAttribute('d') === ''")
    (strip,) = page.strips()
    assert strip["label"] == label and strip["rows"][0]["computed"] >= 1
    page.page.wait_for_timeout(300)
    assert page.node_height() <= with_signal

    page.set("StepCache.Strip.Shown", False)
    page.page.wait_for_function("() => !document.querySelector('.stepcache-strip')")
    page.page.wait_for_timeout(300)
    assert page.node_height() == height, "the node is as high as before"
    page.other_seeds()
    page.queue()
    page.wait_for_queue()
    assert page.strips() == []

    page.set("StepCache.Strip.Shown", True)
    assert page.wait_for_label(ENDED) == told(page.kept_runs()[0])


def test_another_workflow_has_its_own_strip(classic):
    """Node 2 of the workflow that is open is not node 2 of the one that samples."""
    page = classic
    page.load(demo_graph(steps=60))
    page.queue()
    page.wait_for_label(r"reused$")
    page.load(demo_graph())
    page.wait_for_queue()
    assert page.strips() == []


def test_a_node_out_of_sight_keeps_its_size_and_is_drawn_when_it_is_seen(classic):
    page = classic
    page.load(short_graph())
    page.queue()
    page.wait_for_label(ENDED)
    page.look_at(CACHE, 1)
    height = page.node_height()
    page.page.evaluate("() => { app.canvas.ds.offset = [-5000, -5000]; app.canvas.setDirty(true, true) }")
    page.other_seeds()
    page.queue()
    page.wait_for_queue()
    assert not page.strips()[0]["visible"] and page.node_height() == height
    page.look_at(CACHE, 1)
    assert page.wait_for_label(ENDED) == told(page.kept_runs()[0])


def test_an_interrupted_run_ends(classic):
    page = classic
    page.load(short_graph(steps=1000))
    page.queue()
    page.wait_for_label(r"reused$")
    page.post("/interrupt", {})
    page.wait_for_queue()
    label = page.wait_for_label(ENDED)
    (report,), (strip,) = page.kept_runs(), page.strips()
    assert label == told(report)
    assert strip["rows"][0]["expected"] == 1000 - report["evaluations"]


def test_the_pointer_is_told_of_the_evaluation_and_the_wheel_still_zooms(page):
    page.load(short_graph())
    page.queue()
    page.wait_for_label(ENDED)
    page.look_at(CACHE, 1.2)
    box = page.page.locator(".stepcache-strip .row").bounding_box()
    page.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 10)
    trace = page.kept_runs()[0]["trace"]
    title = page.page.evaluate("() => document.querySelector('.stepcache-strip > div').title")
    assert title.splitlines()[:2] == [f"evaluation 8: {trace[7]['action']}", trace[7]["reason"]]
    page.page.mouse.wheel(0, -200)
    page.page.wait_for_function("() => app.canvas.ds.scale > 1.25")
