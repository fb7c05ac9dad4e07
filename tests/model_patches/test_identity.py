"""Which model it is, and with which LoRAs."""

import comfy.lora
import comfy.model_management
import comfy.model_patcher
import pytest
import torch

from stepcache.model_patches.identity import CHOSEN, model_identity, patches_identity, sampled, spread
from stepcache.model_patches.install import apply_cache

from ..caching import CURVE, EVERY_METHOD
from ..sampling import run
from ..tiny_models import CPU, blocks_of, build, build_unet, drawer


def with_lora(tiny, strength=1.0, seed=3, blocks=1, patcher=None):
    """A clone with a LoRA on the layers of the last blocks, in the form in which ComfyUI loads one."""
    names = {id(module): name for name, module in tiny.patcher.model.named_modules()}
    draw, weights, keys = drawer(seed), {}, {}
    for block in blocks_of(tiny.patcher)[-blocks:]:
        for layer in (layer for layer in block.modules() if isinstance(layer, torch.nn.Linear)):
            name, (rows, columns) = names[id(layer)], layer.weight.shape
            weights[f"{name}.lora_up.weight"], weights[f"{name}.lora_down.weight"] = draw(rows, 4), draw(4, columns)
            keys[name] = f"{name}.weight"
    patched = (patcher or tiny.patcher).clone()
    patches = comfy.lora.load_lora(weights, keys)
    assert len(patched.add_patches(patches, strength)) == len(keys) == len(patches)
    return patched


@pytest.mark.parametrize("name", ["flux_dev", "wan_t2v", "ltx_av"])
def test_a_model_is_itself_again_after_a_reload(name):
    tiny, again = build(name), build(name)
    identity = model_identity(tiny.patcher)
    assert identity == model_identity(again.patcher) == model_identity(tiny.patcher.clone())
    assert len(identity) == 16 and int(identity, 16)
    run(tiny.patcher, tiny, steps=2)
    assert model_identity(tiny.patcher) == identity


def test_other_weights_sizes_and_classes_are_other_models():
    patchers = [build("flux_dev").patcher, build("flux_dev", 1).patcher, build("wan_t2v").patcher, build_unet()]
    patchers.append(build("flux_dev", depth=1).patcher)
    assert len({model_identity(patcher) for patcher in patchers}) == len(patchers)


def test_one_weight_that_is_looked_at_is_enough():
    tiny = build("flux_dev")
    before = model_identity(tiny.patcher)
    with torch.no_grad():
        next(iter(sorted(tiny.patcher.model.diffusion_model.named_parameters())))[1].add_(1e-3)
    assert model_identity(tiny.patcher) != before


def test_a_cache_and_other_options_make_no_other_model():
    tiny = build("flux_dev")
    cached = apply_cache(tiny.patcher, EVERY_METHOD["magcache"](CURVE.threshold))
    assert model_identity(cached) == model_identity(tiny.patcher) and patches_identity(cached) == ""


def test_a_lora_makes_no_other_model_and_is_told_apart():
    tiny = build("flux_dev")
    identity, seen = model_identity(tiny.patcher), {patches_identity(tiny.patcher)}
    kinds = [{}, dict(strength=0.5), dict(strength=-1.0), dict(seed=4), dict(blocks=2)]
    for kind in kinds:
        patched = with_lora(tiny, **kind)
        assert model_identity(patched) == identity
        assert patches_identity(patched) == patches_identity(with_lora(build("flux_dev"), **kind))
        seen.add(patches_identity(patched))
    twice = with_lora(tiny, seed=4, patcher=with_lora(tiny))
    assert len(seen | {patches_identity(twice)}) == len(kinds) + 2


def test_a_model_that_comfyui_has_patched_in_place_is_the_same():
    """A LoRA is added to the weights when the model is loaded; the originals are kept aside."""
    tiny = build("flux_dev")
    identity, patched = model_identity(tiny.patcher), with_lora(tiny, blocks=6)
    plain = run(tiny.patcher, tiny, steps=2)
    before = blocks_of(tiny.patcher)[-1].linear2.weight.clone()
    comfy.model_management.load_models_gpu([patched])
    try:
        assert not torch.equal(blocks_of(tiny.patcher)[-1].linear2.weight, before)
        assert model_identity(patched) == model_identity(tiny.patcher) == identity
        assert patches_identity(patched) == patches_identity(with_lora(build("flux_dev"), blocks=6)) != ""
    finally:
        patched.detach()
    assert torch.equal(run(tiny.patcher, tiny, steps=2), plain) and model_identity(tiny.patcher) == identity


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_of_every_kind_can_be_read(dtype):
    one, other, same = build("flux_dev"), build("flux_dev", 1), build("flux_dev")
    for tiny in (one, other, same):
        tiny.patcher.model.diffusion_model.to(dtype)
    assert model_identity(one.patcher) == model_identity(same.patcher) != model_identity(other.patcher)


def test_weights_that_cannot_be_read_count_by_their_shape():
    meta = torch.empty(4, 4, device="meta")
    assert sampled(meta) == sampled(torch.empty(4, 4, device="meta")) != sampled(torch.empty(4, 5, device="meta"))
    tiny = build("flux_dev")
    tiny.patcher.model.diffusion_model.to("meta")
    assert len(model_identity(tiny.patcher)) == 16


@pytest.mark.parametrize("patch", [("set", (torch.ones(2),)), ("diff", (None,)), ("unknown", ({"a": 1},)), (None,)])
def test_patches_of_any_form_are_taken(patch):
    patcher = comfy.model_patcher.ModelPatcher(build("flux_dev").patcher.model, CPU, CPU)
    patcher.patches = {"key": [(1.0, patch, 1.0, None, None)], ("key", 1): [(0.5, patch, 1.0, None, None)]}
    assert len(patches_identity(patcher)) == 8


def test_weights_are_looked_at_from_the_first_to_the_last():
    assert spread(range(5)) == range(5)
    chosen = spread(range(1000))
    assert len(chosen) == CHOSEN and (chosen[0], chosen[-1]) == (0, 999)
