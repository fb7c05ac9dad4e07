"""Where runs are shown, by ComfyUI's own server object; it listens to no port here."""

import asyncio
import os
import sys

import pytest
from comfy_execution.graph import DynamicPrompt
from comfy_execution.progress import reset_progress_state

from stepcache.cache_core.report import Evaluation, RunReport
from stepcache.nodes import progress
from stepcache.nodes.recent_runs import RecentRuns

PAGE = {"extra_pnginfo": {"workflow": {"id": "workflow"}}, "client_id": "client"}


@pytest.fixture
def utils_of_comfyui(monkeypatch):
    """ComfyUI's nodes.py puts `comfy/` first, where utils.py hides the package that the server needs."""
    monkeypatch.syspath_prepend(os.environ["COMFYUI_PATH"])
    if not hasattr(sys.modules.get("utils"), "__path__"):
        monkeypatch.delitem(sys.modules, "utils", raising=False)
    import utils.install_util  # noqa: F401


@pytest.fixture
def server(monkeypatch, utils_of_comfyui):
    """Runs the prompt "prompt" of a page that is connected; node 3.0.1 was made by node 3."""
    from execution import PromptQueue
    from server import PromptServer

    monkeypatch.setattr(PromptServer, "instance", None, raising=False)
    monkeypatch.setattr(progress, "RECENT", RecentRuns())
    loop = asyncio.new_event_loop()
    made = PromptServer(loop)
    made.prompt_queue = PromptQueue(made)
    made.prompt_queue.put((0, "prompt", {}, PAGE, []))
    made.prompt_queue.get()
    made.client_id = "client"
    made.sockets["client"] = None
    prompt = DynamicPrompt({"3": {}})
    prompt.add_ephemeral_node("3.0.1", {}, "3", "3")
    reset_progress_state("prompt", prompt)
    yield made
    reset_progress_state("", DynamicPrompt({}))
    loop.close()


def told(server) -> list[tuple]:
    """The messages on their way to pages: (event, data, client)."""

    async def waiting():
        messages = []
        while not server.messages.empty():
            messages.append(server.messages.get_nowait())
        return [message for message in messages if str(message[0]).startswith("stepcache.")]

    return server.loop.run_until_complete(waiting())


def a_run(node_id: str) -> RunReport:
    """Of three evaluations, told to the node as sampling does it."""
    listener, report = progress.NodeProgress(node_id), RunReport("TeaCache", steps=3)
    for index in range(3):
        report.trace.append(Evaluation(index, computed_calls=1))
        listener(report)
    report.finished = True
    listener(report)
    return report


def test_a_node_made_by_another_is_shown_on_that_one(server):
    a_run("3.0.1")
    assert {data["node"] for _, data, _ in told(server)} == {"3"}


def test_the_first_evaluation_is_told_at_once_and_the_report_at_the_end(server):
    a_run("3")
    (first, news, client), (last, report, _) = told(server)
    assert (first, last, client) == ("stepcache.evaluations", "stepcache.report", "client")
    assert [evaluation["index"] for evaluation in news["evaluations"]] == [0]
    assert report["evaluations"] == 3 and report["workflow"] == "workflow"


def test_a_page_that_is_gone_is_told_nothing_but_finds_the_run_when_it_is_back(server):
    del server.sockets["client"]
    report = a_run("3")
    assert told(server) == []
    (kept,) = progress.RECENT.of_workflow("workflow")
    assert kept.report is report and kept.whole()["prompt_id"] == "prompt"


def test_without_a_client_nothing_is_made(server):
    server.client_id = None
    a_run("3")
    assert told(server) == [] and not progress.RECENT.runs
