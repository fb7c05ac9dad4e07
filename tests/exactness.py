"""Promises that hold whatever else is on the model."""

import comfy.samplers
import torch

from stepcache.cache_core.method import CacheMethod

from .caching import IMPOSSIBLE, UNCHANGED, Cached, cached, cached_by
from .sampling import evaluate_twice, run


def assert_exact_when_nothing_is_reused(patcher, tiny, method, **settings):
    plain = run(patcher, tiny, steps=6, **settings)
    assert torch.equal(run(cached(patcher, method, IMPOSSIBLE).patcher, tiny, steps=6, **settings), plain)
    return plain


def assert_repeats_are_exact(patcher, tiny, method, **settings):
    """Evaluate each sigma twice on the same x: the second result is the first, though it may be reused."""
    pairs = []
    model = cached(patcher, method, UNCHANGED)
    run(model.patcher, tiny, steps=4, sampler=comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs}), **settings)
    for first, second in pairs:
        assert (second - first).abs().max() <= 1e-5 * first.abs().max()
    return model


def assert_repeats_are_reused_exactly(patcher, tiny, method: CacheMethod, rounding=1e-6, **settings) -> Cached:
    """Evaluate every sigma twice on the same x: the second result is the first, though it is reused."""
    pairs = []
    cache = cached_by(patcher, method)
    run(cache.patcher, tiny, steps=4, sampler=comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs}), **settings)
    for first, second in pairs:
        assert (second - first).abs().max() <= ROUNDING.get(tiny.name, rounding) * first.abs().max()
    assert cache.report.reused == 3
    return cache


ROUNDING = {"pixeldit": 5e-6}
"""Where more than 1e-6 is rounding: PixelDiT's random pixel blocks amplify the last digit of the tokens."""
