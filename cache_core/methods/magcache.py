"""MagCache: reuse by a curve, measured once for a model, of how the residual's magnitude changes."""

from __future__ import annotations

from typing import Any

from ..method import CacheMethod
from ..policies import MagnitudeBudget
from ..predictors import Hold
from ..probes import Nothing
from ..profiles import MagnitudeProfile


def magcache(profile: MagnitudeProfile, threshold: float, longest: int, retention: float, **limits: Any) -> CacheMethod:
    """Skip all blocks while the drift that the curve foretells stays within `threshold`.

    Args:
        profile: the curve; mapped to the run's number of steps.
        threshold: > 0, of the summed drift; larger is faster and less exact.
        longest: at most this many reused evaluations in a row (K).
        retention: 0 to 1, the first part of the whole schedule that is computed.
        **limits: of `CacheMethod`. The last step is computed, which the paper's code does not do.

    Source: MagCache, arXiv 2506.09045.
    """
    return CacheMethod("MagCache", Nothing(), MagnitudeBudget(profile, threshold, longest, retention), Hold(), **limits)
