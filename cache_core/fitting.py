"""Figures of published methods, fitted to measured runs. Entries have the form of those in `model_patches/calibrations`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .measuring import Changes
from .methods import magcache
from .planning import cheapest_path, linear_costs
from .policies import AccumulatedChange
from .profiles import MagnitudeProfile, magnitude_profile
from .types import Run

NAME, SOURCE = "calibrated", "the Calibrate node"

RECOMMENDED_SPEEDUP = 1.5
"""Thresholds that are recommended give this."""

DEGREE = 4
"""Of TeaCache's polynomial."""

FORCED = 3
"""DPCache computes the first so many steps."""

LONGEST, RETENTION = 4, 0.2
"""MagCache's settings beside its threshold."""

Entry = dict[str, Any]


def fitted_entries(runs: Sequence[Sequence[Changes]], sigmas: Sequence[float], sampler: str) -> dict[str, Entry]:
    """Entries by method, as far as the runs tell.

    Args:
        runs: each the changes of the positive prompt and, with guidance, of the negative one.
        sigmas: those of all runs.
        sampler: its name, for people.
    """
    steps = len(sigmas) - 1
    whole = [run for run in runs if run and all(len(changes.sketches) == steps for changes in run)]
    common = {"name": NAME, "source": SOURCE, "steps": steps, "sampler": sampler}
    if not whole or steps <= FORCED:
        return {}
    entries = {
        "magcache": common | magcache_entry(whole, sigmas, common),
        "dpcache": common | dpcache_entry(whole, sigmas),
    }
    signals = [run[0] for run in whole if len(run[0].signal) == steps - 1]
    return entries | ({"teacache": common | teacache_entry(signals)} if signals else {})


def checked(entries: Mapping[str, Any]) -> dict[str, Entry]:
    """Entries that came from a file, as plain values.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: one is not as `fitted_entries` makes them; says what is wrong.
    """
    known = {method: dict(entries[method]) for method in CHECKS if method in entries}
    for method, entry in known.items():
        if not (isinstance(entry["name"], str) and isinstance(entry["source"], str)):
            raise ValueError(f"the entry for {method} has no name or no source")
        CHECKS[method](entry)
    return known


def check_teacache(entry: Entry) -> None:
    values = [*entry["coefficients"], *entry["fitted_range"], entry["threshold"]]
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in values):
        raise ValueError("a figure for TeaCache is no number")
    if len(entry["fitted_range"]) != 2 or not 1 <= len(entry["coefficients"]) <= 10 or entry["threshold"] <= 0:
        raise ValueError("the figures for TeaCache are not a polynomial, a range and a threshold")


def check_dpcache(entry: Entry) -> None:
    steps = len(entry["sigmas"]) - 1
    for count, plan in entry["plans"].items():
        if len(plan) != int(count) or any(a >= b for a, b in pairwise([-1, *plan, steps])):
            raise ValueError(f"DPCache's plan of {count} steps is none")


CHECKS: Mapping[str, Callable[[Entry], object]] = {
    "teacache": check_teacache,
    "magcache": magnitude_profile,
    "dpcache": check_dpcache,
}


def teacache_entry(changes: Sequence[Changes]) -> Entry:
    """The polynomial from the change of the signal to that of the residual, least squares, and a threshold for it."""
    x, y = (np.concatenate([numbers(getattr(each, kind)) for each in changes]) for kind in ("signal", "residual"))
    coefficients = [float(value) for value in np.polyfit(x, y, min(DEGREE, len(x) - 1))]
    fitted = [float(x.min()), float(x.max())]
    policy = AccumulatedChange(0.0, coefficients, (fitted[0], fitted[1]))
    counted = [policy.counted(torch.tensor(numbers(each.signal))).tolist() for each in changes]

    def computed(threshold: float) -> float:
        return mean(1 + over_threshold(each, threshold) for each in counted)

    threshold = threshold_for(computed, (len(counted[0]) + 1) / RECOMMENDED_SPEEDUP)
    return {"coefficients": coefficients, "fitted_range": fitted, "threshold": threshold}


def over_threshold(counted: Sequence[float], threshold: float) -> int:
    """How often a sum reaches the threshold, which starts it anew."""
    total, times = 0.0, 0
    for value in counted:
        total += value
        if total >= threshold:
            total, times = 0.0, times + 1
    return times


def magcache_entry(runs: Sequence[Sequence[Changes]], sigmas: Sequence[float], common: Entry) -> Entry:
    """The mean curve of each branch, and a threshold for it."""
    branches = dict(zip(("cond", "uncond"), zip(*runs, strict=True), strict=False))
    ratios = {
        name: (1.0, *(float(value) for value in np.mean([numbers(changes.ratio) for changes in several], axis=0)))
        for name, several in branches.items()
    }
    steps, whole = len(sigmas) - 1, sigmas[-1] == 0
    profile = MagnitudeProfile(NAME, ratios, steps, 0.0, LONGEST, RETENTION, common["sampler"], SOURCE, whole)
    run = Run(tuple(sigmas), start_sigma=max(sigmas), end_sigma=0.0)

    def computed(threshold: float) -> float:
        return len(magcache(profile, threshold, LONGEST, RETENTION).foretold(run) or ())

    settings = {"max_consecutive": LONGEST, "retention": RETENTION, "whole": whole}
    return {"ratios": ratios, "threshold": threshold_for(computed, steps / RECOMMENDED_SPEEDUP), **settings}


def dpcache_entry(runs: Sequence[Sequence[Changes]], sigmas: Sequence[float]) -> Entry:
    """The cheapest steps for every number of them, by costs that are the mean of the runs and branches."""
    sketches = [torch.stack(changes.sketches).cpu().double().numpy() for run in runs for changes in run]  # (T, E) each
    costs = np.mean([linear_costs(np.vstack([each, each[-1:]]) / np.abs(each).mean()) for each in sketches], axis=0)
    counts = range(FORCED, len(sigmas) - 1)
    plans = {str(computed): list(cheapest_path(costs, computed, FORCED)[0]) for computed in counts}
    return {"sigmas": list(sigmas), "plans": plans}


def threshold_for(computed: Callable[[float], float], wanted: float) -> float:
    """The threshold at which the number of computed steps comes nearest to the wanted one; of several the smallest."""
    tried = np.geomspace(1e-3, 10, 400)
    return float(f"{min(tried, key=lambda threshold: abs(computed(threshold) - wanted)):.3g}")


def numbers(values: Sequence[Tensor]) -> np.ndarray:
    """0-d tensors, read from their device in one go."""
    return torch.stack(list(values)).cpu().double().numpy()


def gains_at(injected: Sequence[tuple[int, float]], steps: int) -> tuple[float, ...]:
    """A gain for each step from those measured at some: linear in the logarithm between them, the nearest outside.

    Args:
        injected: (step, gain), in order.
    """
    at, gains = zip(*injected, strict=True)
    return tuple(float(value) for value in np.exp(np.interp(np.arange(steps), at, np.log(gains))))
