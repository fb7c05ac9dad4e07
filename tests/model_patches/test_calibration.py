"""Each model gets the figures that were published for it, and no other."""

import math
from dataclasses import replace

import pytest
import torch

from stepcache.cache_core.distances import polynomial
from stepcache.cache_core.profiles import magnitude_profile
from stepcache.model_patches import calibration
from stepcache.model_patches.calibration import calibration_for, magnitude_profile_for
from stepcache.model_patches.variants import table

from ..tiny_models import RECIPES, shared
from .real_configs import FLUX

FILES = ["teacache", "first_block", "magcache"]
FIGURES = [name for name in FILES if name != "magcache"]
VARIANTS = {entry["name"] for entry in table("variants")["variants"]}
ENTRIES = [pytest.param(entry, id=f"{file}-{entry['name']}") for file in FILES for entry in table(file)["entries"]]
POLYNOMIALS = [pytest.param(entry, id=entry["name"]) for entry in table("teacache")["entries"]]
CURVES = {entry["name"]: entry for entry in table("magcache")["entries"]}
OTHERS = [*table("teacache")["others"], *table("magcache")["others"]]

every_curve = pytest.mark.parametrize("entry", CURVES.values(), ids=CURVES)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("file", FIGURES)
def test_an_unpublished_model_gets_the_general_rule(file, name):
    found = calibration_for(file, shared(name).patcher)
    assert found.source is None and found.coefficients is None
    assert found.few_step == (name in ("pid", "seedvr2"))
    assert found.name == "general rule"
    assert found.threshold == table(file)["general"]["threshold"] > 0


@pytest.mark.parametrize("name", RECIPES)
def test_an_unpublished_model_has_no_curve(name):
    assert magnitude_profile_for(shared(name).patcher, 20) is None


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_says_where_it_is_from_and_for_what(entry):
    assert entry["name"] and entry["variants"] and set(entry["variants"]) <= VARIANTS
    assert "commit" in entry["source"]
    assert math.isfinite(entry["threshold"]) and entry["threshold"] > 0


@pytest.mark.parametrize("entry", [*(param.values[0] for param in POLYNOMIALS), *CURVES.values(), *OTHERS])
def test_figures_say_at_which_steps_and_with_which_sampler_they_were_made(entry):
    assert "steps" in entry and entry["sampler"] and entry["source"]


@pytest.mark.parametrize("file", FIGURES)
def test_no_entry_hides_another(file):
    meant = [name for entry in table(file)["entries"] for name in entry["variants"]]
    assert len(meant) == len(set(meant))


@pytest.mark.parametrize("entry", POLYNOMIALS)
def test_a_polynomial_is_positive_where_it_is_used(entry):
    low, high = entry["fitted_range"]
    assert 0 <= low < high <= 0.5
    values = polynomial(torch.linspace(low, high, 2001, dtype=torch.float64), entry["coefficients"])
    assert torch.isfinite(values).all() and (values > 0).all()


@pytest.mark.parametrize("entry", POLYNOMIALS)
def test_a_polynomial_that_falls_below_zero_is_used_up_to_its_peak(entry):
    low, high = entry["fitted_range"]
    changes = torch.linspace(low, 0.5, 5001, dtype=torch.float64)
    values = polynomial(changes, entry["coefficients"])
    below = (values <= 0).nonzero()
    peak = changes[values[: below[0]].argmax()] if len(below) else torch.tensor(0.5)
    assert high <= peak + 1e-3


def test_no_polynomial_is_given_to_two_models_without_a_fit():
    """Only the 5b models of CogVideoX share one, as published."""
    sets = [tuple(entry["coefficients"]) for entry in table("teacache")["entries"]]
    others = [
        tuple(entry["coefficients"])
        for entry in table("teacache")["others"]
        if "not fitted again" not in entry["why_not"]
    ]
    assert len(sets) == len(set(sets)) and len(others) == len(set(others)) and not set(sets) & set(others)
    assert all(entry["why_not"] for entry in OTHERS)


def test_figures_of_the_time_embedding_need_a_model_whose_embedding_is_known(monkeypatch):
    """Lumina's are of the time embedding. Where the table of models does not say where that is, the rule must serve."""
    real = {"image_model": "lumina2", "dim": 2304}
    patcher = shared("lumina2").patcher
    monkeypatch.setattr(patcher.model.model_config, "unet_config", real)
    known = calibration.identify(patcher.model.diffusion_model)
    for place, name in (("t_embedder", "Lumina-Image-2.0"), (None, "general rule")):
        monkeypatch.setattr(calibration, "identify", lambda _, place=place: replace(known, time_embedding=place))
        assert calibration_for("teacache", patcher).name == name


def test_a_listed_class_whose_entry_does_not_fit_gets_the_general_rule(monkeypatch):
    """Its signal is then another than the one that the figures are of."""
    patcher = shared("flux_dev").patcher
    monkeypatch.setattr(patcher.model.model_config, "unet_config", FLUX)
    assert calibration_for("teacache", patcher).name == "FLUX.1-dev"
    monkeypatch.setattr(calibration, "identify", lambda _: None)
    assert calibration_for("teacache", patcher).name == "general rule"


@every_curve
def test_a_curve_is_near_one_and_has_a_ratio_for_every_step(entry):
    profile = magnitude_profile(entry)
    for values in profile.ratios.values():
        assert len(values) == entry["steps"] and values[0] == 1
        assert all(0.5 < value < 1.7 for value in values)
        assert sorted(values)[len(values) // 2] == pytest.approx(1, abs=0.07)
    assert 0 < profile.threshold < 0.5 and profile.max_consecutive >= 2 and 0 < profile.retention < 0.5


@pytest.mark.parametrize(
    ("name", "branches", "steps"),
    [
        ("FLUX.1-dev", ["all"], 28),
        ("Chroma", ["cond", "uncond"], 26),
        ("HunyuanVideo 720p", ["all"], 50),
        ("Qwen-Image, 40 steps", ["cond", "uncond"], 40),
        ("Wan2.1 T2V 1.3B", ["cond", "uncond"], 50),
        ("Wan2.1 I2V 14B 720p", ["cond", "uncond"], 40),
        ("Wan2.2 T2V A14B high noise", ["cond", "uncond"], 26),
        ("Wan2.2 T2V A14B low noise", ["cond", "uncond"], 14),
        ("Wan2.2 I2V A14B high noise", ["cond", "uncond"], 15),
        ("Wan2.2 I2V A14B low noise", ["cond", "uncond"], 25),
        ("OmniGen2 edit", ["cond", "uncond", "ref"], 50),
    ],
)
def test_lengths_and_branches_are_as_published(name, branches, steps):
    assert list(CURVES[name]["ratios"]) == branches and CURVES[name]["steps"] == steps


def test_of_several_curves_the_one_of_the_nearest_number_of_steps_is_taken(monkeypatch):
    real = {"image_model": "hunyuan_video", "vision_in_dim": 1152, "in_channels": 65}
    patcher = shared("hunyuan_video").patcher
    monkeypatch.setattr(patcher.model.model_config, "unet_config", real)
    found = {steps: magnitude_profile_for(patcher, steps) for steps in (12, 25, 35, 60)}
    assert {steps: profile.steps for steps, profile in found.items()} == {12: 20, 25: 20, 35: 40, 60: 40}


# -- wrong uses seen in the field --------------------------------------------------------------------------------------


def values_of(name):
    return {value for values in CURVES[name]["ratios"].values() for value in values[1:]}


@pytest.mark.parametrize("expert", [name for name in CURVES if "A14B" in name])
def test_the_experts_do_not_get_the_curves_of_the_5b_model(expert):
    """A pack shipped the 5B lists under the names of the 14B models."""
    for small in (name for name in CURVES if "5B" in name):
        assert len(values_of(expert) & values_of(small)) < len(values_of(expert)) / 2
        assert not set(CURVES[expert]["variants"]) & set(CURVES[small]["variants"])


@every_curve
@pytest.mark.parametrize("steps", [2, 7, 20, 33, 50, 77])
def test_the_whole_curve_is_read_to_its_end(entry, steps):
    """Indexing an interleaved list by step reads its first half only, where nothing seems to change."""
    profile = magnitude_profile(entry)
    for order, branch in enumerate(["cond", "uncond"]):
        values = profile.ratios.get(branch, profile.ratios.get("all"))
        assert len(profile.for_branch(order, steps)) == steps
        assert profile.for_branch(order, steps)[-1] == values[-1]


def test_an_interleaved_list_is_refused():
    entry = CURVES["Wan2.1 T2V 1.3B"]
    cond, uncond = entry["ratios"].values()
    mixed = [value for pair in zip(cond, uncond, strict=True) for value in pair]
    with pytest.raises(ValueError, match="100 ratios for 50 steps"):
        magnitude_profile(entry | {"ratios": {"all": mixed}})


def test_the_branch_chooses_the_list_not_its_place_in_the_batch():
    """Called alone, the negative prompt is first in its batch; it must still read its own list."""
    entry = CURVES["Wan2.1 T2V 1.3B"]
    profile = magnitude_profile(entry)
    assert profile.for_branch(0, 50) == tuple(entry["ratios"]["cond"])
    assert profile.for_branch(1, 50) == tuple(entry["ratios"]["uncond"]) != profile.for_branch(0, 50)
