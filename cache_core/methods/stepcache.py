"""StepCache: steps planned from a recorded run; between them the guided output, forecast along a fitted line."""

from __future__ import annotations

from typing import Any

from ..forecasting import ForecastPlan
from ..method import Boundary, CacheMethod, Level
from ..policies import Followed
from ..predictors import FittedLine
from ..probes import Nothing


def stepcache(plan: ForecastPlan, guard: float = 0.0, per_branch: bool = False, **limits: Any) -> CacheMethod:
    """Skip all models and guidance at the steps that are not in the plan.

    Args:
        plan: for the schedule of the run.
        guard: see `Followed`.
        per_branch: keep the output of each branch and let guidance run, for samplers that look at what guidance is made of.
            There is no guard then, as what is recorded is guided.
        **limits: of `CacheMethod`.

    Source: ours. Dynamic programming over pairs of steps is DPCache's (arXiv 2602.22654).
    """
    level = Level.MODEL_OUTPUT if per_branch else Level.GUIDED_PREDICTION
    policy, predictor = Followed(plan, 0.0 if per_branch else guard), FittedLine(plan.segment_after)
    boundary = Boundary(level=level, difference=False)
    return CacheMethod("StepCache", Nothing(), policy, predictor, boundary, last_step=False, **limits)
