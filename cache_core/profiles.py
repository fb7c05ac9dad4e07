"""Curves measured once for a model, and how they are fitted to another number of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

ALL = "all"
"""The one list of a profile that is the same for every branch."""


@dataclass(frozen=True)
class MagnitudeProfile:
    """How the magnitude of the residual changes from step to step, for a model and its branches.

    Args:
        ratios: by branch ("cond", "uncond", ...) or under "all", one ratio for each of `steps` steps. The first is 1.
        threshold, max_consecutive, retention: the settings published with it.
        whole: whether it covers the whole schedule, or the part of one expert.

    Raises:
        ValueError: a list is not one ratio a step, as one would be that interleaves two branches.

    Source: MagCache, arXiv 2506.09045.
    """

    name: str
    ratios: Mapping[str, tuple[float, ...]]
    steps: int
    threshold: float
    max_consecutive: int
    retention: float
    sampler: str
    source: str
    whole: bool = True

    def __post_init__(self):
        if not {ALL, "cond"} & set(self.ratios):
            raise ValueError(f'{self.name}: there are no ratios under "{ALL}" or "cond"')
        for name in ("threshold", "max_consecutive", "retention"):
            if not isinstance(getattr(self, name), (int, float)) or not math.isfinite(getattr(self, name)):
                raise ValueError(f"{self.name}: {name} is {getattr(self, name)!r}, not a number")
        for branch, values in self.ratios.items():
            if len(values) != self.steps:
                raise ValueError(f"{self.name}, {branch}: {len(values)} ratios for {self.steps} steps")
            if values[0] != 1 or not all(math.isfinite(value) and value > 0 for value in values):
                raise ValueError(f"{self.name}, {branch}: ratios must start with 1 and be above 0")

    def for_branch(self, order: int, steps: int) -> tuple[float, ...]:
        """The ratios of a branch for a run of `steps` steps.

        Args:
            order: the branch's index among ComfyUI's conditionings, 0 being the positive prompt and 1 the negative,
                whatever its place in the batch or the order of calls.
        """
        named = self.ratios.get(("cond", "uncond")[order] if order < 2 else "ref")
        return nearest(named or self.ratios.get(ALL) or self.ratios["cond"], steps)


def magnitude_profile(entry: Mapping[str, Any]) -> MagnitudeProfile:
    """An entry as in `model_patches/calibrations/magcache.json` as a profile, which checks it."""
    known: dict[str, Any] = {key: entry[key] for key in MagnitudeProfile.__dataclass_fields__ if key in entry}
    known["ratios"] = {branch: tuple(values) for branch, values in entry["ratios"].items()}
    return MagnitudeProfile(**known)


def nearest(values: Sequence[float], steps: int) -> tuple[float, ...]:
    """A curve of n values at another number of steps: each step takes the nearest entry, a single step the last one.

    A ratio is per step, so with fewer steps this counts less drift than the whole curve holds.

    >>> nearest((1.0, 1.2, 1.1, 0.9), 2)
    (1.0, 0.9)
    """
    if steps == 1:
        return (values[-1],)
    scale = (len(values) - 1) / (steps - 1)
    return tuple(values[round(step * scale)] for step in range(steps))


def drift_preserving(values: Sequence[float], steps: int) -> tuple[float, ...]:
    """A curve of n ratios at another number of steps such that their product stays the same.

    The logarithms are summed, the sum is read at the new places (linear in between), and differences are taken again.

    >>> [round(ratio, 2) for ratio in drift_preserving((1.0, 1.2, 1.1, 0.9), 2)]
    [1.0, 1.19]
    """
    sums = list(accumulate(math.log(value) for value in values))
    scale = (len(values) - 1) / max(steps - 1, 1)
    at = [_interpolated(sums, step * scale) for step in range(steps)]
    return tuple(math.exp(now - before) for before, now in zip([0.0, *at], at, strict=False))


def _interpolated(values: Sequence[float], place: float) -> float:
    low = min(int(place), len(values) - 1)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
