"""First Block Cache: run one block, reuse the others while that block's residual has changed little."""

from __future__ import annotations

from ..method import Boundary, CacheMethod
from ..policies import ChangeFromAnchor
from ..predictors import Hold
from ..probes import HeadResidual


def first_block_cache(threshold: float, **limits) -> CacheMethod:
    """Always run block 0; skip the rest while its residual is within `threshold` of the last computed one.

    Args:
        threshold: > 0, relative L1; larger is faster and less exact.
        **limits: `start_percent`, `end_percent`, `max_consecutive` of `CacheMethod`.

    Source: ParaAttention's first block cache (chengzeyi); also in diffusers and Comfy-WaveSpeed.
    """
    return CacheMethod(
        "First Block Cache", HeadResidual(), ChangeFromAnchor(threshold), Hold(), Boundary(head=1), **limits
    )
