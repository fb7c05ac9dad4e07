"""Limits that hold whatever a policy proposes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from torch import Tensor

from ..types import Decision, Run, Step, Streams
from .policy import Policy, StepPlan, TensorMap

MOST_EVALUATIONS = 20
"""For each step of the schedule: a sampler that chooses its own steps may never be satisfied with what is reused."""


@dataclass(frozen=True)
class StepMask:
    """Steps that are computed whatever a policy proposes; `reuse_others` reuses all others without asking it."""

    plan: StepPlan
    reuse_others: bool = False


@dataclass
class Guarded:
    """Another policy inside limits that hold whatever it proposes.

    Args:
        inner: the policy that decides where the limits allow reuse.
        max_consecutive: at most this many reused evaluations in a row; 0 means no limit.
        warmup: this many evaluations of the branch are computed first.
        warmup_interval: during the warm-up only every so many evaluations have to be computed.
        max_reused: at most this many reused evaluations in the run; 0 means no limit.
        mask: steps that are computed in any case.
        last_step: whether the last step is computed in any case.
    """

    inner: Policy
    max_consecutive: int = 0
    warmup: int = 0
    max_reused: int = 0
    mask: StepMask | None = None
    last_step: bool = True
    warmup_interval: int = 1
    run: Run | None = field(default=None, repr=False)
    masked: frozenset[int] = frozenset()
    in_a_row: int = 0
    seen: int = 0
    total_reused: int = 0

    def begin(self, run: Run, order: int) -> None:
        self.run = run
        self.masked = self.mask.plan(run) if self.mask else frozenset()
        self.inner.begin(run, order)

    def observe(self, signal: Tensor | None) -> Tensor | None:
        return self.inner.observe(signal)

    def decide(self, step: Step, score: float | None) -> Decision:
        limit = self.limit(step)
        if limit:
            return Decision(False, limit)
        if self.mask and self.mask.reuse_others:
            return Decision(True, "by the step mask")
        return self.inner.decide(step, score)

    def limit(self, step: Step) -> str | None:
        """Why this evaluation is computed, whatever the inner policy says."""
        if self.last_step and step.is_last:
            return "last step"
        if self.run and not self.run.end_sigma <= step.sigma <= self.run.start_sigma:
            return "outside the start/end window"
        if self.seen < self.warmup and self.seen % self.warmup_interval == 0:
            return "warm-up"
        if self.run and self.seen > MOST_EVALUATIONS * max(self.run.steps, 1):
            return "the sampler makes no progress"
        if step.index in self.masked:
            return "by the step mask"
        if self.max_reused and self.total_reused >= self.max_reused:
            return f"{self.total_reused} reused in all"
        if self.max_consecutive and self.in_a_row >= self.max_consecutive:
            return f"{self.in_a_row} reused in a row"
        return None

    def forced(self, steps: Iterable[Step], reuse: bool) -> list[bool]:
        """Which of the coming evaluations the limits compute, once this one is computed.

        Args:
            reuse: whether all others are reused, or computed too.
        """
        ahead, flags = replace(self), []
        ahead._count(reused=False)
        for step in steps:
            flags.append(ahead.limit(step) is not None)
            ahead._count(reuse and not flags[-1])
        return flags

    def _count(self, reused: bool) -> None:
        self.in_a_row = self.in_a_row + 1 if reused else 0
        self.seen += 1
        self.total_reused += reused

    def computed(self, step: Step, value: Streams) -> None:
        self._count(reused=False)
        self.inner.computed(step, value)

    def reused(self, step: Step) -> None:
        self._count(reused=True)
        self.inner.reused(step)

    def map_tensors(self, move: TensorMap) -> None:
        self.inner.map_tensors(move)
