"""Shipped checkpoints are told apart by what ComfyUI detects of them, and by facts of the run where it must be."""

from functools import cache
from types import SimpleNamespace

import comfy.model_detection
import comfy.patcher_extension
import pytest
import torch

from stepcache.model_patches.variants import ASSUMED, matches, model_facts, noise_range, run_facts, table, variant

from ..sampling import run
from ..tiny_models import shared
from .real_configs import CHECKPOINTS

VARIANTS = table("variants")["variants"]


@cache
def facts_of(index):
    """What we know of a checkpoint, from the model that ComfyUI makes of its configuration (without memory for it)."""
    detected = comfy.model_detection.model_config_from_unet_config(dict(CHECKPOINTS[index][1]))
    detected.set_inference_dtype(torch.bfloat16, None)
    model = detected.get_model({}, "", device=torch.device("meta"))
    return model_facts(SimpleNamespace(model=model))


def all_that_fit(facts):
    wanted = [
        (entry["name"], {"class": entry["class"], **entry["match"], **entry.get("run", {})}) for entry in VARIANTS
    ]
    return [name for name, facts_wanted in wanted if matches(facts_wanted, {**ASSUMED, **facts})]


@pytest.mark.parametrize("index", range(len(CHECKPOINTS)), ids=[name for name, *_ in CHECKPOINTS])
def test_a_shipped_checkpoint_fits_one_variant_at_most(index):
    _, _, of_the_run, expected = CHECKPOINTS[index]
    facts = {**facts_of(index), **of_the_run}
    assert all_that_fit(facts) == ([expected] if expected else [])
    assert (variant(facts) or {"name": None})["name"] == expected


def test_every_variant_is_one_of_a_shipped_checkpoint():
    assert {entry["name"] for entry in VARIANTS} == {expected for *_, expected in CHECKPOINTS if expected}
    assert len(VARIANTS) == len({entry["name"] for entry in VARIANTS})


def test_few_step_models():
    few = {entry["name"] for entry in VARIANTS if entry.get("few_step")}
    assert few == {
        "FLUX.1-schnell",
        "HunyuanVideo 1.5 step-distilled",
        "HunyuanVideo 1.5 SR distilled",
        "HunyuanImage 2.1 distilled",
        "HunyuanImage 2.1 refiner",
        "PiD",
        "SeedVR2",
    }
    figures = {
        name
        for file in ("teacache", "first_block", "magcache")
        for e in table(file)["entries"]
        for name in e["variants"]
    }
    assert not few & figures


@pytest.mark.parametrize(
    ("wanted", "facts", "answer"),
    [
        ({}, {}, True),
        ({"dim": 8}, {"dim": 8}, True),
        ({"dim": 8}, {"dim": 9}, False),
        ({"dim": 8}, {}, False),
        ({"dim": [8, 9]}, {"dim": 9}, True),
        ({"dim": [8, 9]}, {"dim": 10}, False),
        ({"patch": [[1, 1]]}, {"patch": [1, 1]}, True),
        ({"patch": [[1, 1]]}, {"patch": [1, 2]}, False),
        ({"guidance_embed": None}, {}, True),
        ({"guidance_embed": None}, {"guidance_embed": False}, True),
        ({"guidance_embed": None}, {"guidance_embed": True}, False),
        ({"area": {"below": 10}}, {"area": 9}, True),
        ({"area": {"below": 10}}, {"area": 10}, False),
        ({"area": {"from": 10}}, {"area": 10}, True),
        ({"area": {"from": 10}}, {"area": 9}, False),
        ({"area": {"from": 10}}, {"area": None}, False),
        ({"area": {"below": 10}}, {}, False),
    ],
)
def test_matches(wanted, facts, answer):
    assert matches(wanted, facts) is answer


def shifted(shift, steps, first=0, last=None):
    """A flow model's schedule, cut as two samplers in a row would."""
    times = [1 - step / steps for step in range(steps + 1)]
    return [shift * t / (1 + (shift - 1) * t) for t in times][first : None if last is None else last + 1]


@pytest.mark.parametrize("shift", [3, 5, 8, 12])
@pytest.mark.parametrize("steps", [4, 8, 20])
def test_the_experts_are_told_by_their_half_of_the_sigmas(shift, steps):
    assert noise_range(shifted(shift, steps)) == "all"
    assert noise_range(shifted(shift, steps, last=steps // 2)) == "high"
    assert noise_range(shifted(shift, steps, first=steps // 2)) == "low"


@pytest.mark.parametrize(("shift", "boundary"), [(12, 0.875), (5, 0.9)])
def test_the_experts_are_told_at_the_published_boundaries(shift, boundary):
    sigmas = shifted(shift, 40)
    high = [sigma for sigma in sigmas if sigma >= boundary]
    assert noise_range([*high, sigmas[len(high)]]) == "high" and noise_range(sigmas[len(high) :]) == "low"


def test_no_sigmas():
    assert noise_range([]) == "all"


EULER = comfy.samplers.sampler_object("euler")


def guider(cfg=1.0, **conds):
    return SimpleNamespace(cfg=cfg, conds=conds, model_patcher=shared("flux_dev").patcher)


@pytest.mark.parametrize(
    ("given", "guided"),
    [
        (guider(positive=[{}]), False),
        (guider(positive=[{}], negative=[{}]), False),
        (guider(cfg=4.0, positive=[{}], negative=[{}]), True),
        (guider(positive=[{}], middle=[{}], negative=[{}]), True),
        (SimpleNamespace(model_patcher=shared("flux_dev").patcher), False),
    ],
)
def test_guidance(given, guided):
    assert run_facts(given, [1.0, 0.0], (1, 16, 8, 8), False, EULER)["guided"] is guided


def test_what_a_run_adds():
    given = guider(positive=[{}], negative=[{"reference_latents": [torch.zeros(1)]}])
    facts = run_facts(given, [1.0, 0.9], (1, 16, 5, 60, 104), True, EULER)
    of_run = {"steps", "whole_steps", "sigmas", "latent", "flow", "model", "sampler", "sees_branches"}
    assert set(facts) == {*ASSUMED, *of_run} and facts["steps"] == 1
    assert (facts["references"], facts["masked"]) == (True, True)
    assert (facts["latent_area"], facts["noise_range"]) == (ASSUMED["latent_area"], "high")
    assert run_facts(given, [1.0, 0.0], (1, 1, 4096), False, EULER)["latent_area"] is None


@pytest.mark.parametrize("references", [False, True])
def test_facts_of_a_real_run(references):
    """ComfyUI's guider has what `run_facts` looks for, at the place where a cache is set up."""
    seen = []

    def watch(executor, noise, latent_image, sampler, sigmas, *args, **kwargs):
        seen.append(run_facts(executor.class_obj, sigmas.tolist(), tuple(noise.shape), args[0] is not None, sampler))
        return executor(noise, latent_image, sampler, sigmas, *args, **kwargs)

    tiny = shared("flux_dev")
    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.OUTER_SAMPLE, "test", watch)
    more = {"reference_latents": [torch.zeros_like(tiny.latent)]} if references else {}
    positive = [[tiny.positive[0][0], tiny.positive[0][1] | more]]
    run(patcher, tiny, steps=2, cfg=3.0, positive=positive)
    (facts,) = seen
    wanted = {
        "steps": 2,
        "whole_steps": 2,
        "references": references,
        "masked": False,
        "guided": True,
        "latent_area": 64,
    }
    wanted |= {"noise_range": "all", "latent": (1, 16, 8, 8), "flow": True, "sampler": "ode", "sees_branches": False}
    assert {name: facts[name] for name in wanted} == wanted and facts["model"].model is patcher.model
