"""Cache Report after real runs of a tiny model."""

import json

import comfy.samplers
import folder_paths
import pytest
import torch
from comfy_api.latest import io
from comfy_execution.utils import CurrentNodeContext

from stepcache.nodes.report import MOST_DRAWN, NO_CACHE, NO_RUN, CacheReport
from stepcache.nodes.runs import SAMPLER_ATTRIBUTE, log_of
from stepcache.nodes.threshold_nodes import FirstBlockCache, TeaCache

from ..sampling import run
from ..tiny_models import shared

SETTINGS = dict(threshold=5.0, start_percent=0.0, end_percent=1.0, max_consecutive=2, cache_device="auto")
PROMPT = {
    "2": {"inputs": {}},
    "7": {"inputs": {"model": ["2", 0]}},
    "8": {"inputs": {"model": ["2", 0]}},
    "20": {"inputs": {"model": ["2", 0], "after": ["7", 0]}},
}


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path):
    before = folder_paths.get_temp_directory()
    folder_paths.set_temp_directory(str(tmp_path))
    yield tmp_path
    folder_paths.set_temp_directory(before)


def cached(node=TeaCache, **changed):
    return node.PREPARE_CLASS_CLONE(None).execute(shared("flux_dev").patcher, **(SETTINGS | changed)).result[0]


def sampled(model, sampler="7", prompt="first", steps=8):
    with CurrentNodeContext(prompt, sampler):
        return run(model, shared("flux_dev"), steps=steps)


def reported(model, after=None, **inputs):
    hidden = {"hidden_inputs": {io.Hidden.unique_id: "20", io.Hidden.prompt: PROMPT}}
    return CacheReport.PREPARE_CLASS_CLONE(hidden).execute(model, after, **inputs)


def runs_in(output):
    return json.loads(output.result[2])["runs"]


def test_the_inputs_and_outputs_are_a_contract():
    schema = CacheReport.define_schema()
    assert [entry.id for entry in schema.inputs] == ["model", "after", "model_2"]
    assert [entry.id for entry in schema.outputs] == ["image", "summary", "json", "after"]
    assert all(entry.tooltip for entry in [*schema.inputs, *schema.outputs])


def test_picture_text_and_json_of_the_run_behind_the_input(temporary_folder):
    model = cached()
    latent = sampled(model)
    sampled(model, sampler="8", steps=4)
    output = reported(model, latent)
    image, summary, _, after = output.result
    (run_,) = runs_in(output)
    assert (run_["sampler"], run_["prompt_id"], run_["method"], run_["evaluations"]) == ("7", "first", "TeaCache", 8)
    assert run_["reused"] > 0 and len(run_["trace"]) == 8
    assert summary.startswith("TeaCache on Flux\n") and f"{run_['reused']} of 8 reused" in summary
    assert image.shape[2] == 1024 and after is latent
    shown = output.ui
    assert shown["stepcache_reports"] == runs_in(output) and shown["text"] == (summary,)
    assert (temporary_folder / shown["images"][0]["filename"]).is_file()


def test_a_clone_of_the_model_is_known_by_the_runs_of_its_cache():
    model = cached()
    sampled(model.clone())
    assert len(runs_in(reported(model.clone()))) == 1


def test_another_execution_of_the_cache_node_starts_anew():
    sampled(cached())
    again = cached()
    sampled(again, prompt="second", steps=6)
    (run_,) = runs_in(reported(again))
    assert run_["evaluations"] == 6


def test_two_experts_are_one_report():
    high, low = cached(), cached(FirstBlockCache)
    sampled(high)
    sampled(low)
    output = reported(high, model_2=low)
    assert [run_["method"] for run_ in runs_in(output)] == ["TeaCache", "First Block Cache"]
    assert "Run 1 (node 7): TeaCache" in output.result[1] and "Run 2 (node 7): First Block" in output.result[1]
    assert output.result[0].shape[1] > 1000


def test_both_inputs_may_be_of_one_cache():
    model = cached()
    sampled(model)
    assert len(runs_in(reported(model, model_2=model.clone()))) == 1


def test_of_many_runs_the_last_are_drawn_and_all_are_told():
    model = cached()
    heights = []
    for count in range(1, MOST_DRAWN + 3):
        sampled(model, steps=2)
        output = reported(model)
        heights.append(output.result[0].shape[1])
        assert len(runs_in(output)) == count
    assert output.result[1].count("TeaCache on Flux") == MOST_DRAWN + 2
    assert heights[MOST_DRAWN] == heights[-1] < heights[MOST_DRAWN - 1] + 100 < heights[0] * MOST_DRAWN


def test_a_sampler_that_brings_a_cache_carries_its_own_log():
    sampler = comfy.samplers.sampler_object("euler")
    assert reported(sampler).result[1] == NO_CACHE
    model = cached()
    setattr(sampler, SAMPLER_ATTRIBUTE, log_of(model))
    sampled(model)
    assert len(runs_in(reported(sampler))) == 1


def test_an_interrupted_run_is_not_part_of_the_next_report():
    model = cached()

    def stop(step, x0, x, total):
        raise InterruptedError

    with pytest.raises(InterruptedError), CurrentNodeContext("first", "7"):
        run(model, shared("flux_dev"), steps=8, callback=stop)
    sampled(model, prompt="second")
    assert [run_["prompt_id"] for run_ in runs_in(reported(model))] == ["second"]


@pytest.mark.parametrize(
    ("model", "cure"),
    [
        (lambda: shared("flux_dev").patcher, NO_CACHE),
        (lambda: cached(threshold=0.0), NO_CACHE),
        (cached, NO_RUN),
    ],
    ids=["no cache", "switched off", "not sampled"],
)
def test_nothing_to_report_is_told_with_the_cure(model, cure):
    output = reported(model(), torch.zeros(1))
    image, summary, text, _ = output.result
    assert summary == cure and json.loads(text) == {"version": 1, "runs": []}
    assert image.shape[2] == 1024
