"""Two promises that hold whatever else is on the model."""

import comfy.samplers
import torch

from .caching import IMPOSSIBLE, cached
from .sampling import evaluate_twice, run


def assert_exact_when_nothing_is_reused(patcher, tiny, method, **settings):
    plain = run(patcher, tiny, steps=6, **settings)
    assert torch.equal(run(cached(patcher, method, IMPOSSIBLE).patcher, tiny, steps=6, **settings), plain)
    return plain


def assert_repeats_are_exact(patcher, tiny, method, **settings):
    """Evaluate each sigma twice on the same x: the second result is the first, though it may be reused."""
    pairs = []
    model = cached(patcher, method, 1e-6)
    run(model.patcher, tiny, steps=4, sampler=comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs}), **settings)
    for first, second in pairs:
        assert (second - first).abs().max() <= 1e-5 * first.abs().max()
    return model
