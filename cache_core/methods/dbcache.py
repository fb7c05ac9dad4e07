"""DBCache: First Block Cache with any number of blocks that always run, at both ends."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..method import Boundary, CacheMethod
from ..policies import ChangeFromAnchor, StepMask
from ..predictors import Hold, Predictor
from ..probes import HeadResidual
from ..step_masks import masked_steps


def dbcache(
    threshold: float,
    head: int = 8,
    tail: int = 0,
    predictor: Predictor | None = None,
    mask: str | None = None,
    reuse_others: bool = False,
    **limits: Any,
) -> CacheMethod:
    """Run the first `head` blocks; skip the middle while what they added is within `threshold`; run the last `tail`.

    Args:
        threshold: > 0, relative L1 against the last computed evaluation; larger is faster and less exact.
        head, tail: blocks that always run (Fn and Bn); the tail repairs a reused result. head 1, tail 0 is First Block Cache.
        predictor: what to return for the middle; the last residual if None.
        mask: a policy of `step_masks`: its steps are computed in any case.
        reuse_others: with a mask, reuse all other steps without looking (a static mask).
        **limits: `warmup`, `max_reused`, `max_consecutive` and others of `CacheMethod`.

    Source: cache-dit (vipshop/cache-dit).
    """
    return CacheMethod(
        "DBCache",
        HeadResidual(),
        ChangeFromAnchor(threshold),
        predictor or Hold(),
        Boundary(head, tail),
        mask=StepMask(partial(masked_steps, mask), reuse_others) if mask else None,
        **limits,
    )
