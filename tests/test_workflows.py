"""Shipped workflows, workflows of other packs, and the nodes behind sampling, on a real ComfyUI server."""

import asyncio
import io
import json
import re

import pytest
from PIL import Image

from devtools import examples
from devtools.client import Client
from devtools.page_form import has_widget, inputs_of
from devtools.server import running_server
from devtools.workflow import CACHE_NODE, SAMPLER_NODE, demo_workflow
from stepcache.nodes.replacements import REPLACEMENTS

from .tiny_models import OLDER

SMALL = {"width": 128, "height": 128, "steps": 12}
EXAMPLES = examples.examples()
runnable, others = ([name for name in EXAMPLES if examples.runs_here(EXAMPLES[name]) is here] for here in (True, False))
every_example = pytest.mark.parametrize("name", EXAMPLES)
every_old_node = pytest.mark.parametrize("replacement", REPLACEMENTS, ids=lambda replacement: replacement.old)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with running_server(log=tmp_path_factory.mktemp("server") / "server.log") as address:
        yield address


def with_client(address, work):
    """Run `work(client)` on a fresh connection."""

    async def connected():
        async with Client(address) as client:
            return await asyncio.wait_for(work(client), timeout=120)

    return asyncio.run(connected())


@pytest.fixture(scope="module")
def info(address):
    return with_client(address, lambda client: client.get("/object_info"))


def run(address, workflow):
    """The outcome, and what the history has of each node."""

    async def followed(client):
        outcome = await client.run(workflow)
        return outcome, (await client.get(f"/history/{outcome.prompt_id}"))[outcome.prompt_id]["outputs"]

    return with_client(address, followed)


# -- examples ---------------------------------------------------------------------------------------------------------


@every_example
def test_an_example_fits_the_nodes_that_comfyui_has(name, info):
    """Nodes, inputs, choices and ranges; files of models that are not here aside."""
    workflow = EXAMPLES[name]
    files = {model["name"] for model in examples.models_of(workflow)}
    for node in workflow.values():
        entries = {entry[0]: entry[1:] for entry in inputs_of(info, node["class_type"])}
        assert node["inputs"].keys() <= entries.keys(), node
        assert info[node["class_type"]]["input"].get("required", {}).keys() <= node["inputs"].keys(), node
        for key, value in node["inputs"].items():
            kind, options = entries[key]
            if isinstance(value, list):
                made = info[workflow[value[0]]["class_type"]]["output"][value[1]]
                assert made in kind.split(",") or kind in ("*", "COMFY_MATCHTYPE_V3"), (node, key)
            else:
                assert has_widget(kind, options), (node, key)
                assert value in files or fits(value, info, node, key, options), (node, key)


def fits(value, info, node, key, options):
    given = info[node["class_type"]]["input"]
    spec = {**given.get("required", {}), **given.get("optional", {})}[key]
    choices = spec[0] if isinstance(spec[0], list) else options.get("options")
    if choices is not None:
        return value in [choice["key"] if isinstance(choice, dict) else choice for choice in choices]
    return isinstance(value, str) or options.get("min", value) <= value <= options.get("max", value)


@pytest.mark.parametrize("name", others)
def test_the_server_refuses_nothing_of_an_example_but_missing_model_files(name, address):
    workflow = EXAMPLES[name]

    async def posted(client):
        async with client.session.post(client.url + "/prompt", json={"prompt": workflow}) as answer:
            return await answer.json()

    errors = [
        (error["type"], error["extra_info"]["received_value"])
        for node in with_client(address, posted)["node_errors"].values()
        for error in node["errors"]
    ]
    assert {value for _, value in errors} == {model["name"] for model in examples.models_of(workflow)}
    assert {kind for kind, _ in errors} == {"value_not_in_list"}


@pytest.mark.skipif(OLDER, reason="it is made with the newest ComfyUI; older ones lack some inputs")
@every_example
def test_the_form_of_the_page_is_that_of_the_prompt(name, info):
    stored = json.loads(examples.page_file(name).read_text(encoding="utf-8"))
    assert stored == json.loads(examples.as_text(examples.page_example(name, EXAMPLES[name], info)))


@every_example
def test_nodes_do_not_lie_on_each_other_and_all_links_meet(name):
    page = json.loads(examples.page_file(name).read_text(encoding="utf-8"))
    boxes = [(*node["pos"], *node["size"]) for node in page["nodes"]]
    for i, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[:i]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y
    nodes = {node["id"]: node for node in page["nodes"]}
    for number, source, slot, target, entry, kind in page["links"]:
        assert number in nodes[source]["outputs"][slot]["links"]
        assert nodes[target]["inputs"][entry]["link"] == number and kind


@every_example
def test_models_are_named_with_folder_and_address(name):
    for node in EXAMPLES[name].values():
        models = node.get("_meta", {}).get("models", [])
        assert all(re.match(r"https://huggingface\.co/.+\.safetensors$", model["url"]) for model in models)
        assert all(model["url"].endswith("/" + model["name"]) and model["directory"] for model in models)
        assert {model["name"] for model in models} <= set(map(str, node["inputs"].values()))


@pytest.mark.parametrize("name", runnable)
def test_examples_for_the_tiny_model_run_and_have_a_preview(name, address):
    workflow = json.loads(json.dumps(EXAMPLES[name]))
    for node in workflow.values():
        node["inputs"] |= {key: value for key, value in SMALL.items() if key in node["inputs"]}
    outcome, _ = run(address, workflow)
    assert outcome.images and outcome.reports[-1]["reused"] > 0
    with Image.open(examples.page_file(name).with_suffix(".jpg")) as preview:
        assert min(preview.size) >= 200


def test_the_page_lists_the_examples(address):
    listed = with_client(address, lambda client: client.get("/workflow_templates"))
    assert set(listed["stepcache"]) == set(EXAMPLES)


# -- workflows of other packs -----------------------------------------------------------------------------------------


def old_workflow(replacement, **inputs):
    """As a program posts it: no `_meta`, and nothing but the model and what is given."""
    workflow = demo_workflow(seed=100 + REPLACEMENTS.index(replacement), **SMALL)
    workflow[CACHE_NODE] = {"class_type": replacement.old, "inputs": {"model": ["1", 0], **inputs}}
    return {name: {key: node[key] for key in ("class_type", "inputs")} for name, node in workflow.items()}


@every_old_node
def test_an_old_node_in_a_posted_prompt_runs_as_ours(replacement, address, info):
    outcome, _ = run(address, old_workflow(replacement))
    (report,) = outcome.reports
    assert report["method"] == info[replacement.new]["display_name"] and report["evaluations"] == 12
    assert len(outcome.images) == 1


def test_an_old_threshold_is_used(address):
    teacache = next(each for each in REPLACEMENTS if each.old == "TeaCache")
    outcome, _ = run(address, old_workflow(teacache, rel_l1_thresh=0.123))
    assert outcome.reports[0]["settings"]["threshold"] == 0.123


@pytest.mark.parametrize("replacement", [each for each in REPLACEMENTS if each.switch], ids=lambda each: each.old)
def test_an_old_node_that_is_switched_off_caches_nothing(replacement, address):
    outcome, _ = run(address, old_workflow(replacement, **{replacement.switch: False}))
    assert outcome.reports == [] and len(outcome.images) == 1


def test_the_page_is_told_of_all_replacements(address):
    told = with_client(address, lambda client: client.get("/node_replacements"))
    for replacement in REPLACEMENTS:
        assert told[replacement.old][0]["new_node_id"] == replacement.new


# -- Cache Report and Cache Compare -----------------------------------------------------------------------------------

REPORT = "20"


def reported_workflow(after=SAMPLER_NODE, **inputs):
    workflow = demo_workflow("StepCacheFirstBlockCache", 0.3, **(SMALL | inputs))
    workflow[REPORT] = {"class_type": "StepCacheReport", "inputs": {"model": [CACHE_NODE, 0], "after": [after, 0]}}
    return workflow


def test_a_report_is_in_the_history_and_its_picture_is_shown(address):
    outcome, outputs = run(address, reported_workflow(seed=11))
    (found,), (sent,) = outputs[REPORT]["stepcache_reports"], outcome.reports
    assert (found["sampler"], found["prompt_id"]) == (SAMPLER_NODE, outcome.prompt_id)
    assert found["trace"] == sent["trace"]
    assert "First Block Cache on Flux" in outputs[REPORT]["text"][0]
    assert max(Image.open(io.BytesIO(image)).width for image in outcome.images) == 1024


def test_a_report_of_what_comfyui_did_not_sample_again(address):
    first, _ = run(address, reported_workflow(seed=12))
    again, outputs = run(address, reported_workflow("9", seed=12))
    (found,) = outputs[REPORT]["stepcache_reports"]
    assert again.reports == [] and found["trace"] == first.reports[0]["trace"]


def test_two_samplers_and_two_queued_prompts_have_their_own_reports(address):
    workflow = reported_workflow(seed=13)
    second = json.loads(json.dumps(workflow[SAMPLER_NODE]))
    workflow["27"] = second | {"inputs": second["inputs"] | {"seed": 14, "steps": 10}}
    workflow["40"] = {"class_type": "StepCacheReport", "inputs": {"model": [CACHE_NODE, 0], "after": ["27", 0]}}

    async def both(client):
        queued = [await client.queue(workflow), await client.queue(reported_workflow(seed=15))]
        for prompt in queued:
            await client.follow(prompt)
        return queued, [(await client.get(f"/history/{prompt}"))[prompt]["outputs"] for prompt in queued]

    queued, (two, one) = with_client(address, both)
    found = [two[REPORT], two["40"], one[REPORT]]
    runs = [
        (run["prompt_id"], run["sampler"], run["evaluations"]) for each in found for run in each["stepcache_reports"]
    ]
    first, second = queued
    assert runs == [(first, SAMPLER_NODE, 12), (first, "27", 10), (second, SAMPLER_NODE, 12)]


def test_a_comparison_without_a_vae(address):
    workflow = json.loads(json.dumps(EXAMPLES["tiny_compare"]))
    del workflow["8"]["inputs"]["vae"]
    workflow["8"]["inputs"] |= {"steps": 12, "seed": 3}
    outcome, outputs = run(address, workflow)
    (found,) = outputs["8"]["stepcache_comparison"]
    assert found["picture"] is None and found["latent"]["psnr"] > 10 and found["run"]["evaluations"] == 12
    assert outcome.progress[-1] == ("8", 24, 24)
