"""End to end: the shipped workflow through the HTTP and WebSocket API of a real ComfyUI server."""

import asyncio
import io

import numpy
import pytest
from PIL import Image

from devtools import locales
from devtools.client import Client, WorkflowFailed, WorkflowInterrupted, WorkflowRefused
from devtools.server import CACHE_NODES, SAMPLER_NODES
from devtools.workflow import CACHE_NODE, SAMPLER_NODE, demo_workflow, softcache_workflow

SMALL = {"width": 128, "height": 128, "steps": 8}
METHODS = ("StepCacheTeaCache", "StepCacheFirstBlockCache")
INPUTS = ["model", "threshold", "start_percent", "end_percent", "max_consecutive", "cache_device"]


def with_client(address, work):
    """Run `work(client)` on a fresh connection."""

    async def connected():
        async with Client(address) as client:
            return await asyncio.wait_for(work(client), timeout=120)

    return asyncio.run(connected())


def run(address, workflow):
    return with_client(address, lambda client: client.run(workflow))


def forget_outputs(address):
    """ComfyUI keeps the outputs of the last workflow and would not run the same sampler again."""
    run(address, demo_workflow(None, seed=99, **SMALL))


def picture(outcome):
    return numpy.asarray(Image.open(io.BytesIO(outcome.images[0])).convert("RGB")).astype(int)


@pytest.mark.parametrize("method", METHODS)
def test_nodes_are_listed_with_inputs_in_order_and_tooltips(address, method):
    info = with_client(address, lambda client: client.get(f"/object_info/{method}"))[method]
    assert info["input_order"]["required"] == INPUTS
    assert info["category"] == "StepCache" and info["search_aliases"] and info["description"]
    assert info["output"] == ["MODEL"]
    for name in INPUTS:
        assert info["input"]["required"][name][1]["tooltip"]


@pytest.mark.parametrize("method", METHODS)
def test_a_cached_picture_its_report_and_its_progress(address, method):
    plain = run(address, demo_workflow(None, seed=1, **SMALL))
    cached = run(address, demo_workflow(method, threshold=0.3, seed=1, **SMALL))
    (report,) = cached.reports
    assert plain.reports == []
    assert (report["version"], report["node"], report["steps"]) == (1, CACHE_NODE, 8)
    assert report["evaluations"] == report["computed"] + report["reused"] == cached.steps(SAMPLER_NODE) == 8
    assert report["reused"] >= 2 and report["trace"][0]["action"] == report["trace"][-1]["action"] == "computed"
    assert {message["node"] for message in cached.news} == {CACHE_NODE}
    difference = numpy.abs(picture(plain) - picture(cached)).mean()
    assert picture(cached).shape == (128, 128, 3) and 0 < difference < 12


def plain_inputs(info) -> dict:
    """The node's defaults, with settings under which a short run of a small model reuses something."""
    given = info["input"]["required"]
    inputs = {name: spec[1]["default"] for name, spec in given.items() if name != "model"}
    eager = {"threshold": 0.3, "head_blocks": 1, "warmup_steps": 1, "interval": 2, "computed": 0.5, "mode": "general"}
    return inputs | {name: value for name, value in eager.items() if name in inputs}


@pytest.mark.parametrize(
    "node", [node for node in CACHE_NODES if node not in (*METHODS, "StepCacheCompose")]
)  # it has tests of its own
def test_every_other_node_makes_a_picture_and_reports(address, node):
    info = with_client(address, lambda client: client.get(f"/object_info/{node}"))[node]
    workflow = demo_workflow(node, seed=1, **(SMALL | {"steps": 12}))
    workflow[CACHE_NODE]["inputs"] = {"model": workflow[CACHE_NODE]["inputs"]["model"], **plain_inputs(info)}
    outcome = run(address, workflow)
    (report,) = outcome.reports
    assert 0 < report["reused"] < report["evaluations"] == 12 and report["settings"]
    assert picture(outcome).shape == (128, 128, 3)


@pytest.mark.parametrize("method", METHODS)
def test_threshold_zero_gives_the_uncached_picture(address, method):
    plain = run(address, demo_workflow(None, seed=2, **SMALL))
    off = run(address, demo_workflow(method, threshold=0.0, seed=2, **SMALL))
    assert off.reports == [] and (picture(plain) == picture(off)).all()


def test_the_recommended_threshold_is_shown(address):
    (report,) = run(address, demo_workflow(METHODS[0], threshold=-1.0, seed=3, **SMALL)).reports
    assert report["settings"]["threshold"] > 0
    assert report["settings"]["figures"] == "general rule"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("threshold", [-0.5, float("nan"), float("inf"), -7.0])
def test_an_impossible_threshold_is_refused_with_the_cure(address, method, threshold):
    with pytest.raises(WorkflowRefused, match="Use -1 for the recommended value, 0 to switch the cache off"):
        run(address, demo_workflow(method, threshold=threshold, **SMALL))


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        (dict(head_blocks=0), "smaller than min of 1"),
        (dict(warmup_interval=0), "smaller than min of 1"),
        (dict(max_accumulated=-1), "smaller than min of 0"),
        (dict(warmup_steps=10**9), "bigger than max of 1000"),
    ],
)
def test_a_typed_number_out_of_range_is_refused(address, inputs, problem):
    with pytest.raises(WorkflowRefused, match=problem):
        run(address, dbcache_workflow(address, **inputs))


def test_a_huge_threshold_reuses_what_the_limits_allow(address):
    """ComfyUI leaves inputs that a node checks itself to that node, so the largest threshold of the page is no limit."""
    (report,) = run(address, demo_workflow(METHODS[0], threshold=1e12, seed=4, **SMALL)).reports
    assert report["settings"]["threshold"] == 1e12 and report["computed"] == 2


def dbcache_workflow(address, **changed):
    info = with_client(address, lambda client: client.get("/object_info/StepCacheDBCache"))["StepCacheDBCache"]
    workflow = demo_workflow("StepCacheDBCache", **SMALL)
    workflow[CACHE_NODE]["inputs"] = workflow[CACHE_NODE]["inputs"] | plain_inputs(info) | changed
    return workflow


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (0.9, 0.1)])
def test_an_empty_window_is_refused_with_the_cure(address, start, end):
    with pytest.raises(WorkflowRefused, match="Lower start_percent or raise end_percent"):
        run(address, demo_workflow(start_percent=start, end_percent=end, **SMALL))


@pytest.mark.parametrize("first", METHODS)
def test_two_caches_on_one_model_are_refused(address, first):
    workflow = demo_workflow(first, **SMALL)
    workflow["20"] = {**workflow[CACHE_NODE], "inputs": {**workflow[CACHE_NODE]["inputs"], "model": [CACHE_NODE, 0]}}
    workflow[SAMPLER_NODE]["inputs"]["model"] = ["20", 0]
    with pytest.raises(WorkflowFailed, match="remove or bypass one of them"):
        run(address, workflow)


@pytest.mark.parametrize("after", [False, True], ids=["EasyCache first", "EasyCache last"])
def test_easycache_on_the_same_model_is_refused(address, after):
    workflow = demo_workflow(**SMALL)
    easy = {"reuse_threshold": 0.2, "start_percent": 0.15, "end_percent": 0.95, "verbose": False}
    order = [CACHE_NODE, "20"] if after else ["20", CACHE_NODE]
    workflow["20"] = {"class_type": "EasyCache", "inputs": {**easy, "model": ["1", 0]}}
    workflow[order[0]]["inputs"]["model"] = ["1", 0]
    workflow[order[1]]["inputs"]["model"] = [order[0], 0]
    workflow[SAMPLER_NODE]["inputs"]["model"] = [order[1], 0]
    with pytest.raises(WorkflowFailed, match="already carries EasyCache"):
        run(address, workflow)


def test_two_samplers_and_two_queued_workflows_do_not_disturb_each_other(address):
    alone = [run(address, demo_workflow(threshold=0.3, seed=seed, **SMALL)) for seed in (4, 5)]
    forget_outputs(address)
    workflow = demo_workflow(threshold=0.3, seed=4, **SMALL)
    for old, new in ((SAMPLER_NODE, "27"), ("9", "29"), ("10", "30")):  # a second sampler on the same MODEL
        workflow[new] = {"class_type": workflow[old]["class_type"], "inputs": dict(workflow[old]["inputs"])}
    workflow["27"]["inputs"]["seed"] = 5
    workflow["29"]["inputs"]["samples"], workflow["30"]["inputs"]["images"] = ["27", 0], ["29", 0]

    async def both(client):
        queued = [await client.queue(workflow), await client.queue(demo_workflow(threshold=0.3, seed=6, **SMALL))]
        return [await client.follow(prompt_id) for prompt_id in queued]

    together, _ = with_client(address, both)
    assert len(together.reports) == 2 and len(together.images) == 2
    pictures = [numpy.asarray(Image.open(io.BytesIO(image)).convert("RGB")) for image in together.images]
    expected = [picture(outcome) for outcome in alone]
    assert all(any((made == wanted).all() for made in pictures) for wanted in expected)


def test_an_interrupted_run_leaves_nothing_behind(address):
    before = run(address, demo_workflow(threshold=0.3, seed=8, **SMALL))
    forget_outputs(address)

    async def interrupted(client):
        stopped = []

        async def stop_once(node, value, total):
            if node == SAMPLER_NODE and not stopped:  # once: a late interrupt would hit the next workflow
                stopped.append(value)
                await client.interrupt()

        # So many steps that the run cannot end before the interrupt arrives, however busy the machine is.
        with pytest.raises(WorkflowInterrupted):
            await client.run(demo_workflow(threshold=0.3, seed=8, **(SMALL | {"steps": 2000})), stop_once)

    with_client(address, interrupted)
    again = run(address, demo_workflow(threshold=0.3, seed=8, **SMALL))
    assert (picture(before) == picture(again)).all()


COMPOSED = {
    "probe": "modulated input",
    "policy": "accumulated change",
    "policy.threshold": 0.3,
    "policy.published_figures": False,
    "predictor": "hold",
    "boundary": "blocks",
    "boundary.head_blocks": 0,
    "boundary.tail_blocks": 0,
    "boundary.stored": "difference",
    "step_mask": "none",
    "warmup_steps": 0,
    "max_cached_steps": 0,
}


def composed_workflow(seed=1, **changed):
    workflow = demo_workflow(seed=seed, **SMALL)
    node = workflow[CACHE_NODE]
    shared = {name: node["inputs"][name] for name in INPUTS if name != "threshold"}
    workflow[CACHE_NODE] = {"class_type": "StepCacheCompose", "inputs": shared | COMPOSED | changed}
    return workflow


def test_a_composition_is_sent_with_dotted_names_and_gives_the_picture_of_its_method(address):
    composed = run(address, composed_workflow())
    named = run(address, demo_workflow("StepCacheTeaCache", threshold=0.3, seed=1, **SMALL))
    (free,), (own,) = composed.reports, named.reports
    assert free["method"] == free["settings"]["method"] == own["method"] == "TeaCache"
    assert free["reused"] == own["reused"] >= 2
    assert (picture(composed) == picture(named)).all()


def test_the_choices_of_a_composition_are_listed_with_their_inputs(address):
    info = with_client(address, lambda client: client.get("/object_info/StepCacheCompose"))["StepCacheCompose"]
    parts = ["probe", "policy", "predictor", "boundary", "step_mask"]
    assert info["input_order"]["required"] == ["model", *parts, "warmup_steps", "max_cached_steps", *INPUTS[2:]]
    for part in parts:
        kind, more = info["input"]["required"][part]
        assert kind == "COMFY_DYNAMICCOMBO_V3" and len(more["options"]) > 2 and more["tooltip"]
    first = info["input"]["required"]["policy"][1]["options"][0]
    assert first["key"] == "change from anchor" and list(first["inputs"]["required"]) == ["threshold"]


def test_a_composition_that_makes_no_sense_is_refused_with_the_cure(address):
    with pytest.raises(WorkflowFailed, match="Set probe to latent or none, or boundary to blocks"):
        run(address, composed_workflow(boundary="model output"))
    with pytest.raises(WorkflowFailed, match="probe is None. Use one of: head residual"):
        run(address, composed_workflow(probe="first block"))
    with pytest.raises(WorkflowRefused, match="Lower start_percent or raise end_percent"):
        run(address, composed_workflow(start_percent=0.9, end_percent=0.1))


def test_the_softcache_sampler_steps_on_its_own_with_smooth_progress(address):
    settings = SMALL | {"steps": 20}
    outcome = run(address, softcache_workflow(noise_seed=1, threshold=0.6, **settings))
    (report,) = outcome.reports
    assert report["node"] == CACHE_NODE and report["reused"] >= 2 and report["steps_saved"] >= 2
    assert report["evaluations"] + report["steps_saved"] == report["steps"] == 20
    sigmas, trace = report["sigmas"], report["trace"]
    assert sigmas == sorted(sigmas, reverse=True) and (sigmas[0], sigmas[-1]) == (1.0, 0.0)
    assert len(sigmas) == len(trace) + 1 and max(evaluation["stride"] for evaluation in trace) > 1.5
    assert all((evaluation["headroom"] is None) == (evaluation["action"] == "computed") for evaluation in trace)
    shown = [(value, total) for node, value, total in outcome.progress if node == SAMPLER_NODE]
    values = [value for value, _ in shown]
    assert {total for _, total in shown} == {20} and values == sorted(values) and values[-1] == 20
    reached = [int(evaluation["position"]) for evaluation in trace[1:]] + [20]
    assert values[0] == 1 and set(values) <= set(reached)  # ComfyUI holds some of many messages back
    assert {message["node"] for message in outcome.news} == {CACHE_NODE}
    assert picture(outcome).shape == (128, 128, 3)


def test_the_softcache_sampler_without_a_threshold_gives_the_plain_picture(address):
    plain = run(address, demo_workflow(None, seed=2, **SMALL))
    exact = run(address, softcache_workflow(noise_seed=2, threshold=0.0, **SMALL))
    assert (picture(plain) == picture(exact)).all()


def test_the_softcache_sampler_refuses_a_model_with_a_cache_and_impossible_settings(address):
    workflow = softcache_workflow(**SMALL)
    workflow["20"] = demo_workflow(**SMALL)[CACHE_NODE]
    workflow[SAMPLER_NODE]["inputs"]["model"] = ["20", 0]
    with pytest.raises(WorkflowFailed, match="already carries another StepCache node"):
        run(address, workflow)
    with pytest.raises(WorkflowRefused, match="threshold is nan. Use a number from 0 up"):
        run(address, softcache_workflow(threshold=float("nan"), **SMALL))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("node", [*METHODS, "StepCacheCompose", *SAMPLER_NODES])
def test_the_help_page_is_served_where_the_page_looks_for_it(address, node, language):
    async def fetched(client):
        folder = (await client.get(f"/object_info/{node}"))[node]["python_module"].removeprefix("custom_nodes.")
        async with client.session.get(f"{client.url}/extensions/{folder}/docs/{node}/{language}.md") as answer:
            return answer.status, await answer.text()

    status, text = with_client(address, fetched)
    assert status == 200 and text.startswith("# ")


def test_the_texts_of_the_nodes_are_served_in_each_language(address):
    served = with_client(address, lambda client: client.get("/i18n"))
    for language in ("en", *locales.translations()):
        texts = locales.read(language, "nodeDefs")
        assert {node: served[language]["nodeDefs"].get(node) for node in texts} == texts
        assert served[language].items() >= locales.read(language, "main").items()
