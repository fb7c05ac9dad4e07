"""A caching method is a composition of four parts."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from .policies import Guarded, Policy
from .predictors import Predictor
from .probes import Probe


@dataclass(frozen=True)
class Boundary:
    """What a reused evaluation skips: every block but the first `head` and the last `tail` (DBCache's Fn and Bn)."""

    head: int = 0
    tail: int = 0


@dataclass(frozen=True)
class CacheMethod:
    """Probe (where to look), policy (when to reuse), predictor (what to return instead), boundary (what is skipped).

    Policy and predictor are prototypes: every branch of a run gets copies of its own. `start_percent` and `end_percent`
    are ComfyUI's absolute sampling percents; they become sigmas when a run begins.
    """

    name: str
    probe: Probe
    policy: Policy
    predictor: Predictor
    boundary: Boundary = Boundary()
    start_percent: float = 0.0
    end_percent: float = 1.0
    max_consecutive: int = 0

    def new_policy(self) -> Policy:
        return Guarded(copy.deepcopy(self.policy), self.max_consecutive)

    def new_predictor(self) -> Predictor:
        return copy.deepcopy(self.predictor)
