"""MeanCache: a table of steps to compute; between them the guided velocity, corrected towards its mean over the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..method import Boundary, CacheMethod, Level
from ..policies import Scheduled, StepPlan
from ..predictors import MeanVelocity
from ..probes import Nothing


def meancache(plan: StepPlan, lookback: Mapping[int, int] | int = 2, **limits: Any) -> CacheMethod:
    """Skip all models and guidance at the steps that are not in the plan.

    Args:
        plan: (run) -> the steps to compute.
        lookback: over how many past steps the mean is taken, by the last computed step or for all.
        **limits: of `CacheMethod`.

    Source: MeanCache, arXiv 2601.19961 (UnicomAI/MeanCache).
    """
    boundary = Boundary(level=Level.GUIDED_PREDICTION, difference=False)
    return CacheMethod("MeanCache", Nothing(), Scheduled(plan), MeanVelocity(lookback), boundary, **limits)
