"""SeaCache: TeaCache's accumulated change of a signal that is filtered to what can be known at its noise level."""

from __future__ import annotations

from typing import Any

from ..method import CacheMethod
from ..policies import AccumulatedChange
from ..predictors import Hold
from ..probes import SpectralInput


def seacache(threshold: float, beta: float | None = None, **limits: Any) -> CacheMethod:
    """Skip all blocks while the accumulated change of the filtered modulated input stays below `threshold`.

    Args:
        threshold: > 0; larger is faster and less exact.
        beta: > 0, how fast natural spectra fall with frequency; None takes 2 for pictures and 3 for videos.
        **limits: of `CacheMethod`.

    Source: SeaCache, arXiv 2602.18993. The signal is filtered at every evaluation, also at forced ones.
    """
    return CacheMethod("SeaCache", SpectralInput(beta), AccumulatedChange(threshold), Hold(), **limits)
