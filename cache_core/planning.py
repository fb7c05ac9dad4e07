"""Schedules found before sampling: which steps to compute.

Pure functions on numbers; what they plan for comes from recordings, tables, or a rule that holds across models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from .types import Run


def no_steps(run: Run) -> frozenset[int]:
    """None: what has to be computed is left to the limits."""
    return frozenset()


def all_steps_but(run: Run, left_out: int) -> frozenset[int]:
    return frozenset(range(run.steps)) - {left_out}


def interval_steps(run: Run, warmup: int, interval: int) -> frozenset[int]:
    """TaylorSeer's plan: the first `warmup` steps, then every `interval`-th. Source: arXiv 2503.06923.

    >>> sorted(interval_steps(Run(tuple(range(20, -1, -1)), 20, 0), 3, 5))
    [0, 1, 2, 7, 12, 17]
    """
    start = max(warmup, 1) - 1
    return frozenset(s for s in range(run.steps) if s <= start or (s - start) % max(interval, 1) == 0)


def window_steps(run: Run, warmup: int, window: float, growth: float) -> frozenset[int]:
    """Spectrum's plan: the first `warmup` steps, then one in a window that grows by `growth` each time.

    >>> sorted(window_steps(Run(tuple(range(20, -1, -1)), 20, 0), 3, 2.0, 0.75))
    [0, 1, 2, 4, 6, 9, 13, 18]
    """
    steps, step = set(range(min(max(warmup, 1), run.steps))), max(warmup, 1) - 1
    while (step := step + max(int(window), 1)) < run.steps:
        steps.add(step)
        window += growth
    return frozenset(steps)


def linear_costs(features: np.ndarray) -> np.ndarray:
    """DPCache's cost tensor for linear prediction.

    Args:
        features: (T + 1, E): what is to be predicted at each step, and at T what stands for the value after the last.

    Returns:
        (T + 1, T + 1, T + 1): for i < j < k the sum over q = j + 1 .. k of the mean absolute error at q of the line
        through i and j; infinite elsewhere.

    Source: DPCache, arXiv 2602.22654.
    """
    count = len(features)
    costs = np.full((count, count, count), np.inf)
    for j in range(1, count - 1):
        ahead = np.arange(1, count - j)[:, None]
        for i in range(j):
            slope = (features[j] - features[i]) / (j - i)
            errors = np.abs(features[j + 1 :] - (features[j] + ahead * slope)).mean(axis=1)
            costs[i, j, j + 1 :] = np.cumsum(errors)
    return costs


def cheapest_path(costs: np.ndarray, computed: int, forced: int = 2) -> tuple[tuple[int, ...], float]:
    """The cheapest choice of `computed` steps for path-dependent costs, by exact dynamic programming over pairs.

    Args:
        costs: (T + 1, T + 1, T + 1) as `linear_costs` gives them; T stands for the end of the run.
        computed: how many of the T steps to compute, at least `forced` and at most T.
        forced: the first so many steps are computed, at least 2.

    Returns:
        The steps in order, and the cost.

    Raises:
        ValueError: there is no such path.

    Source: the exact form of DPCache's recursion (arXiv 2602.22654), which keeps only the cheapest predecessor of a step.
    """
    end = len(costs) - 1
    if not 2 <= forced <= computed <= end:
        raise ValueError(f"cannot compute {computed} of {end} steps with the first {forced} forced")
    best = np.full((end + 1, end + 1), np.inf)  # by the last two computed steps
    best[forced - 2, forced - 1] = 0.0
    before: list[np.ndarray] = []
    for _ in range(computed - forced):
        through = best[:, :, None] + costs  # (i, j, k)
        through[:, :, end] = np.inf  # the end is no step
        before.append(through.argmin(axis=0))
        best = through.min(axis=0)
    total = best + costs[:, :, end]
    i, j = np.unravel_index(total.argmin(), total.shape)
    cost = float(total[i, j])
    if computed == end:  # nothing is left to predict
        i, j, cost = end - 2, end - 1, float(best[end - 2, end - 1])
    if not math.isfinite(cost):
        raise ValueError(f"no path computes {computed} of {end} steps at a finite cost")
    steps = [int(j), int(i)]
    for pointers in reversed(before):
        steps.append(int(pointers[steps[-1], steps[-2]]))
    return (*range(forced - 2), *reversed(steps)), cost


def error_weights(sigmas: Sequence[float]) -> list[float]:
    """How much an error in each step counts in a model of which nothing is known.

    An error at sigma grows by about 1 / (1.05 - sigma) until the end (measured on the small model of this project). That
    times the length of the step, sigma being scaled to the run's largest.
    """
    top = max(sigmas, default=0.0) or 1.0
    return [(high - low) / (1.05 * top - high) for high, low in pairwise(sigmas)]


def general_steps(run: Run, computed: int, forced: int = 2) -> frozenset[int]:
    """A plan for a model of which nothing is known: dense where an error would be amplified most.

    The steps share out the sum of `error_weights` evenly.

    Args:
        computed: how many steps to compute, the last among them.
        forced: the first so many are computed.
    """
    last = run.steps - 1
    if computed > last:
        return frozenset(range(run.steps))
    start = min(forced, computed - 1)
    weights = error_weights(run.sigmas)[start:last]
    passed = list(accumulate(weights, initial=0.0))
    wanted = computed - 1 - start
    chosen: list[int] = []
    for i in range(1, wanted + 1):
        due = passed[-1] * i / (wanted + 1)
        nearest = min(range(len(weights)), key=lambda step: abs(passed[step] - due))
        earliest, latest = (chosen[-1] + 1 if chosen else 0), len(weights) - (wanted - i) - 1
        chosen.append(max(earliest, min(nearest, latest)))
    return frozenset([*range(start), *(start + step for step in chosen), last])


def share_steps(run: Run, share: float, forced: int = 2) -> frozenset[int]:
    """`general_steps` for a share of the run's steps, 0 to 1."""
    return general_steps(run, max(round(share * run.steps), min(forced, run.steps)), forced)
