"""EasyCache: reuse what the whole model added to its input, while the output is predicted to change little."""

from __future__ import annotations

from typing import Any

from ..method import Boundary, CacheMethod, Level
from ..policies import PredictedChange
from ..predictors import Hold
from ..probes import ModelInput


def easycache(threshold: float, **limits: Any) -> CacheMethod:
    """Skip the whole model while the summed predicted relative change of its output stays below `threshold`.

    Args:
        threshold: > 0; larger is faster and less exact.
        **limits: of `CacheMethod`.

    Source: EasyCache, arXiv 2507.02860 (H-EmbodVis/EasyCache), in its incremental form.
    """
    boundary = Boundary(level=Level.MODEL_OUTPUT)
    return CacheMethod("EasyCache", ModelInput(), PredictedChange(threshold), Hold(), boundary, **limits)
