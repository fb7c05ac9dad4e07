"""Figures of published methods, fitted to measured runs. Entries have the form of those in `model_patches/calibrations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from .reading import named, number, numbers, steps_in_order, truth, whole, words
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
    complete = [run for run in runs if run and all(len(changes.sketches) == steps for changes in run)]
    common = {"name": NAME, "source": SOURCE, "steps": steps, "sampler": sampler}
    if not complete or steps <= FORCED:
        return {}
    entries = {
        "magcache": common | magcache_entry(complete, sigmas, common),
        "dpcache": common | dpcache_entry(complete, sigmas),
    }
    signals = [run[0] for run in complete if len(run[0].signal) == steps - 1]
    return entries | ({"teacache": common | teacache_entry(signals)} if signals else {})


def checked(entries: Mapping[str, Any]) -> dict[str, Entry]:
    """Entries that came from a file, of each what is known.

    Raises:
        ValueError: one is not as `fitted_entries` makes them; says what is wrong.
    """
    entries, found = named(entries), {}
    for method in (method for method in CHECKED if method in entries):
        entry = named(entries[method])
        common = {name: words(entry[name]) for name in ("name", "source", "sampler")}
        found[method] = common | {"steps": whole(entry["steps"], least=1)} | CHECKED[method](entry)
    return found


def checked_teacache(entry: Entry) -> Entry:
    coefficients, fitted = numbers(entry["coefficients"]), numbers(entry["fitted_range"])
    if len(fitted) != 2 or not 1 <= len(coefficients) <= 10:
        raise ValueError("the figures for TeaCache are not a polynomial and a range")
    return {"coefficients": coefficients, "fitted_range": fitted, "threshold": number(entry["threshold"], least=0)}


def checked_magcache(entry: Entry) -> Entry:
    known = {
        "ratios": {branch: numbers(values) for branch, values in named(entry["ratios"]).items()},
        "threshold": number(entry["threshold"], least=0),
        "max_consecutive": whole(entry["max_consecutive"]),
        "retention": number(entry["retention"], least=0),
        "whole": truth(entry["whole"]),
    }
    magnitude_profile(entry | known)
    return known


def checked_dpcache(entry: Entry) -> Entry:
    sigmas, plans = numbers(entry["sigmas"], least=0), named(entry["plans"])
    checked = {count: steps_in_order(plan, len(sigmas) - 1) for count, plan in plans.items()}
    if any(str(len(plan)) != count for count, plan in checked.items()):
        raise ValueError("a plan for DPCache has another number of steps than it says")
    return {"sigmas": sigmas, "plans": checked}


CHECKED: Mapping[str, Callable[[Entry], Entry]] = {
    "teacache": checked_teacache,
    "magcache": checked_magcache,
    "dpcache": checked_dpcache,
}


def teacache_entry(changes: Sequence[Changes]) -> Entry:
    """The polynomial from the change of the signal to that of the residual, least squares, and a threshold for it."""
    x, y = (np.concatenate([fetched(getattr(each, kind)) for each in changes]) for kind in ("signal", "residual"))
    coefficients = [float(value) for value in np.polyfit(x, y, min(DEGREE, len(x) - 1))]
    fitted = [float(x.min()), float(x.max())]
    policy = AccumulatedChange(0.0, coefficients, (fitted[0], fitted[1]))
    counted = [policy.counted(torch.tensor(fetched(each.signal))).tolist() for each in changes]

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
        name: (1.0, *(float(value) for value in np.mean([fetched(changes.ratio) for changes in several], axis=0)))
        for name, several in branches.items()
    }
    steps, to_the_end = len(sigmas) - 1, sigmas[-1] == 0
    profile = MagnitudeProfile(NAME, ratios, steps, 0.0, LONGEST, RETENTION, common["sampler"], SOURCE, to_the_end)
    run = Run(tuple(sigmas), start_sigma=max(sigmas), end_sigma=0.0)

    def computed(threshold: float) -> float:
        return len(magcache(profile, threshold, LONGEST, RETENTION).foretold(run) or ())

    settings = {"max_consecutive": LONGEST, "retention": RETENTION, "whole": to_the_end}
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


def fetched(values: Sequence[Tensor]) -> np.ndarray:
    """0-d tensors, read from their device in one go."""
    return torch.stack(list(values)).cpu().double().numpy()
