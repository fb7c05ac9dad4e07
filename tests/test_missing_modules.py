"""The pack loads and works without any one of ComfyUI's model modules: it asks models for their class names only.

Packs that import models at the top stop loading altogether when ComfyUI moves or drops one of them.
"""

import importlib
import sys

import pytest

from devtools.pack import ROOT, load_package

from .caching import PERMISSIVE
from .sampling import run
from .tiny_models import RECIPES, shared

FRESH = "stepcache_without_a_model"
SUBMODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("cache_core", "model_patches", "nodes")
    for file in sorted((ROOT / package).rglob("*.py"))
]
NETWORKS = {recipe.network: name for name, recipe in RECIPES.items()}


def hide(monkeypatch, module, network):
    """As if ComfyUI had no such module and no such class any more."""
    parent, _, name = module.rpartition(".")
    monkeypatch.delattr(sys.modules[module], network)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delattr(sys.modules[parent], name, raising=False)


@pytest.fixture
def forgotten():
    """Forget the fresh copy of the pack."""
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == FRESH]:
        del sys.modules[name]


@pytest.mark.parametrize("network", NETWORKS)
def test_the_pack_works_without(network, monkeypatch, forgotten):
    module = type(shared(NETWORKS[network]).patcher.model.diffusion_model).__module__
    other = shared("flux_dev" if module.startswith("comfy.ldm.wan") else "wan_t2v")
    hide(monkeypatch, module, network)
    with pytest.raises(ImportError):
        importlib.import_module(module)
    load_package(FRESH, ROOT)
    fresh = {name: importlib.import_module(f"{FRESH}.{name}") for name in SUBMODULES}
    method = fresh["cache_core.methods.teacache"].teacache(PERMISSIVE)
    reports = []
    patcher = fresh["model_patches.install"].apply_cache(other.patcher, method, listener=reports.append)
    run(patcher, other, steps=4)
    assert reports[-1].reused == 2
    assert reports[-1].messages == []  # the other model is known
