"""What Calibrate does beyond recording: gains that are measured instead of estimated, and plans that are tuned by trying."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stepcache.cache_core.forecasting import ForecastPlan
from stepcache.cache_core.gains import measured_gains
from stepcache.cache_core.methods import reusing_once, stepcache
from stepcache.cache_core.recording import Recording, Sketch
from stepcache.cache_core.tuning import better_plans, candidates
from stepcache.model_patches.install import apply_cache
from stepcache.nodes.sampling import difference, squared_error

from .bench_stepcache import Case, planned

GAINS = (
    "28 euler 128 px",
    "28 euler 256 px",
    "20 euler",
    "50 euler",
    "28 euler, CFG 1",
    "28 euler, shift 3",
    "28 euler, video",
    "28 euler, video, CFG 1",
)
TUNED = ("28 euler 128 px", "28 dpmpp_2m", "28 euler, video")
TRIALS = 24


def rows(quick: bool) -> Iterator[dict]:
    for name in GAINS[: 1 if quick else None]:
        case = Case(name, quick)
        recording = case.recorded(0)
        by_gains = {"estimated": recording, "measured": replace(recording, gains=gains_of(case, recording))}
        for label, learned in by_gains.items():
            for computed in case.counts:
                yield case.watched("StepCache", f"{label} gains", [stepcache(planned([learned], computed))])
    for name in TUNED[: 1 if quick else None]:
        case = Case(name, quick)
        recordings = [case.recorded(n) for n in range(len(case.examples))]
        for computed in case.counts[: 1 if quick else None]:
            yield case.watched("StepCache", "tuned", [stepcache(tuned(case, recordings, computed))])


def gains_of(case: Case, recording: Recording) -> tuple[float, ...]:
    exact = case.example(case.model, 0)

    def left(step: int) -> float:
        return math.sqrt(squared_error(case.example(apply_cache(case.model, reusing_once(step)), 0), exact))

    return measured_gains(recording, left)


def tuned(case: Case, recordings: list[Recording], computed: int) -> ForecastPlan:
    """What Calibrate makes of pictures."""
    exact = [case.example(case.model, n) for n in range(len(recordings))]
    sketch = Sketch()

    def left(plan: ForecastPlan) -> list[np.ndarray]:
        cached = apply_cache(case.model, stepcache(plan))
        return [sketch(difference(case.example(cached, n), latent)).double().numpy() for n, latent in enumerate(exact)]

    *_, best = better_plans(candidates(recordings, computed, TRIALS), left)
    return best
