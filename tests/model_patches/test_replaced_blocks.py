"""Nodes that put something else in the place of a block (`patches_replace`)."""

import comfy.patcher_extension
import pytest
import torch
from comfy_extras.nodes_slg import SkipLayerGuidanceDiT

from ..caching import METHODS, PERMISSIVE, cached
from ..exactness import assert_exact_when_nothing_is_reused, assert_repeats_are_exact
from ..sampling import run
from ..tiny_models import shared

PLACES = [("double_block", 0), ("double_block", 1), ("single_block", 0), ("single_block", 2)]

every_method = pytest.mark.parametrize("method", METHODS)


def ends(method):
    """The blocks of the tiny Flux at which the cache reads or returns something."""
    always = [("double_block", 1)] if method == "first_block" else []
    return {("double_block", 0), ("single_block", 2), *always}


@every_method
@pytest.mark.parametrize(("double", "single"), [("1", ""), ("", "0, 1"), ("0", "2")])
def test_skip_layer_guidance(method, double, single):
    """The perturbed call has the same conditioning and sigma as the plain one, and blocks that do not run."""
    tiny = shared("flux_dev")
    patcher = SkipLayerGuidanceDiT.execute(
        tiny.patcher, scale=3.0, start_percent=0.0, end_percent=1.0, double_layers=double, single_layers=single
    ).result[0]
    plain = assert_exact_when_nothing_is_reused(patcher, tiny, method, cfg=4.0)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=6, cfg=4.0), atol=1e-3)
    assert_repeats_are_exact(patcher, tiny, method, cfg=4.0)
    permissive = cached(patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, steps=6, cfg=4.0)).all()
    replaced = {("double_block", int(i)) for i in double} | {("single_block", int(i)) for i in single.split(", ") if i}
    calls = 0 if replaced & ends(method) else 2  # where an end is replaced, none is reused: they must not be mixed
    assert [evaluation.reused_calls for evaluation in permissive.report.trace] == [0, *[calls] * 4, 0]


@every_method
@pytest.mark.parametrize("place", PLACES)
def test_a_replacement_that_does_not_call_its_block(method, place):
    """At an end nothing can be observed: all is computed, and the report says why. Elsewhere it is reused rightly."""
    tiny = shared("flux_dev")
    patcher = with_bent_block(tiny, place)
    plain = assert_exact_when_nothing_is_reused(patcher, tiny, method)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=6), atol=1e-3)
    permissive = cached(patcher, method, PERMISSIVE)
    out = run(permissive.patcher, tiny, steps=6)
    if place in ends(method):
        assert torch.equal(out, plain)
        assert permissive.report.reused == 0
        assert all("blocks did not run as expected" in evaluation.reason for evaluation in permissive.report.trace)
    else:
        assert permissive.report.reused == 4
        assert_repeats_are_exact(patcher, tiny, method)


@every_method
@pytest.mark.parametrize("place", PLACES)
def test_a_block_that_is_replaced_in_between_is_not_mixed_up(method, place):
    """The same conditioning is called plainly and with a replaced block in turn; neither gets the other's result."""
    tiny = shared("flux_dev")
    replaced = with_bent_block(tiny, place).model_options["transformer_options"]["patches_replace"]
    evaluations = []

    def in_turn(executor, x, timestep, model_options, *args):
        evaluations.append(True)
        if len(evaluations) // 2 % 2:
            options = model_options["transformer_options"] | {"patches_replace": replaced}
            model_options = model_options | {"transformer_options": options}
        return executor(x, timestep, model_options, *args)

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREDICT_NOISE, "in turn", in_turn)
    plain = run(patcher, tiny, steps=8)
    assert not torch.allclose(plain, run(tiny.patcher, tiny, steps=8), atol=1e-3)
    permissive = cached(patcher, method, PERMISSIVE)
    evaluations.clear()
    run(permissive.patcher, tiny, steps=8)
    after_a_change = permissive.report.trace[1::2]
    assert all(evaluation.action == "computed" for evaluation in after_a_change)


@every_method
def test_a_replacement_that_stops_calling_the_last_block_is_computed_again(method):
    """Reuse was decided, but the block that was to return the result is not called: the call is made anew, in full."""
    tiny = shared("flux_dev")
    evaluations = []

    def count(executor, *args):
        evaluations.append(True)
        return executor(*args)

    def in_turn(args, extra):
        return extra["original_block"](args) if len(evaluations) % 2 else bent(args, extra)

    patcher = tiny.patcher.clone()
    patcher.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREDICT_NOISE, "count", count)
    patcher.set_model_patch_replace(in_turn, "dit", "single_block", 2)
    plain = run(patcher, tiny, steps=8)
    evaluations.clear()
    permissive = cached(patcher, method, PERMISSIVE)
    assert torch.equal(run(permissive.patcher, tiny, steps=8), plain)
    assert all("blocks did not run as expected" in evaluation.reason for evaluation in permissive.report.trace[1::2])


def with_bent_block(tiny, place):
    patcher = tiny.patcher.clone()
    patcher.set_model_patch_replace(bent, "dit", *place)
    return patcher


def bent(args, extra):
    """Half of what came in; the original block is not called."""
    return {name: args[name] * 0.5 for name in ("img", "txt") if name in args}
