"""A caching method is a composition of four parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .policies import Guarded, Policy
from .predictors import Predictor
from .probes import Probe
from .types import Run

CURE = "set a threshold above 0 to reuse all the same"


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

    Args:
        min_steps: runs whose whole schedule has fewer steps reuse nothing.
        few_step_model: the model is distilled to few steps; no run of it reuses anything.
    """

    name: str
    probe: Probe
    policy: Policy
    predictor: Predictor
    boundary: Boundary = Boundary()
    start_percent: float = 0.0
    end_percent: float = 1.0
    max_consecutive: int = 0
    min_steps: int = 0
    few_step_model: bool = False

    def refusal(self, run: Run) -> str | None:
        """Why nothing at all is reused in this run and what to do about it, or None."""
        if self.few_step_model:
            return f"this model is made for few steps, which differ too much to reuse: {CURE}"
        if run.whole_steps < self.min_steps:
            return f"{run.whole_steps} steps are few and differ too much to reuse: {CURE}"
        return None

    def new_policy(self) -> Policy:
        return Guarded(copy.deepcopy(self.policy), self.max_consecutive)

    def new_predictor(self) -> Predictor:
        return copy.deepcopy(self.predictor)


@dataclass(frozen=True)
class Plan:
    """A method and what the report shall show of how it was chosen."""

    method: CacheMethod
    settings: Mapping[str, Any]
    messages: tuple[str, ...] = ()
