"""The words of the trade as small frozen types."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

Streams = tuple["Tensor | None", ...]
"""The token streams of a model, image (or video) first, then text: each (B, N, D), or None where a model ends one."""


@dataclass(frozen=True)
class Step:
    """Where an evaluation lies in the run's schedule.

    `position` is fractional: 3.0 is the fourth sigma of the schedule, 3.5 half way (in sigma) to the fifth.
    It comes from sigma, never from counting calls, so samplers with several evaluations a step need no special rule.
    """

    position: float  # 0 .. total
    total: int  # number of steps (intervals) in the schedule
    sigma: float
    next_sigma: float = 0.0  # the next sigma of the schedule

    @property
    def index(self) -> int:
        """The step that this evaluation belongs to, 0 .. total - 1."""
        return max(min(int(self.position), self.total - 1), 0)

    @property
    def is_last(self) -> bool:
        """Whether this may be the run's final evaluation.

        That is any in the last interval, and any between the two nodes before it: samplers that choose their own sigmas
        (dpm_fast, dpm_adaptive) end at the last node but one.
        """
        return self.position >= self.total - 1 or (self.position > self.total - 2 and self.position % 1 > 0)


@dataclass(frozen=True)
class Decision:
    """Compute or reuse, and why."""

    reuse: bool
    reason: str
    threshold: float | None = None  # that the score was held against, if it was


@dataclass(frozen=True)
class Run:
    """What is known about a sampling run before its first evaluation."""

    sigmas: tuple[float, ...]
    start_sigma: float  # reuse is allowed for end_sigma <= sigma <= start_sigma
    end_sigma: float
    fraction: float = 1.0  # part of the whole schedule that the sigmas cover, by `schedule.part_covered`
    before: float = 0.0  # part of the whole schedule that lies before the first sigma

    @property
    def steps(self) -> int:
        return max(len(self.sigmas) - 1, 0)

    @property
    def whole_steps(self) -> int:
        """Steps that the whole schedule would have: 5 of 20 steps are no few-step run."""
        return round(self.steps / self.fraction) if self.fraction > 0 else self.steps

    @property
    def first_whole_step(self) -> int:
        """Where in the whole schedule this run begins."""
        return round(self.before * self.whole_steps)
