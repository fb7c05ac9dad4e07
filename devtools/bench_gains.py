"""StepCache by the estimate of how much errors grow, beside the same by gains that were measured as Calibrate does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stepcache.cache_core.gains import measured_gains
from stepcache.cache_core.methods import reusing_once, stepcache
from stepcache.cache_core.recording import Recording
from stepcache.model_patches.install import apply_cache

from .bench_stepcache import Case, planned

NAMES = (
    "28 euler 128 px",
    "28 euler 256 px",
    "20 euler",
    "50 euler",
    "28 euler, CFG 1",
    "28 euler, shift 3",
    "28 euler, video",
    "28 euler, video, CFG 1",
)


def rows(quick: bool) -> Iterator[dict]:
    for name in NAMES[: 1 if quick else None]:
        case = Case(name, quick)
        recording = case.recorded(0)
        by_gains = {"estimated": recording, "measured": replace(recording, gains=gains_of(case, recording))}
        for label, learned in by_gains.items():
            for computed in case.counts:
                yield case.watched("StepCache", f"{label} gains", [stepcache(planned([learned], computed))])


def gains_of(case: Case, recording: Recording) -> tuple[float, ...]:
    exact = case.example(case.model, 0)

    def left(step: int) -> float:
        return float((case.example(apply_cache(case.model, reusing_once(step)), 0) - exact).square().mean().sqrt())

    return measured_gains(recording, left)
