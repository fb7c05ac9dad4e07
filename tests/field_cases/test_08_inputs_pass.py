"""CASE-08: everything that a model call is given reaches the model, whether the pack knows it or not.

Users saw ControlNet ignored, "unexpected keyword argument" after each ComfyUI update, and other nodes' block patches lost:
the pack had brought its own copy of the model's forward.
"""

import comfy.patcher_extension
import pytest
import torch

from ..caching import IMPOSSIBLE, PERMISSIVE, WHOLE_MODEL, cached, first_computed, normally_cached, relative
from ..control import with_control
from ..sampling import run
from ..tiny_models import shared


def test_control_residuals(method):
    tiny = shared("flux_dev")
    controlled = with_control(tiny)
    exact = run(tiny.patcher, controlled, steps=10)
    assert torch.equal(run(cached(tiny.patcher, method, IMPOSSIBLE).patcher, controlled, steps=10), exact)
    normal = normally_cached(tiny, method)
    with_it, without = run(normal.patcher, controlled, steps=10), run(normal.patcher, tiny, steps=10)
    assert not torch.allclose(with_it, without, atol=1e-2)
    assert relative(with_it, exact) < relative(without, exact)


@pytest.mark.parametrize("index", [0, 1])
def test_a_replaced_block_that_calls_the_original(tiny, method, index):
    calls = []

    def replacement(args, extra):
        calls.append(index)
        return extra["original_block"](args)

    patcher = with_replaced_block(tiny, index, replacement)
    plain = run(patcher, tiny, steps=10)
    calls.clear()
    assert torch.equal(run(cached(patcher, method, IMPOSSIBLE).patcher, tiny, steps=10), plain)
    assert len(calls) == 10


@pytest.mark.parametrize("index", [0, 1])
def test_a_replaced_block_that_does_not_call_the_original(tiny, method, index):
    patcher = with_replaced_block(tiny, index, lambda args, extra: {name: args[name] for name in ("img", "txt")})
    plain = run(patcher, tiny, steps=10)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=10), atol=1e-3)
    assert torch.equal(run(cached(patcher, method, IMPOSSIBLE).patcher, tiny, steps=10), plain)
    assert torch.isfinite(run(cached(patcher, method, PERMISSIVE).patcher, tiny, steps=10)).all()


def test_an_unknown_keyword_arrives(tiny, method, monkeypatch):
    model, arrived = tiny.patcher.model.diffusion_model, []
    forward = model.forward

    def receive(*args, zz_future=None, **kwargs):
        arrived.append(zz_future)
        return forward(*args, **kwargs)

    monkeypatch.setitem(vars(model), "forward", receive)
    patcher = tiny.patcher.clone()
    send = lambda executor, *args, **kwargs: executor(*args, zz_future=1, **kwargs)  # noqa: E731
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "send", send)
    model = cached(patcher, method, PERMISSIVE)
    run(model.patcher, tiny, steps=10)
    assert model.report.reused == 9 - first_computed(method)
    assert arrived == [1] * (model.report.computed if method in WHOLE_MODEL else 10)


def with_replaced_block(tiny, index, replacement):
    patcher = tiny.patcher.clone()
    patcher.set_model_patch_replace(replacement, "dit", "double_block", index)
    return patcher
