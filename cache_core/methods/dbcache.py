"""DBCache: First Block Cache with any number of blocks that always run, at both ends."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..method import Boundary, CacheMethod
from ..planning import no_steps
from ..policies import ChangeFromAnchor, Scheduled, StepMask
from ..predictors import Hold, Predictor
from ..probes import HeadResidual, Nothing
from ..step_masks import masked_steps


def dbcache(
    threshold: float,
    head: int = 8,
    tail: int = 0,
    predictor: Predictor | None = None,
    mask: str | None = None,
    reuse_others: bool = False,
    max_accumulated: float = 0.0,
    **limits: Any,
) -> CacheMethod:
    """Run the first `head` blocks; skip the middle while what they added is within `threshold`; run the last `tail`.

    Args:
        threshold: > 0, relative L1 against the last computed evaluation; larger is faster and less exact. From 1 on, and
            without `speedup`, all that the limits allow is reused without looking.
        head, tail: blocks that always run (Fn and Bn); the tail repairs a reused result. head 1, tail 0 is First Block Cache.
        predictor: what to return for the middle; the last residual if None.
        mask: a policy of `step_masks`: its steps are computed in any case. Its first ones are the warm-up; another is not made.
        reuse_others: with a mask, reuse all other steps without looking (a static mask).
        max_accumulated: see `ChangeFromAnchor`.
        **limits: `warmup`, `warmup_interval`, `max_reused`, `max_consecutive`, `speedup` and others of `CacheMethod`.

    Source: cache-dit (vipshop/cache-dit).
    """
    looks = (threshold < 1 or limits.get("speedup", 0) > 0) and not (mask and reuse_others)
    if mask:
        limits = limits | {"warmup": 0}
    return CacheMethod(
        "DBCache",
        HeadResidual() if looks else Nothing(),
        ChangeFromAnchor(threshold, max_accumulated) if looks else Scheduled(no_steps),
        predictor or Hold(),
        Boundary(head, tail),
        mask=StepMask(partial(masked_steps, mask), reuse_others) if mask else None,
        **limits,
    )
