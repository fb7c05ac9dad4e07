"""CASE-03: positive and negative conditioning in separate model calls, in either order.

Users saw grey or oversaturated pictures with CFG, with long negative prompts or when memory ran low: the result stored for
one conditioning had been used for the other.
"""

import comfy.samplers
import pytest

from ..caching import FORETOLD, GUIDED, PERMISSIVE, cached, normally_cached
from ..sampling import MIDDLE, count_block_runs, run
from ..tiny_models import conditioning


@pytest.mark.parametrize(("tokens", "calls"), [(50, 2), (7, 1)])
def test_a_negative_of_no_weight_changes_nothing(tiny, method, tokens, calls):
    alone = cached(tiny.patcher, method, PERMISSIVE)
    expected = run(alone.patcher, tiny, steps=10)
    both = cached(with_negative_at_cfg_1(tiny.patcher), method, PERMISSIVE)
    with count_block_runs(both.patcher, MIDDLE) as runs:
        out = run(both.patcher, tiny, steps=10, negative=conditioning(tiny.name, 12, tokens=tokens))
    assert (out - expected).abs().max() < 1e-4
    assert both.report.computed == alone.report.computed
    assert runs.count == calls * both.report.computed


def test_split_by_memory_gives_the_batched_result(tiny, method, monkeypatch):
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    batched = run(permissive.patcher, tiny, steps=10, cfg=4.0)
    monkeypatch.setattr(tiny.patcher.model, "memory_required", lambda *args, **kwargs: 1e30)
    with count_block_runs(permissive.patcher, MIDDLE) as runs:
        split = run(permissive.patcher, tiny, steps=10, cfg=4.0)
    assert runs.count == 2 * permissive.report.computed
    assert (split - batched).abs().max() < 1e-3


@pytest.mark.parametrize("tokens", [50, 7])
def test_all_calls_of_an_evaluation_share_one_decision(tiny, method, tokens):
    normal = normally_cached(tiny, method)
    run(normal.patcher, tiny, steps=10, cfg=4.0, negative=conditioning(tiny.name, 12, tokens=tokens))
    report = normal.report
    assert 0 < report.reused < 10
    assert not any(evaluation.computed_calls and evaluation.reused_calls for evaluation in report.trace)
    assert report.device_reads == (0 if method in FORETOLD else 10)


@pytest.mark.parametrize("tokens", [50, 7])
@pytest.mark.parametrize(("again", "strength"), [("uncond", 1.0), ("cond", 1.0), ("cond", 0.5)])
def test_a_third_call_by_another_node_changes_nothing(tiny, method, tokens, again, strength):
    expected = run(cached(tiny.patcher, method, PERMISSIVE).patcher, tiny, steps=10)
    patcher = with_negative_at_cfg_1(tiny.patcher)
    sigmas = []

    def call_again(args):
        sigmas.append(float(args["sigma"][0]))
        x = args["input"] * strength
        comfy.samplers.calc_cond_batch(args["model"], [args[again]], x, args["sigma"], args["model_options"])
        return args["denoised"]

    patcher.set_model_sampler_post_cfg_function(call_again)
    both = cached(patcher, method, PERMISSIVE)
    out = run(both.patcher, tiny, steps=10, negative=conditioning(tiny.name, 12, tokens=tokens))
    assert len(sigmas) == (both.report.computed if method in GUIDED else 10)
    assert (out - expected).abs().max() < 1e-4


def with_negative_at_cfg_1(patcher):
    patcher = patcher.clone()
    patcher.model_options["disable_cfg1_optimization"] = True
    return patcher
