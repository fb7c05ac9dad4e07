"""TaylorSeer: compute every few steps, and continue the blocks' residual in time between them."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from ..method import CacheMethod
from ..planning import interval_steps
from ..policies import Scheduled
from ..predictors import Basis, Extrapolation, Taylor
from ..probes import Nothing


def taylorseer(
    interval: int = 5,
    order: int = 1,
    warmup_steps: int = 3,
    basis: Basis | None = None,
    clock: Literal["step", "sigma"] = "step",
    **limits: Any,
) -> CacheMethod:
    """Skip all blocks but at every `interval`-th step, after the first `warmup_steps`.

    Args:
        interval: >= 1; larger is faster and less exact.
        order: 0 to 3, of the extrapolation; memory is order + 1 residuals.
        basis: Taylor, Newton (exact at uneven spacing) or Hermite (HiCache); Taylor if None.
        clock: what time is: the step, or sigma.
        **limits: of `CacheMethod`.

    Source: TaylorSeer, arXiv 2503.06923, at the level of the whole stack of blocks.
    """
    policy = Scheduled(partial(interval_steps, warmup=warmup_steps, interval=interval))
    return CacheMethod("TaylorSeer", Nothing(), policy, Extrapolation(order, basis or Taylor(), clock), **limits)
