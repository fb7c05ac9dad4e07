"""DPCache: a schedule found by dynamic programming, and extrapolation of the blocks' residual between its steps."""

from __future__ import annotations

from typing import Any

from ..method import CacheMethod
from ..policies import Scheduled, StepPlan
from ..predictors import Extrapolation, Newton
from ..probes import Nothing


def dpcache(plan: StepPlan, order: int = 1, **limits: Any) -> CacheMethod:
    """Skip all blocks at the steps that are not in the plan.

    Args:
        plan: (run) -> the steps to compute, such as `planning.cheapest_path` finds from a recording.
        order: 0 to 3, of the extrapolation. The paper's 2 lost 10 dB against 1 on the small model of this project.
        **limits: of `CacheMethod`.

    Source: DPCache, arXiv 2602.22654; the exact polynomial instead of its Taylor form, as its steps are spaced unevenly.
    """
    return CacheMethod("DPCache", Nothing(), Scheduled(plan), Extrapolation(order, Newton()), **limits)
