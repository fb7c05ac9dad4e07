"""Put a cache on a tiny model, at the settings that the tests speak of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import median
from typing import Any

from comfy.model_patcher import ModelPatcher

from stepcache.cache_core.forecasting import Forecaster, ForecastPlan
from stepcache.cache_core.method import Boundary, CacheMethod, Plan
from stepcache.cache_core.methods import (
    computing_all,
    dbcache,
    dpcache,
    easycache,
    first_block_cache,
    magcache,
    meancache,
    seacache,
    spectrum,
    stepcache,
    taylorseer,
    teacache,
)
from stepcache.cache_core.policies import ChangeFromAnchor, StepPlan
from stepcache.cache_core.predictors import Extrapolation, Hold, Taylor
from stepcache.cache_core.probes import HeadResidual, ModulatedInput, Probe
from stepcache.cache_core.profiles import MagnitudeProfile
from stepcache.cache_core.recording import falls
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.types import Run
from stepcache.model_patches.calibration import general_recording
from stepcache.model_patches.install import apply_cache
from stepcache.model_patches.variants import Facts

from .sampling import run
from .tiny_models import TinyModel, shared

PERMISSIVE = 1e9  # reuses whenever the rules allow it
UNCHANGED = 1e-6  # reuses only where the input is the same
IMPOSSIBLE = 1e-12  # only an unchanged input would be reused
LOOKING = 0.99  # from 1 on DBCache reuses without looking
NEVER = 10**6  # steps; longer than any run

CURVE = MagnitudeProfile("a tenth less each step", {"all": (1.0, *[0.9] * 9)}, 10, 0.15, NEVER, 0.0, "", "")


def planned(threshold: float) -> StepPlan:
    """All steps up to UNCHANGED, the first alone from PERMISSIVE on, else the first three and then every other."""

    def plan(run: Run) -> frozenset[int]:
        steps = range(run.steps)
        if threshold <= UNCHANGED:
            return frozenset(steps)
        return frozenset(steps[:1] if threshold >= PERMISSIVE else {*steps[:3], *steps[4::2]})

    return plan


def taylorseer_at(threshold: float, order: int, **limits: Any) -> CacheMethod:
    interval = 1 if threshold <= UNCHANGED else NEVER if threshold >= PERMISSIVE else 2
    warmup = 3 if interval == 2 else 1
    return taylorseer(interval, order, warmup, **limits)


def spectrum_at(threshold: float, **limits: Any) -> CacheMethod:
    window = 1 if threshold <= UNCHANGED else NEVER if threshold >= PERMISSIVE else 2
    warmup = 3 if window == 2 else 1
    return spectrum(warmup, window, growth=0.0 if window == 1 else 0.75, **limits)


def magcache_at(threshold: float, **limits: Any) -> CacheMethod:
    """Within one step no drift is foretold, whatever the input: only the retention keeps that from being reused."""
    return magcache(CURVE, threshold, NEVER, 1.0 if threshold <= IMPOSSIBLE else 0.0, **limits)


METHODS = {"teacache": teacache, "first_block": first_block_cache}
"""Those whose parts and levels are like the others'; they run on every architecture."""

OTHERS: dict[str, Callable[..., CacheMethod]] = {
    "dbcache": partial(dbcache, head=1, tail=1, predictor=Extrapolation(1, Taylor())),
    "seacache": seacache,
    "easycache": easycache,
    "magcache": magcache_at,
    "taylorseer": partial(taylorseer_at, order=1),
    "taylorseer_2": partial(taylorseer_at, order=2),
    "dpcache": lambda threshold, **limits: dpcache(planned(threshold), **limits),
    "spectrum": spectrum_at,
    "meancache": lambda threshold, **limits: meancache(planned(threshold), **limits),
}
EVERY_METHOD: dict[str, Callable[..., CacheMethod]] = METHODS | OTHERS
"""And StepCache, which is made when a run starts: see `cached`."""

PLANNED = ("taylorseer", "taylorseer_2", "dpcache", "spectrum", "meancache", "stepcache")
"""They compute the steps of a plan, whatever the input is."""

FORETOLD = ("magcache", *PLANNED)
GUIDED = ("meancache", "stepcache")
"""On a reused evaluation neither a model nor guidance is called."""

WHOLE_MODEL = ("easycache", *GUIDED)
"""On a reused evaluation the model is not called."""


def first_computed(method: str) -> int:
    """How many evaluations a method has to see before it can reuse."""
    return 2 if method == "easycache" else 1


@dataclass(frozen=True)
class Cached:
    """A model under a cache, with the reports of its runs."""

    patcher: ModelPatcher
    reports: list[RunReport] = field(default_factory=list)

    @property
    def report(self) -> RunReport:
        """Of the last run."""
        return self.reports[-1]


def cached(patcher: ModelPatcher, method: str, threshold: float, **limits: Any) -> Cached:
    if method == "stepcache":
        return cached_by(patcher, computing_all(""), partial(stepcache_at, threshold, limits))
    return cached_by(patcher, EVERY_METHOD[method](threshold, **limits))


def stepcache_at(threshold: float, limits: Mapping[str, Any], facts: Facts) -> Plan:
    """The steps of `planned` and, as in all methods here, the last; forecasts by what holds for most models."""
    sigmas = facts["sigmas"]
    if not falls(sigmas):
        return Plan(computing_all("the sigmas do not fall"), {})
    recording = general_recording(facts["flow"]).resampled(sigmas)
    steps = planned(threshold)(Run(sigmas, math.inf, 0.0)) | {recording.steps - 1}
    method = stepcache(ForecastPlan(Forecaster(recording), tuple(sorted(steps))), **limits)
    return Plan(replace(method, last_step=True), {})


def between(head: int, tail: int, threshold: float = PERMISSIVE, probe: Probe | None = None) -> CacheMethod:
    """A method that skips all blocks but the first `head` and the last `tail`."""
    probe = probe or (HeadResidual() if head else ModulatedInput())
    return CacheMethod("between", probe, ChangeFromAnchor(threshold), Hold(), Boundary(head, tail))


def cached_by(patcher: ModelPatcher, method: CacheMethod, at_start: Callable[[Facts], Plan] | None = None) -> Cached:
    reports: list[RunReport] = []

    def keep_last(report: RunReport) -> None:
        if not reports or reports[-1] is not report:
            reports.append(report)

    return Cached(apply_cache(patcher, method, listener=keep_last, at_start=at_start), reports)


def normally_cached(tiny: TinyModel, method: str, **limits: Any) -> Cached:
    """At a threshold that reuses some evaluations of about ten, and not all."""
    return cached(tiny.patcher, method, normal(tiny.name, method), **limits)


@cache
def normal(name: str, method: str) -> float:
    """Twice the usual change from one evaluation to the next, or a plan's share."""
    if method in FORETOLD:
        return CURVE.threshold
    tiny = shared(name)
    watched = cached(tiny.patcher, method, IMPOSSIBLE)
    run(watched.patcher, tiny, steps=10)
    usual = median(evaluation.signal for evaluation in watched.report.trace if evaluation.signal is not None)
    return min(2 * usual, LOOKING) if method == "dbcache" else 2 * usual


def relative(result, exact) -> float:
    """Root mean square difference over the standard deviation of the exact result."""
    return float((result - exact).square().mean().sqrt() / exact.std())
