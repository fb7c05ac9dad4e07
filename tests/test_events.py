"""docs/events.md: what clients are told of a run, by a real server."""

import asyncio
import re
from pathlib import Path

import pytest

from devtools.client import Client, WorkflowInterrupted
from devtools.workflow import CACHE_NODE, SAMPLER_NODE, demo_workflow, softcache_workflow

DOCUMENT = (Path(__file__).parent.parent / "docs" / "events.md").read_text(encoding="utf-8")
SMALL = {"width": 128, "height": 128}
NUMBER = (int, float)
TYPES = {
    "integer": int,
    "number": NUMBER,
    "number or null": (*NUMBER, type(None)),
    "string": str,
    "string or null": (str, type(None)),
    "boolean": bool,
    "object": dict,
    "list of strings": list,
    "list of numbers": list,
    "list of evaluations": list,
}


def tables() -> list[dict[str, type | tuple]]:
    """The types by field of each table of the document, in order."""
    found, last = [], ""
    for line in DOCUMENT.splitlines():
        row = re.match(r"\| `(\w+)` \| ([a-z ]+) \|", line)
        if row:
            if not last.startswith("| "):
                raise AssertionError(f"a row without a head: {line}")
            if last.startswith("| ---"):
                found.append({})
            found[-1][row[1]] = TYPES[row[2]]
        last = line
    return found


HEAD, NEWS, EVALUATION, REPORT, TRACED = tables()


def follows(message: dict, fields: dict, optional: tuple[str, ...] = ()) -> None:
    """The message has these fields and no others, of the types that are documented."""
    assert message.keys() - set(optional) == fields.keys() - set(optional)
    for name, value in message.items():
        assert isinstance(value, fields[name]), (name, value)
        assert fields[name] is bool or not isinstance(value, bool), (name, value)


def with_client(address, work):
    async def connected():
        async with Client(address) as client:
            return await asyncio.wait_for(work(client), timeout=120)

    return asyncio.run(connected())


def runs_of(address, workflow):
    return with_client(address, lambda client: client.get(f"/stepcache/runs?workflow={workflow}"))["runs"]


def from_page(workflow, name):
    """The body of a prompt as a page sends it, with the id of its workflow."""
    return {"prompt": workflow, "extra_data": {"extra_pnginfo": {"workflow": {"id": name}}}}


async def run_from_page(client, workflow, name):
    body = from_page(workflow, name) | {"client_id": client.id}
    async with client.session.post(f"{client.url}/prompt", json=body) as answer:
        return await client.follow((await answer.json())["prompt_id"])


@pytest.mark.parametrize(
    ("workflow", "method"),
    [
        (demo_workflow(threshold=0.3, seed=201, steps=12), "TeaCache"),
        (softcache_workflow(threshold=0.6, noise_seed=201, steps=12), "SoftCache"),
    ],
    ids=["TeaCache", "SoftCache"],
)
def test_messages_are_as_documented(address, workflow, method):
    outcome = with_client(address, lambda client: client.run(workflow))
    (report,) = outcome.reports
    assert outcome.news
    for message in outcome.news:
        follows(message, HEAD | NEWS)
        for evaluation in message["evaluations"]:
            follows(evaluation, EVALUATION, optional=("branches",))
    follows(report, HEAD | REPORT)
    for evaluation in report["trace"]:
        follows(evaluation, EVALUATION | TRACED)
    for message in [*outcome.news, report]:
        place = (message["version"], message["prompt_id"], message["node"], message["workflow"], message["run"])
        assert place == (1, outcome.prompt_id, CACHE_NODE, None, 0)
        assert (message["method"], message["steps"]) == (method, 12)


def test_each_evaluation_is_told_once_in_order_and_as_in_the_report(address):
    outcome = with_client(address, lambda client: client.run(demo_workflow(threshold=0.3, seed=202, steps=28)))
    told = [evaluation for message in outcome.news for evaluation in message["evaluations"]]
    (report,) = outcome.reports
    assert len(told) > 1 and report["finished"]
    for index, evaluation in enumerate(told):
        assert evaluation["index"] == index
        assert evaluation.items() <= report["trace"][index].items()
    assert all(message["evaluations"] for message in outcome.news)


def test_at_most_four_messages_a_second(address):
    outcome = with_client(address, lambda client: client.run(demo_workflow(threshold=0.3, seed=203, steps=60, **SMALL)))
    (report,) = outcome.reports
    assert 1 <= len(outcome.news) <= report["seconds"] * 4 + 1 < 60


def test_branches_that_decide_for_themselves_are_told_apart(address):
    workflow = demo_workflow(threshold=0.3, seed=204, steps=20, **SMALL)
    workflow[CACHE_NODE]["inputs"]["branches"] = "apart"
    outcome = with_client(address, lambda client: client.run(workflow))
    for evaluation in outcome.reports[0]["trace"]:
        calls = evaluation["computed_calls"], evaluation["reused_calls"]
        assert bool(evaluation["branches"]) == all(calls)


def test_two_samplers_of_one_cached_model_are_two_runs(address):
    workflow = demo_workflow(threshold=0.3, seed=205, steps=8, **SMALL)
    for old, new in ((SAMPLER_NODE, "27"), ("9", "29"), ("10", "30")):
        workflow[new] = {**workflow[old], "inputs": dict(workflow[old]["inputs"])}
    workflow["27"]["inputs"]["seed"] = 206
    workflow["29"]["inputs"]["samples"], workflow["30"]["inputs"]["images"] = ["27", 0], ["29", 0]

    outcome = with_client(address, lambda client: run_from_page(client, workflow, "two samplers"))
    assert [(report["node"], report["run"]) for report in outcome.reports] == [(CACHE_NODE, 0), (CACHE_NODE, 1)]
    assert runs_of(address, "two samplers") == outcome.reports


def test_equal_nodes_report_each_for_itself(address):
    """ComfyUI gives a node the output of an equal one, unless the node says that it is not to be shared."""
    first = demo_workflow(threshold=0.31, seed=207, steps=8, **SMALL)
    moved = {("2" if name == CACHE_NODE else name): node for name, node in first.items()}
    moved["12:2"] = moved.pop(CACHE_NODE)
    moved[SAMPLER_NODE] = {**moved[SAMPLER_NODE], "inputs": moved[SAMPLER_NODE]["inputs"] | {"model": ["12:2", 0]}}

    async def one_after_the_other(client):
        return [await client.run(first), await client.run(moved)]

    outcomes = with_client(address, one_after_the_other)
    assert [[report["node"] for report in outcome.reports] for outcome in outcomes] == [[CACHE_NODE], ["12:2"]]


def test_only_the_client_of_the_prompt_is_told(address):
    async def watched(client):
        async with Client(address) as other:
            outcome = await other.run(demo_workflow(threshold=0.3, seed=208, steps=8, **SMALL))
            await client.session.post(f"{client.url}/interrupt")
            await asyncio.sleep(0.3)
            heard = []
            while True:
                try:
                    heard.append((await client.socket.receive(timeout=0.2)).data)
                except TimeoutError:
                    return outcome, heard

    outcome, heard = with_client(address, watched)
    assert outcome.reports and heard  # the queue's status goes to everybody
    assert not any("stepcache." in str(message) for message in heard)


def test_without_a_client_nothing_is_told_or_kept(address):
    async def queued_by_nobody(client):
        body = from_page(demo_workflow(threshold=0.3, seed=209, steps=8, **SMALL), "by nobody")
        async with client.session.post(f"{client.url}/prompt", json=body) as answer:
            prompt_id = (await answer.json())["prompt_id"]
        while prompt_id not in (history := await client.get(f"/history/{prompt_id}")):
            await asyncio.sleep(0.1)
        return history[prompt_id]

    assert with_client(address, queued_by_nobody)["status"]["status_str"] == "success"
    assert runs_of(address, "by nobody") == []


def test_an_interrupted_run_reports_what_it_did(address):
    async def interrupted(client):
        body = from_page(demo_workflow(threshold=0.3, seed=210, steps=2000, **SMALL), "interrupted")
        async with client.session.post(f"{client.url}/prompt", json=body | {"client_id": client.id}) as answer:
            prompt_id = (await answer.json())["prompt_id"]
        while not (await client.get("/stepcache/runs?workflow=interrupted"))["runs"]:
            await asyncio.sleep(0.05)
        going = (await client.get("/stepcache/runs?workflow=interrupted"))["runs"]
        await client.interrupt()
        with pytest.raises(WorkflowInterrupted):
            await client.follow(prompt_id)
        return going

    (going,) = with_client(address, interrupted)
    (ended,) = runs_of(address, "interrupted")
    follows(ended, HEAD | REPORT)
    assert not going["finished"] and ended["finished"]
    assert 0 < ended["evaluations"] < ended["steps"] == 2000


def test_the_runs_of_the_last_prompt_of_a_workflow_are_kept(address):
    async def two_prompts(client):
        outcomes = []
        for seed in (211, 212):
            workflow = demo_workflow(threshold=0.3, seed=seed, steps=8, **SMALL)
            outcomes.append(await run_from_page(client, workflow, "kept"))
        return outcomes

    _, last = with_client(address, two_prompts)
    assert runs_of(address, "kept") == last.reports
    assert runs_of(address, "another") == []
