"""SoftCache, which chooses its steps, beside SeaCache and samplers with fewer steps: likeness to Euler at equal time.

Likeness is to Euler with the same schedule, and to Euler with so many steps that more would change nothing: what all
samplers approximate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean
from typing import Any

from stepcache.cache_core.methods import seacache
from stepcache.cache_core.quality import psnr
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.stepping import StepRule
from stepcache.model_patches.install import apply_cache
from stepcache.model_patches.soft_sampler import SoftCache

from .bench_quality import PROMPTS, STEPS, Scenes

TRUTH = 200
"""Steps of the second reference."""

THRESHOLDS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
SOFT: list[tuple[str, StepRule, float, int]] = [
    *((f"threshold {value:g}", StepRule(value), 1.0, STEPS) for value in THRESHOLDS),
    *((f"threshold {value:g}, extrapolation 0.5", StepRule(value), 0.5, STEPS) for value in (0.3, 0.6)),
    *((f"threshold {value:g}, max_stride 1", StepRule(value, max_stride=1), 1.0, STEPS) for value in (0.2, 0.3, 0.4)),
    *(
        (f"threshold {value:g} of {n} steps", StepRule(value), 1.0, n)
        for n, value in ((56, 0.2), (56, 0.4), (100, 0.4))
    ),
]
FEWER_STEPS = {"euler": (28, 20, 16, 14, 12, 10, 8), "dpmpp_2m": (28, 20, 14, 12, 10, 8)}

Draw = Callable[[str], Any]
"""(prompt) -> a picture and the seconds that it took."""


def rows(quick: bool) -> Iterator[dict]:
    scenes = Scenes()
    prompts = PROMPTS[:1] if quick else PROMPTS
    scenes.picture(scenes.model, prompts[0], steps=2)  # pays for loading
    references = [[scenes.picture(scenes.model, prompt, steps=steps) for prompt in prompts] for steps in (STEPS, TRUTH)]
    for name, setting, draw, reports in candidates(scenes):
        pictures = [draw(prompt) for prompt in prompts]
        yield row(name, setting, references, pictures, reports)


def candidates(scenes: Scenes) -> Iterator[tuple[str, str, Draw, list[RunReport]]]:
    for setting, rule, extrapolation, steps in SOFT:
        reports: list[RunReport] = []
        sampler = SoftCache(rule, extrapolation, listener=reports.append).sampler()
        yield "SoftCache", setting, partial(scenes.picture, scenes.model, steps=steps, sampler=sampler), reports
    for value in THRESHOLDS:
        reports = []
        cached = apply_cache(scenes.model, seacache(value), reports.append)
        yield "SeaCache", f"threshold {value:g}", partial(scenes.picture, cached), reports
    for sampler, counts in FEWER_STEPS.items():
        for steps in counts:
            yield sampler, f"{steps} steps", partial(scenes.picture, scenes.model, steps=steps, sampler=sampler), []
    yield "dpm_adaptive", f"{STEPS} steps", partial(scenes.picture, scenes.model, sampler="dpm_adaptive"), []


def row(method: str, setting: str, references: list, pictures: list, reports: list[RunReport]) -> dict:
    same, truth = ([psnr(a, b) for (a, _), (b, _) in zip(known, pictures, strict=True)] for known in references)
    runs = {id(report): report for report in reports}.values()  # each was heard of once an evaluation
    counts = {name: float(mean(getattr(run, name) for run in runs)) for name in ("computed", "evaluations") if runs}
    return {
        "bench": "stepping",
        "method": method,
        "setting": setting,
        "prompts": len(pictures),
        **counts,
        "speedup": sum(seconds for _, seconds in references[0]) / sum(seconds for _, seconds in pictures),
        f"psnr_{STEPS}": mean(same),
        f"psnr_{STEPS}_worst": min(same),
        f"psnr_{TRUTH}": mean(truth),
        f"psnr_{TRUTH}_worst": min(truth),
    }
