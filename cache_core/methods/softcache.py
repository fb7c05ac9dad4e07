"""SoftCache: SeaCache's signal; the result is continued in time, and how much has changed also says how far to step."""

from __future__ import annotations

from typing import Any

from ..method import CacheMethod
from ..policies import ChangeFromBefore
from ..predictors import Damped, Extrapolation
from ..probes import SpectralInput


def softcache(threshold: float, extrapolation: float = 1.0, **limits: Any) -> CacheMethod:
    """Skip all blocks, and continue their result linearly in sigma.

    When to reuse and how far to step is for an `AdaptiveSchedule` to say, which judges all branches of an evaluation.

    Args:
        threshold: of the change of one evaluation, where no schedule judges.
        extrapolation: beta, how much of the slope is followed; 0 holds the last computed result.
        **limits: of `CacheMethod`. The last step may be reused.

    Source: SoftCache, as a survey of feature caching describes it.
    """
    predictor = Extrapolation(1, Damped(extrapolation), clock="sigma")
    return CacheMethod(
        "SoftCache", SpectralInput(), ChangeFromBefore(threshold), predictor, **{"last_step": False, **limits}
    )
