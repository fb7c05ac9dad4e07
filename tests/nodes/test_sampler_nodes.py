"""The sampler's node as workflows see it, and the shipped workflows."""

import json
import math
from pathlib import Path

import pytest
import torch
from comfy_extras.nodes_custom_sampler import SamplerCustom

import stepcache
from stepcache.nodes import NODES
from stepcache.nodes.sampler_nodes import SoftCacheSampler

from ..sampling import run
from ..tiny_models import shared

INPUTS = ["threshold", "max_stride", "extrapolation", "early_guard", "change_guard", "tail", "cache_device"]
WORKFLOWS = Path(stepcache.__file__).parent / "example_workflows"


def defaults():
    return {entry.id: entry.default for entry in SoftCacheSampler.define_schema().inputs}


def sampler(**changed):
    return SoftCacheSampler.PREPARE_CLASS_CLONE(None).execute(**defaults() | changed).result[0]


def test_the_inputs_and_their_order_are_a_contract():
    schema = SoftCacheSampler.define_schema()
    assert (schema.node_id, schema.display_name) == ("StepCacheSoftCacheSampler", "SoftCache Sampler")
    assert [entry.id for entry in schema.inputs] == INPUTS and schema.description and schema.search_aliases
    assert all(entry.tooltip for entry in [*schema.inputs, *schema.outputs])
    assert [defaults()[name] for name in INPUTS[1:]] == [8, 1.0, 0.1, 0.18, "t", "auto"]


@pytest.mark.parametrize("name", INPUTS[:5])
@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5])
def test_wrong_settings_are_refused_with_the_cure(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value:g}. Use a number from [01] up") as raised:
        sampler(**{name: value})
    assert SoftCacheSampler.validate_inputs(**{name: value}) == str(raised.value)


def test_sound_and_linked_settings_pass():
    assert SoftCacheSampler.validate_inputs(threshold=0.3, max_stride=8, extrapolation=None) is True
    assert SoftCacheSampler.validate_inputs() is True
    assert "Use a number" in SoftCacheSampler.validate_inputs(threshold="much")


@pytest.mark.parametrize("tail", ["t", "u"])
def test_it_samples_in_the_custom_sampler(tail):
    tiny = shared("flux_dev")
    sigmas = torch.linspace(1, 0, 9)
    given = dict(
        model=tiny.patcher, add_noise=True, noise_seed=1, cfg=1.0, positive=tiny.positive, negative=tiny.negative
    )
    given |= dict(sigmas=sigmas, latent_image={"samples": tiny.latent})
    settings = dict(threshold=3.0, change_guard=10.0, tail=tail)
    out = SamplerCustom.execute(**given, sampler=sampler(**settings)).result[0]["samples"]
    assert torch.isfinite(out).all()
    exact = SamplerCustom.execute(**given, sampler=sampler(threshold=0.0)).result[0]["samples"]
    assert torch.equal(exact, run(tiny.patcher, tiny, sigmas=sigmas)) and not torch.equal(out, exact)


@pytest.mark.parametrize("name", sorted(path.stem for path in WORKFLOWS.glob("*.json")))
def test_the_shipped_workflows_agree_with_the_nodes_and_with_each_other(name):
    shown = json.loads((WORKFLOWS / f"{name}.json").read_text(encoding="utf-8"))
    sent = json.loads((WORKFLOWS / "api" / f"{name}.json").read_text(encoding="utf-8"))
    assert {str(node["id"]): node["type"] for node in shown["nodes"]} == {
        key: node["class_type"] for key, node in sent.items()
    }
    sources = {link[0]: [str(link[1]), link[2]] for link in shown["links"]}
    ours = {node.define_schema().node_id for node in NODES}
    for node in shown["nodes"]:
        inputs = sent[str(node["id"])]["inputs"]
        linked = {entry["name"]: sources[entry["link"]] for entry in node["inputs"] if entry.get("link")}
        assert linked == {key: value for key, value in inputs.items() if isinstance(value, list)}
        if node["type"] in ours:
            widgets = [entry["name"] for entry in node["inputs"] if "widget" in entry]
            assert node["widgets_values"] == [inputs[key] for key in widgets]
