"""TeaCache: reuse while the timestep-modulated input has changed little."""

from __future__ import annotations

from collections.abc import Sequence

from ..method import Boundary, CacheMethod
from ..policies import AccumulatedChange
from ..predictors import Hold
from ..probes import ModulatedInput, TimeEmbedding


def teacache(
    threshold: float,
    coefficients: Sequence[float] | None = None,
    fitted_range: tuple[float, float] | None = None,
    time_embedding: bool = False,
    **limits,
) -> CacheMethod:
    """Skip all blocks while the accumulated, rescaled change of the modulated input stays below `threshold`.

    Args:
        threshold: > 0; larger is faster and less exact.
        coefficients: polynomial from input change to output change, highest power first; None counts the input change.
        fitted_range: the input changes that the polynomial was fitted on; changes outside are clipped to it.
        time_embedding: whether the polynomial is one of the change of the time embedding (Wan 2.1's are).
        **limits: `start_percent`, `end_percent`, `max_consecutive` of `CacheMethod`.

    Source: Timestep Embedding Tells: It's Time to Cache for Video Diffusion Model, arXiv 2411.19108.
    """
    probe = TimeEmbedding() if time_embedding else ModulatedInput()
    policy = AccumulatedChange(threshold, coefficients or (1.0, 0.0), fitted_range or (0.0, float("inf")))
    return CacheMethod("TeaCache", probe, policy, Hold(), Boundary(), **limits)
