"""Spectrum: forecast the last hidden state by Chebyshev polynomials over the steps computed so far."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..method import Boundary, CacheMethod
from ..planning import window_steps
from ..policies import Scheduled
from ..predictors import Chebyshev
from ..probes import Nothing


def spectrum(
    warmup_steps: int = 5,
    window: float = 2.0,
    growth: float = 0.75,
    degree: int = 4,
    ridge: float = 0.1,
    **limits: Any,
) -> CacheMethod:
    """Skip all blocks but once in a window of steps, which grows.

    Args:
        warmup_steps: the first so many are computed.
        window: steps from one computed step to the next at first.
        growth: added to the window at each computed step.
        degree, ridge: of the fit.
        **limits: of `CacheMethod`.

    Source: the description and defaults of the Spectrum ports to ComfyUI.
    """
    policy = Scheduled(partial(window_steps, warmup=warmup_steps, window=window, growth=growth))
    boundary = Boundary(difference=False)
    return CacheMethod("Spectrum", Nothing(), policy, Chebyshev(degree, ridge), boundary, **limits)
