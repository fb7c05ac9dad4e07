"""Recipes are for the newest ComfyUI; older ones skip what they lack, and say so."""

from dataclasses import replace

import pytest

from devtools.junit import ABSENT

from . import tiny_models
from .recipes import RECIPES
from .tiny_models import build_patcher

FLUX = RECIPES["flux_dev"]


@pytest.mark.parametrize("recipe", [replace(FLUX, config="Fluxx"), replace(FLUX, since="999.0")])
def test_a_model_that_this_comfyui_lacks_is_skipped_by_name(recipe):
    with pytest.raises(pytest.skip.Exception) as skipped:
        build_patcher(recipe, seed=0)
    found = ABSENT.search(str(skipped.value))
    assert found and found[1] == recipe.config


def test_a_keyword_argument_that_an_older_comfyui_does_not_know_is_left_out(monkeypatch):
    recipe = replace(FLUX, unet=FLUX.unet | {"made_up": 1})
    monkeypatch.setattr(tiny_models, "OLDER", True)
    assert type(build_patcher(recipe, seed=0).model.diffusion_model).__name__ == recipe.network
    monkeypatch.setattr(tiny_models, "OLDER", False)
    with pytest.raises(TypeError, match="made_up"):
        build_patcher(recipe, seed=0)
