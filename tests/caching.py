"""Put a cache on a tiny model, at the settings that the tests speak of."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from comfy.model_patcher import ModelPatcher

from stepcache.cache_core.method import Boundary, CacheMethod
from stepcache.cache_core.methods import first_block_cache, teacache
from stepcache.cache_core.policies import ChangeFromAnchor
from stepcache.cache_core.predictors import Hold
from stepcache.cache_core.probes import HeadResidual, ModulatedInput, Probe
from stepcache.cache_core.report import RunReport
from stepcache.model_patches.install import apply_cache

from .sampling import run
from .tiny_models import TinyModel, shared

METHODS = {"teacache": teacache, "first_block": first_block_cache}
PERMISSIVE = 1e9  # reuses whenever the rules allow it
UNCHANGED = 1e-6  # reuses only where the input is the same
IMPOSSIBLE = 1e-12  # only an unchanged input would be reused


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
    return cached_by(patcher, METHODS[method](threshold, **limits))


def between(head: int, tail: int, threshold: float = PERMISSIVE, probe: Probe | None = None) -> CacheMethod:
    """A method that skips all blocks but the first `head` and the last `tail`."""
    probe = probe or (HeadResidual() if head else ModulatedInput())
    return CacheMethod("between", probe, ChangeFromAnchor(threshold), Hold(), Boundary(head, tail))


def cached_by(patcher: ModelPatcher, method: CacheMethod) -> Cached:
    reports: list[RunReport] = []

    def keep_last(report: RunReport) -> None:
        if not reports or reports[-1] is not report:
            reports.append(report)

    return Cached(apply_cache(patcher, method, listener=keep_last), reports)


def normally_cached(tiny: TinyModel, method: str, **limits: Any) -> Cached:
    """At a threshold that reuses some evaluations of about ten, and not all."""
    return cached(tiny.patcher, method, normal(tiny.name, method), **limits)


@cache
def normal(name: str, method: str) -> float:
    """Twice the usual change from one evaluation to the next."""
    tiny = shared(name)
    watched = cached(tiny.patcher, method, IMPOSSIBLE)
    run(watched.patcher, tiny, steps=10)
    return 2 * median(evaluation.signal for evaluation in watched.report.trace[1:])


def relative(result, exact) -> float:
    """Root mean square difference over the standard deviation of the exact result."""
    return float((result - exact).square().mean().sqrt() / exact.std())
