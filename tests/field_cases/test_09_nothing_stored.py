"""CASE-09: nothing is reused before something was stored.

Users saw exceptions with few steps, and with a negative prompt that begins half-way: there was nothing to reuse yet.
"""

import comfy.patcher_extension
import pytest
import torch

from ..caching import GUIDED, PERMISSIVE, cached, first_computed
from ..sampling import MIDDLE, main_layer, run
from ..tiny_models import blocks_of, conditioning


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("cfg", [1.0, 4.0])
@pytest.mark.parametrize("start_percent", [0.0, 0.1])
def test_few_steps(tiny, method, steps, cfg, start_percent):
    negative = conditioning(tiny.name, 12, tokens=50)
    patcher, calls = with_call_log(tiny.patcher, method, start_percent=start_percent)
    out = run(patcher, tiny, steps=steps, cfg=cfg, negative=negative)
    assert_first_calls_computed(calls, branches=1 if cfg == 1 else 2)
    if steps == 1:
        assert torch.equal(out, run(tiny.patcher, tiny, steps=1, cfg=cfg, negative=negative))


@pytest.mark.parametrize("tokens", [50, 7])
def test_a_negative_that_begins_half_way(tiny, method, tokens):
    late = conditioning(tiny.name, 12, tokens=tokens, start_percent=0.5, end_percent=1.0)
    patcher, calls = with_call_log(tiny.patcher, method)
    assert torch.isfinite(run(patcher, tiny, steps=10, cfg=4.0, negative=late)).all()
    assert_first_calls_computed(calls, branches=2)
    assert any(not computed for _, computed in calls) or method in GUIDED  # on a reused step they call no model


def test_a_prompt_that_changes_half_way(tiny, method):
    """The second prompt takes the first one's place in the call, at another evaluation."""
    early = conditioning(tiny.name, 11, start_percent=0.0, end_percent=0.47)  # 0.47: between two evaluations
    late = conditioning(tiny.name, 13, start_percent=0.47, end_percent=1.0)
    patcher, calls = with_call_log(tiny.patcher, method)
    run(patcher, tiny, steps=10, positive=early + late)
    assert_first_calls_computed(calls, branches=2)
    assert sum(computed for _, computed in calls) == 2 * first_computed(method) + 1
    assert all(len(uuids) == 1 for uuids, _ in calls)


def with_call_log(patcher, method, **limits):
    """The model under a permissive cache, and a list that gets (uuids, whether the last block computed) of each call."""
    calls = []
    layer = main_layer(blocks_of(patcher)[MIDDLE])

    def log(executor, x, t, c_concat, c_crossattn, control, options, **kwargs):
        ran = []
        handle = layer.register_forward_pre_hook(lambda *_: ran.append(True))
        output = executor(x, t, c_concat, c_crossattn, control, options, **kwargs)
        handle.remove()
        calls.append((options["uuids"], bool(ran)))
        return output

    logged = patcher.clone()
    logged.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.APPLY_MODEL, "log", log)
    return cached(logged, method, PERMISSIVE, **limits).patcher, calls


def assert_first_calls_computed(calls, branches):
    seen = set()
    for uuids, computed in calls:
        assert computed or seen.issuperset(uuids)
        seen.update(uuids)
    assert len(seen) == branches
