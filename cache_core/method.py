"""A caching method is a composition of four parts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from .policies import Budgeted, Guarded, Policy, StepMask, Watching
from .predictors import Predictor
from .probes import Nothing, Probe
from .recording import Recorder
from .report import Evaluation, RunReport
from .types import Run, Step

CURE = "give the node a value of your own instead of the recommended one to reuse all the same"


class Level(Enum):
    """Where results are stored and reused."""

    BLOCKS = "blocks"
    MODEL_OUTPUT = "model output"  # for each branch
    GUIDED_PREDICTION = "guided prediction"  # after guidance has joined the branches


@dataclass(frozen=True)
class Boundary:
    """What a reused evaluation skips.

    Args:
        head, tail: at the level of blocks, how many of the first and last always run (DBCache's Fn and Bn).
        level: blocks, or the whole model.
        difference: whether exit - entry is stored and added to the entry of the reused evaluation, or exit alone.
            At the other levels entry is the latent as the model takes it, and exit (x - denoised) / sigma.
    """

    head: int = 0
    tail: int = 0
    level: Level = Level.BLOCKS
    difference: bool = True


@dataclass(frozen=True)
class CacheMethod:
    """Probe (where to look), policy (when to reuse), predictor (what to return instead), boundary (what is skipped).

    Policy and predictor are prototypes: every branch of a run gets copies of its own. `start_percent` and `end_percent`
    are ComfyUI's absolute sampling percents; they become sigmas when a run begins.

    Args:
        max_consecutive, warmup, warmup_interval, max_reused, mask, last_step: see `Guarded`.
        shared: whether one decision serves all branches of an evaluation, or each model call makes its own.
        min_steps: runs whose whole schedule has fewer steps reuse nothing.
        few_step_model: the model is distilled to few steps; no run of it reuses anything.
        idle: another reason why nothing at all is reused, and what to do about it.
        speedup: >= 1: this part of all evaluations is computed, by `Budgeted`; 0 leaves the policy its threshold.
    """

    name: str
    probe: Probe
    policy: Policy
    predictor: Predictor
    boundary: Boundary = Boundary()
    start_percent: float = 0.0
    end_percent: float = 1.0
    max_consecutive: int = 0
    warmup: int = 0
    max_reused: int = 0
    mask: StepMask | None = None
    last_step: bool = True
    shared: bool = True
    min_steps: int = 0
    few_step_model: bool = False
    idle: str | None = None
    warmup_interval: int = 1
    speedup: float = 0.0

    def refusal(self, run: Run) -> str | None:
        """Why nothing at all is reused in this run and what to do about it, or None."""
        if self.idle:
            return self.idle
        if self.few_step_model:
            return f"this model is made for few steps, which differ too much to reuse: {CURE}"
        if run.whole_steps < self.min_steps:
            return f"{run.whole_steps} steps are few and differ too much to reuse: {CURE}"
        return None

    def foretold(self, run: Run) -> tuple[int, ...] | None:
        """The steps that will be computed, where that is known before sampling."""
        if not isinstance(self.probe, Nothing):
            return None
        policy, computed = self.new_policy(), []
        policy.begin(run, 0)
        for index, (sigma, following) in enumerate(zip(run.sigmas, run.sigmas[1:], strict=False)):
            step = Step(index, run.steps, sigma, following)
            if computed and policy.decide(step, None).reuse:
                policy.reused(step)
            else:
                policy.computed(step, ())
                computed.append(index)
        return tuple(computed)

    def new_policy(self, trace: Sequence[Evaluation] = ()) -> Policy:
        """A policy for one branch; `trace` are the run's evaluations, growing as it goes on, the present one the last."""
        inner = copy.deepcopy(self.policy)
        limits = Guarded(
            inner,
            self.max_consecutive,
            self.warmup,
            self.max_reused,
            self.mask,
            self.last_step,
            self.warmup_interval,
        )
        return Budgeted(cast(Watching, inner), limits, self.speedup, trace) if self.speedup else limits

    def new_predictor(self) -> Predictor:
        return copy.deepcopy(self.predictor)


@dataclass(frozen=True)
class Plan:
    """A method and what the report shall show of how it was chosen.

    Args:
        recorder: sees the guided output of every computed evaluation of the run.
        completed: called with the report when the run has come to its end; what it raises is logged and reported.
    """

    method: CacheMethod
    settings: Mapping[str, Any]
    messages: tuple[str, ...] = ()
    recorder: Recorder | None = None
    completed: Callable[[RunReport], None] | None = None
