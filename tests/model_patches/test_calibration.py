"""Each model gets the figures that were published for it, and no other."""

import math

import pytest
import torch

from stepcache.cache_core.distances import polynomial
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.calibration import calibration_for, entries, matches

from ..tiny_models import RECIPES, shared

FILES = ["teacache", "first_block"]
ENTRIES = [pytest.param(entry, id=f"{file}-{entry['name']}") for file in FILES for entry in entries(file)["entries"]]
FITTED = [param for param in ENTRIES if param.values[0].get("coefficients")]

FLUX_DEV = {
    "image_model": "flux", "in_channels": 16, "patch_size": 2, "out_channels": 16, "vec_in_dim": 768,
    "context_in_dim": 4096, "hidden_size": 3072, "mlp_ratio": 4.0, "num_heads": 24, "depth": 19,
    "depth_single_blocks": 38, "axes_dim": [16, 56, 56], "theta": 10000, "qkv_bias": True, "guidance_embed": True,
}  # fmt: skip
WAN_14B = {"image_model": "wan2.1", "model_type": "t2v", "dim": 5120, "in_dim": 16, "num_layers": 40}


def found(file, architecture, facts):
    """Names of the entries that fit, in the order of the file."""
    return [
        entry["name"]
        for entry in entries(file)["entries"]
        if entry["architecture"] == architecture and matches(entry["match"], facts)
    ]


@pytest.mark.parametrize("file", FILES)
def test_flux_dev_is_found_by_what_comfyui_detects(file):
    assert found(file, "Flux", FLUX_DEV) == ["FLUX.1-dev"]


def test_models_of_one_class_are_told_apart():
    assert found("teacache", "Wan", WAN_14B) == ["Wan2.1 T2V 14B"]
    assert found("teacache", "Wan", WAN_14B | {"dim": 1536}) == ["Wan2.1 T2V 1.3B"]
    assert found("teacache", "Wan", WAN_14B | {"model_type": "i2v", "in_dim": 36}) == ["Wan2.1 I2V 14B (480p figures)"]
    assert found("teacache", "Flux", FLUX_DEV | {"depth": 5, "depth_single_blocks": 20}) == []
    assert found("teacache", "Flux", FLUX_DEV | {"guidance_embed": False}) == []  # schnell


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("file", FILES)
def test_an_unpublished_model_gets_the_general_rule(file, name):
    calibration = calibration_for(file, shared(name).patcher)
    assert calibration.source is None and calibration.coefficients is None
    assert "general rule" in calibration.name
    assert calibration.threshold == entries(file)["general"]["threshold"] > 0


@pytest.mark.parametrize(
    ("wanted", "facts", "answer"),
    [
        ({}, {}, True),
        ({"dim": 8}, {"dim": 8}, True),
        ({"dim": 8}, {"dim": 9}, False),
        ({"dim": 8}, {}, False),
        ({"dim": [8, 9]}, {"dim": 9}, True),
        ({"dim": [8, 9]}, {"dim": 10}, False),
        ({"guidance_embed": None}, {}, True),
        ({"guidance_embed": None}, {"guidance_embed": False}, True),
        ({"guidance_embed": None}, {"guidance_embed": True}, False),
    ],
)
def test_matches(wanted, facts, answer):
    assert matches(wanted, facts) is answer


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_says_where_it_is_from(entry):
    assert entry["name"] and entry["match"]
    assert "commit" in entry["source"] or "arXiv" in entry["source"]
    assert entry["architecture"] in {architecture.name for architecture in ARCHITECTURES.values()}
    assert math.isfinite(entry["threshold"]) and entry["threshold"] > 0


@pytest.mark.parametrize("entry", FITTED)
def test_a_polynomial_is_positive_where_it_is_used(entry):
    low, high = entry["fitted_range"]
    assert 0 <= low < high
    changes = torch.linspace(low, high, 2001, dtype=torch.float64)
    values = polynomial(changes, entry["coefficients"])
    assert torch.isfinite(values).all() and (values > 0).all()
