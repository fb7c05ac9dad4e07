"""Plans made better by what they leave behind in real pictures: the best of several, with its forecasts fitted anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from statistics import mean

import numpy as np

from .forecasting import MOST_SLOPE, Forecaster, ForecastPlan, Segment
from .recording import Recording

NUDGE = 0.1
"""By how much a factor is changed to see what that does to a picture: far above rounding, and little beside a slope of 1."""

RIDGE = 0.1
"""Relative weight that holds changes of factors back, as a few pictures tell only so much of others."""

DIGITS = 4
"""Of a fitted factor, behind the point."""

NOTHING = 1e-30
"""Square of what is left behind where a plan changes nothing at all."""

Left = Callable[[ForecastPlan], Sequence[np.ndarray]]
"""(plan) -> by picture, the final latent with it less the exact one, or a sketch of that: (E)."""


def candidates(
    recordings: Sequence[Recording], computed: int, most: int, before_each: Callable[[], None] = lambda: None
) -> Iterator[ForecastPlan]:
    """Different plans for the mean of some recordings, of all but one, of each pair, and for each; all forecast by the mean.

    Plans that cost as much by a recording differ by some dB in pictures, so it pays to try them.

    Args:
        recordings: of one schedule.
        most: at most so many plans.
        before_each: called before a plan is made, also one that turns out to be known: a plan of 200 steps takes up to 10
            seconds, and for 16 recordings 153 are made. What it raises ends all.
    """
    everything, known = Forecaster(reduce(Recording.merged, recordings)), set()
    sizes = dict.fromkeys(size for size in (len(recordings), len(recordings) - 1, 2, 1) if 1 <= size <= len(recordings))
    for chosen in (each for size in sizes for each in combinations(recordings, size)):
        if len(known) == most:
            return
        before_each()
        steps = Forecaster(reduce(Recording.merged, chosen)).plan(computed)
        if steps not in known:
            known.add(steps)
            yield ForecastPlan(everything, steps)


def better_plans(plans: Iterable[ForecastPlan], left: Left) -> Iterator[ForecastPlan]:
    """Each plan that scores better than those before it, at the end the best with its forecasts fitted to the pictures.

    Args:
        left: asked once for each plan, and up to twice for each step that the best of them computes.
    """
    best, behind, least = None, (), math.inf
    for plan in plans:
        found = left(plan)
        scored = score(plan, found)
        if scored < least:
            best, behind, least = plan, found, scored
            yield plan
    fitted = fitted_to(best, behind, left) if best else None
    if fitted and score(fitted, left(fitted)) < least:
        yield fitted


def score(plan: ForecastPlan, left: Sequence[np.ndarray]) -> float:
    """What a plan leaves behind: in the pictures, their mean in logarithms, and half as much as estimated for others."""
    tried = mean(math.log(max(float(np.square(each).mean()), NOTHING)) for each in left)
    return tried + 0.5 * math.log(max(plan.forecaster.cost(plan.steps) ** 2, NOTHING))


def fitted_to(plan: ForecastPlan, behind: Sequence[np.ndarray], left: Left) -> ForecastPlan | None:
    """A plan whose forecasts leave least behind, which is taken as linear in their factors; None if there is none to fit."""
    segments, free = plan.segments, free_factors(plan.segments)
    if not free:
        return None
    nudges = np.array([-NUDGE if getattr(segments[n], name) > MOST_SLOPE - NUDGE else NUDGE for n, name in free])
    nudged = [left(replace(plan, tuned=changed(segments, {at: by}))) for at, by in zip(free, nudges, strict=True)]
    responses = [(np.stack(each) - before) / nudges[:, None] for before, *each in zip(behind, *nudged, strict=True)]
    changes = dict(zip(free, best_changes(responses, behind), strict=True))
    return replace(plan, tuned=changed(segments, changes))


Factor = tuple[int, str]
"""Number of the segment, and which of its factors."""


def free_factors(segments: Sequence[Segment]) -> list[Factor]:
    """Those that change a forecast: a slope needs two computed steps, a bend three."""
    forecast = [n for n, segment in enumerate(segments) if segment.end - segment.start > 1]
    return [(n, name) for n in forecast for least, name in ((1, "slope"), (2, "bend")) if n >= least]


def changed(segments: Sequence[Segment], changes: dict[Factor, float]) -> tuple[Segment, ...]:
    """The segments with some factors changed, held within `MOST_SLOPE`."""
    result = list(segments)
    for (n, name), by in changes.items():
        value = float(getattr(result[n], name) + by)
        result[n] = replace(result[n], **{name: round(min(max(value, -MOST_SLOPE), MOST_SLOPE), DIGITS)})
    return tuple(result)


def best_changes(responses: Sequence[np.ndarray], behind: Sequence[np.ndarray]) -> np.ndarray:
    """(F), the changes that leave least behind, which is weighed so that all pictures count alike.

    Args:
        responses: by picture (F, E), how what is left changes with each factor.
        behind: by picture (E), what is left without changes.
    """
    scales = [max(float(each @ each), NOTHING) for each in behind]
    squares = np.stack([r @ r.T / scale for r, scale in zip(responses, scales, strict=True)])  # (B, F, F)
    towards = np.stack([r @ b / scale for r, b, scale in zip(responses, behind, scales, strict=True)])  # (B, F)
    matrix = squares.sum(axis=0)
    return -np.linalg.solve(matrix + np.diag(RIDGE * np.diag(matrix) + NOTHING), towards.sum(axis=0))
