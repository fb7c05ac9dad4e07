"""How far to step: SoftCache's rules, in ComfyUI's sigma of flow models (t = 1 - sigma of the paper).

The changes of a probe since the last computed evaluation sum up to A. While A stays below a threshold the evaluation is
reused, and what is left of the threshold, the headroom 1 - A / threshold, lets the step skip part of the schedule.

Source: SoftCache, as a survey of feature caching describes it; its code is not public. Ours: several branches count by
the largest of their changes, the tail that is even before the shift, and the stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy

from .types import Decision, Step

TOLERANCE = 1e-6
"""In sigma. 1 - 0.9 < 0.1 holds in binary, and a remainder this small is no step."""

Tail = Literal["t", "u"]
TAILS: tuple[Tail, ...] = ("t", "u")


@dataclass(frozen=True)
class StepRule:
    """When to reuse and how far to go then.

    Args:
        threshold: of the accumulated change; the larger, the faster. 0 reuses nothing.
        max_stride: the longest step with full headroom, in intervals of the schedule.
        early_guard: steps from t below this keep the schedule's length.
        change_guard: so do steps after a single change above this.
        tail: in what the rest of the schedule is spaced evenly after a long step: t, or the time u before the shift.

    Raises:
        ValueError: a value is out of its range; the message says what to use.
    """

    threshold: float
    max_stride: float = 8.0
    early_guard: float = 0.1
    change_guard: float = 0.18
    tail: Tail = "t"

    def __post_init__(self):
        for name, least in (("threshold", 0), ("max_stride", 1), ("early_guard", 0), ("change_guard", 0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise ValueError(f"{name} is {value:g}. Use a number from {least} up.")
        if self.tail not in TAILS:
            raise ValueError(f"tail is {self.tail!r}. Use one of {', '.join(TAILS)}.")


@dataclass(frozen=True)
class Landing:
    """A step that was taken."""

    sigma: float  # where it ended
    stride: float  # its length in native intervals, those of the schedule at its start; 1 is the native step
    headroom: float | None  # 1 - A / threshold, 0 to 1; None after a computed evaluation


class AdaptiveSchedule:
    """The nodes that a run has visited and those it is going to visit; they fall from the first sigma to the last.

    At each node: ask `decide` whether to reuse (again with each further branch), then tell `land` what was done.

    Args:
        sigmas: the native schedule, as `falling` gives it.
        stops: sigmas at which something changes; no long step passes one, it ends there.
        shift: s of sigma = s u / (1 + (s - 1) u), for the tail "u".

    >>> steps = AdaptiveSchedule(StepRule(threshold=0.1), (1.0, 0.8, 0.6, 0.4, 0.2, 0.0))
    >>> steps.land(reused=False).sigma, steps.decide(None, 0.05).reuse, round(steps.land(reused=True).sigma, 6)
    (0.8, True, 0.0)
    """

    def __init__(self, rule: StepRule, sigmas: Sequence[float], stops: Iterable[float] = (), shift: float = 1.0):
        self.rule, self.shift = rule, shift
        self.sigmas = list(sigmas)
        self.native_steps = max(len(self.sigmas) - 1, 0)
        self.stops = apart(stops)
        self.index = 0
        self.total = 0.0  # A, up to the node before
        self.change = 0.0  # the largest of this node's changes

    @property
    def sigma(self) -> float:
        """Of the node that the run is at."""
        return self.sigmas[self.index]

    @property
    def ended(self) -> bool:
        return self.index >= len(self.sigmas) - 1

    def decide(self, step: Step | None, change: float | None) -> Decision:
        """Whether to reuse at this node, judged by the largest change it was asked with; None and NaN compute."""
        self.change = math.inf if change is None or math.isnan(change) else max(self.change, change)
        total, threshold = self.total + self.change, self.rule.threshold
        if math.isinf(total):
            return Decision(False, "nothing to compare with")
        sign = "<" if total < threshold else ">="
        return Decision(total < threshold, f"accumulated change {total:.4f} {sign} {threshold:g}")

    def land(self, reused: bool) -> Landing:
        """Step on: by the native interval after a computed evaluation, by the headroom after a reused one."""
        here, native = self.sigma, self.sigmas[self.index + 1]
        change, self.change = self.change, 0.0
        self.total = self.total + change if reused else 0.0
        headroom = 1 - self.total / self.rule.threshold if reused else None
        target = native if headroom is None else self._target(here, native, headroom, change)
        if target < native - TOLERANCE:
            self._land_at(self._stopped(here, native, target))
        self.index += 1
        return Landing(self.sigma, (here - self.sigma) / (here - native), headroom)

    def _target(self, here: float, native: float, headroom: float, change: float) -> float:
        """Where the headroom would end a step."""
        if 1 - here < self.rule.early_guard - TOLERANCE or change > self.rule.change_guard:
            return native
        stride = 1 + (self.rule.max_stride - 1) * headroom
        return max(here - stride * (here - native), self.sigmas[-1])

    def _stopped(self, here: float, native: float, target: float) -> float:
        """The target, or a stop on the way; a stop that is next to here is passed natively, as any sampler would."""
        stop = next((stop for stop in self.stops if target < stop < here), target)
        return native if here - stop <= TOLERANCE else stop

    def _land_at(self, landing: float) -> None:
        """Make `landing` the next node, and space the old nodes beyond it anew."""
        ahead, landing = self.sigmas[self.index + 1 :], float(numpy.float32(landing))
        if abs(landing - ahead[0]) <= TOLERANCE:
            rest = [landing, *ahead[1:]]
        elif landing - ahead[-1] <= TOLERANCE:
            rest = ahead[-1:]
        else:
            beyond = sum(sigma < landing - TOLERANCE for sigma in ahead)
            rest = evenly(landing, ahead[-1], max(beyond - 1, 1), self.shift if self.rule.tail == "u" else 1.0)
        self.sigmas[self.index + 1 :] = rest


def apart(stops: Iterable[float]) -> list[float]:
    """The stops from high to low, of those that are next to each other the last: behind it all have been passed."""
    kept: list[float] = []
    for stop in sorted(stops, reverse=True):
        if kept and kept[-1] - stop <= TOLERANCE:
            kept.pop()
        kept.append(stop)
    return kept


def evenly(start: float, end: float, intervals: int, shift: float = 1.0) -> list[float]:
    """Sigmas from `start` to `end`, both included, evenly spaced in the time before a shift.

    They are numbers of float32, as samplers have them, and those that are the same in it are left out.

    >>> [round(1 - sigma, 4) for sigma in evenly(0.35, 0.0, 3)]
    [0.65, 0.7667, 0.8833, 1.0]
    """
    first, last = before_shift(start, shift), before_shift(end, shift)
    times = [first + (last - first) * i / intervals for i in range(1, intervals)]
    between = [float(numpy.float32(shifted(time, shift))) for time in times]
    return falling([start, *(sigma for sigma in between if start > sigma > end), end])


def shifted(time: float, shift: float) -> float:
    """Sigma of the time u before the shift, both 1 to 0."""
    return shift * time / (1 + (shift - 1) * time)


def before_shift(sigma: float, shift: float) -> float:
    """The inverse of `shifted`."""
    return sigma / (shift - (shift - 1) * sigma)


def falling(sigmas: Sequence[float]) -> list[float]:
    """A schedule without repetitions.

    Raises:
        ValueError: it rises somewhere.
    """
    nodes = list(sigmas[:1])
    for sigma in sigmas[1:]:
        if sigma > nodes[-1]:
            raise ValueError(
                f"the sigmas rise from {nodes[-1]:g} to {sigma:g}. SoftCache needs sigmas that fall: use a scheduler's as "
                "they are, or another sampler (euler) for these."
            )
        if sigma < nodes[-1]:
            nodes.append(sigma)
    return nodes
