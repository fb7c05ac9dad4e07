"""What every method promises on every supported architecture."""

from __future__ import annotations

import gc

import comfy.model_management
import comfy.patcher_extension
import pytest
import torch
from comfy_extras.nodes_easycache import EasyCacheNode, LazyCacheNode

from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.install import ConflictingCache

from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, UNCHANGED, cached, normally_cached
from ..control import with_control
from ..exactness import assert_repeats_are_reused_exactly
from ..leftovers import fingerprint, only_new_objects, state_objects, with_input_watch  # noqa: F401
from ..sampling import count_block_runs, main_layer, run
from ..tiny_models import RECIPES, blocks_of, build, drawer, shared

Interrupt = comfy.model_management.InterruptProcessingException  # the Cancel button
EVERY = [name for name in RECIPES if name != "hidream_o1_edit"]  # it finds its own cache by chance: see test_traps.py
EXCEPTIONS = [
    *((name, Interrupt, "teacache") for name in EVERY),  # how blocks are restored does not depend on the method
    *(
        (name, kind, method)
        for name in ("flux_dev", "wan_t2v")
        for kind in (Interrupt, RuntimeError)
        for method in METHODS
    ),
]

every_architecture = pytest.mark.parametrize("name", EVERY)
every_method = pytest.mark.parametrize("method", METHODS)
controllable = pytest.mark.parametrize("name", ["flux_dev", "qwen_image", "hunyuan_video", "sd3"])


def test_every_supported_class_has_a_tiny_model():
    assert set(ARCHITECTURES) == {recipe.network for recipe in RECIPES.values()}


# -- exactness --------------------------------------------------------------------------------------------------------


@every_architecture
@every_method
def test_nothing_reused_is_bit_identical(name, method):
    tiny = shared(name)
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(run(exact.patcher, tiny, steps=4, cfg=4.0), run(tiny.patcher, tiny, steps=4, cfg=4.0))
    assert (exact.report.evaluations, exact.report.computed) == (4, 4)


@every_architecture
@every_method
def test_reuse_on_the_same_input_is_exact(name, method):
    tiny = shared(name)
    assert_repeats_are_computed_once(tiny.patcher, tiny, method)


@controllable
@every_method
def test_controlnet(name, method):
    tiny = shared(name)
    controlled = with_control(tiny)
    plain = run(tiny.patcher, controlled, steps=4, cfg=4.0)
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(run(exact.patcher, controlled, steps=4, cfg=4.0), plain)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=4, cfg=4.0), atol=1e-2)
    assert_repeats_are_computed_once(tiny.patcher, controlled, method)


@every_architecture
@every_method
def test_lora(name, method):
    tiny = build(name)
    patched = with_weight_patch(tiny.patcher)
    plain, base = run(patched, tiny, steps=4), run(tiny.patcher, tiny, steps=4)
    assert not torch.allclose(plain, base, atol=1e-3)
    assert torch.equal(run(cached(patched, method, IMPOSSIBLE).patcher, tiny, steps=4), plain)
    assert_repeats_are_computed_once(patched, tiny, method)
    assert torch.equal(run(tiny.patcher, tiny, steps=4), base)


def assert_repeats_are_computed_once(patcher, tiny, method):
    """Of every sigma evaluated twice on the same x, the second result is the first, though its blocks were skipped."""
    run(patcher, tiny, steps=1)  # HiDream-O1 keeps the prompt's keys and values of its first call ever
    with count_block_runs(patcher) as runs:
        report = assert_repeats_are_reused_exactly(patcher, tiny, METHODS[method](UNCHANGED)).report
    assert [evaluation.action for evaluation in report.trace] == ["computed", "reused"] * 3 + ["computed"] * 2
    assert runs.count == report.computed == 5


def deviation(result, exact) -> float:
    """The largest difference over the largest value."""
    return float((result - exact).abs().max() / exact.abs().max())


def with_weight_patch(patcher):
    """A clone with patches on the layers of the last block, as a LoRA makes."""
    names = {id(module): name for name, module in patcher.model.named_modules()}
    layers = [layer for layer in blocks_of(patcher)[-1].modules() if isinstance(layer, torch.nn.Linear)]
    draw = drawer(3)
    patches = {f"{names[id(layer)]}.weight": ("diff", (draw(*layer.weight.shape),)) for layer in layers}
    patched = patcher.clone()
    assert len(patched.add_patches(patches, 0.1)) == len(layers)
    return patched


# -- one run leaves nothing to the next -------------------------------------------------------------------------------


@every_architecture
@every_method
def test_a_second_run_repeats_the_first_and_frees_what_it_kept(name, method):
    tiny = shared(name)
    normal = normally_cached(tiny, method)
    first = run(normal.patcher, tiny, steps=10, cfg=4.0)
    held = tensor_bytes()
    second = run(normal.patcher, tiny, steps=10, cfg=4.0)
    assert torch.equal(first, second)
    assert 0 < normal.report.reused < normal.report.evaluations
    assert normal.report.cache_bytes > 0
    assert state_objects() == []
    assert tensor_bytes() - held <= nbytes(second)


@pytest.mark.parametrize(("name", "kind", "method"), EXCEPTIONS)
def test_an_exception_restores_the_blocks_and_leaves_nothing_behind(name, kind, method):
    tiny = build(name)
    for model in (tiny, shared(name)):
        run(model.patcher, model, steps=1)  # HiDream-O1 keeps the prompt's keys and values of its first call ever
    normal = normally_cached(tiny, method)
    expected = run(normally_cached(shared(name), method).patcher, shared(name), steps=10)
    error = kind("stop")
    with pytest.raises(kind) as caught:
        run_and_raise(normal.patcher, tiny, error)
    assert caught.value is error
    assert all("forward" not in vars(block) for block in blocks_of(tiny.patcher))
    del caught
    error.__traceback__ = None
    assert state_objects() == []
    assert torch.equal(run(normal.patcher, tiny, steps=10), expected)


@every_architecture
@every_method
def test_the_model_is_left_as_it_was(name, method):
    tiny = shared(name)
    before = fingerprint(tiny.patcher)
    run(cached(tiny.patcher, method, PERMISSIVE).patcher, tiny, steps=4, cfg=4.0)
    assert fingerprint(tiny.patcher) == before


def run_and_raise(patcher, tiny, error):
    """Raise from inside the last block, the second time that it computes."""
    with count_block_runs(patcher) as runs:

        def stop(*_):
            if runs.count == 2:
                raise error

        handle = main_layer(blocks_of(patcher)[-1]).register_forward_pre_hook(stop)
        try:
            run(patcher, tiny, steps=10)
        finally:
            handle.remove()


def tensor_bytes() -> int:
    gc.collect()
    return sum(nbytes(thing) for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


def nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# -- the call ---------------------------------------------------------------------------------------------------------


@every_architecture
@every_method
def test_the_input_of_a_model_call_is_not_written(name, method):
    tiny = shared(name)
    watching, written = with_input_watch(tiny.patcher)
    permissive = cached(watching, method, PERMISSIVE)
    run(permissive.patcher, tiny, steps=4, cfg=4.0)
    assert permissive.report.reused == 2
    assert written and not any(written)


@every_architecture
@every_method
def test_a_reused_call_does_not_write_into_the_tokens_it_is_given(name, method):
    """The model may hold them for later; on a computed call the blocks themselves may write there."""
    tiny = shared(name)
    watching = tiny.patcher.clone()
    given, changed = [], []

    def note(module, args, kwargs):
        given.extend((value, value.clone()) for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))

    def compare(executor, *args, **kwargs):
        given.clear()
        output = executor(*args, **kwargs)
        changed.append([not torch.equal(*pair) for pair in given])
        return output

    watching.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "compare", compare)
    permissive = cached(watching, method, PERMISSIVE)
    first_skipped = blocks_of(watching)[1 if method == "first_block" else 0]
    handle = first_skipped.register_forward_pre_hook(note, with_kwargs=True)
    run(permissive.patcher, tiny, steps=4)
    handle.remove()
    assert [evaluation.action for evaluation in permissive.report.trace[1:3]] == ["reused"] * 2
    assert all(call and not any(call) for call in changed[1:3])


@every_architecture
@every_method
def test_split_calls_give_the_result_of_batched_ones(name, method, monkeypatch):
    tiny = shared(name)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    plain_batched = run(tiny.patcher, tiny, steps=4, cfg=4.0)
    batched = run(permissive.patcher, tiny, steps=4, cfg=4.0)
    monkeypatch.setattr(tiny.patcher.model, "memory_required", lambda *args, **kwargs: 1e30)
    plain_split = run(tiny.patcher, tiny, steps=4, cfg=4.0)
    with count_block_runs(tiny.patcher) as runs:
        split = run(permissive.patcher, tiny, steps=4, cfg=4.0)
    assert runs.count == 2 * permissive.report.computed == 4
    mixes = {"pixart_alpha", "pixart_sigma", "ace15", "seedvr2"}  # in ComfyUI itself rows see others
    assert torch.allclose(plain_split, plain_batched, atol=1e-3) == (name not in mixes)
    assert name in mixes or deviation(split, batched) <= 1e-3


# -- refusals ---------------------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("other", METHODS)
def test_two_caches_of_ours_are_refused(method, other):
    once = cached(shared("flux_dev").patcher, other, PERMISSIVE)
    with pytest.raises(ConflictingCache, match="StepCache"):
        cached(once.patcher, method, PERMISSIVE)


@every_method
@pytest.mark.parametrize("node", [EasyCacheNode, LazyCacheNode])
def test_a_core_cache_before_ours_is_refused(method, node):
    with pytest.raises(ConflictingCache, match=node.__name__.removesuffix("Node")):
        cached(with_core_cache(shared("flux_dev").patcher, node), method, PERMISSIVE)


@every_method
@pytest.mark.parametrize("node", [EasyCacheNode, LazyCacheNode])
def test_a_core_cache_after_ours_is_refused_when_sampling_starts(method, node):
    tiny = shared("flux_dev")
    ours = cached(tiny.patcher, method, PERMISSIVE)
    with pytest.raises(ConflictingCache, match=node.__name__.removesuffix("Node")):
        run(with_core_cache(ours.patcher, node), tiny, steps=2)


def with_core_cache(patcher, node):
    return node.execute(patcher, reuse_threshold=0.2, start_percent=0.15, end_percent=0.95, verbose=False).result[0]
