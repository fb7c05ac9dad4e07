"""StepCache beside plain sampling with as many steps, learned from pictures that are not among those compared.

From one picture means: from each of those learned in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import cycle
from typing import Any

from comfy.model_base import WAN21
from comfy_extras.nodes_model_advanced import ModelSamplingFlux, ModelSamplingSD3
from torch import Tensor

from stepcache.cache_core.forecasting import Forecaster, ForecastPlan
from stepcache.cache_core.method import CacheMethod, Plan
from stepcache.cache_core.methods import computing_all, easycache, stepcache
from stepcache.cache_core.recording import Recorder, Recording
from stepcache.model_patches.calibration import general_recording
from stepcache.model_patches.install import apply_cache
from stepcache.nodes.auto import GUARD

from .bench_quality import PROMPTS, Scenes, Videos, row, watched

LEARNED = ("day mountains sun trees", "night sea moon stars", "sunset desert cactus", "day hills clouds snow")
COMPARED = (
    *PROMPTS,
    "night hills house trees moon",
    "sunset sea sun boat clouds",
    "night mountains moon stars snow",
    "day hills clouds sun snow trees",
)
CASES: dict[str, dict] = {
    "28 euler 128 px": {},
    "28 euler 256 px": dict(size=256),
    "28 dpmpp_2m": dict(sampler="dpmpp_2m"),
    "28 uni_pc": dict(sampler="uni_pc"),
    "28 res_multistep": dict(sampler="res_multistep"),
    "28 euler_ancestral": dict(sampler="euler_ancestral"),
    "20 euler": dict(steps=20),
    "50 euler": dict(steps=50),
    "28 euler, CFG 1": dict(guidance=1.0),
    "28 euler, CFG 6": dict(guidance=6.0),
    "28 euler, shift 3": dict(shift=3.0),
    "28 euler, beta": dict(scheduler="beta"),
    "28 euler, video": dict(video=True, size=96, shift=3.0),
    "28 euler, video, CFG 1": dict(video=True, size=96, shift=3.0, guidance=1.0),
}
PANS = ("right", "left", "down", "up", "still")
SHARES = (6 / 28, 8 / 28, 10 / 28, 12 / 28, 14 / 28)
EASYCACHE = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
"""Thresholds of the method to compare with in the first case."""


def rows(quick: bool) -> Iterator[dict]:
    for name in list(CASES)[: 1 if quick else None]:
        case = Case(name, quick)
        recordings = [case.recorded(n) for n in range(len(case.examples))]
        singly, together = [[each] for each in recordings], [recordings]
        ways = (("from 1 picture", singly, 0.0), ("guarded", singly, GUARD), (f"from {len(recordings)}", together, 0.0))
        for label, learned, guard in ways:
            for computed in case.counts:
                methods = [stepcache(planned(each, computed), guard) for each in learned]
                yield case.watched("StepCache", label, methods)
        if isinstance(case.scenes, Videos):  # the general recording is of the tiny Flux
            general = general_recording(flow=True).resampled(recordings[0].sigmas)
            for computed in case.counts:
                yield case.watched("StepCache", "general", [stepcache(planned([general], computed))])
        for computed in case.counts:
            plain = [case.picture(case.model, n, computed) for n in range(len(case.prompts))]
            yield row("plain", name, computed, case.references, plain)
        if name == next(iter(CASES)):
            for threshold in EASYCACHE:
                yield case.watched("EasyCache", f"{threshold:g}", [easycache(threshold, warmup=3)])


class Case:
    """Pictures to compare, and others to learn from, under one of the `CASES`."""

    def __init__(self, name: str, quick: bool = False):
        settings: dict[str, Any] = dict(size=128) | CASES[name]
        self.name, self.steps, shift = name, settings.pop("steps", 28), settings.pop("shift", None)
        self.prompts, self.examples = COMPARED[:2] if quick else COMPARED, LEARNED
        self.scenes = scenes_of(settings.pop("video", False))
        if isinstance(self.scenes, Videos):
            self.prompts, self.examples = moving(self.prompts), moving(self.examples)
        self.settings = settings
        self.model = shifted(self.scenes.model, shift) if shift else self.scenes.model
        self.counts = [round(share * self.steps) for share in SHARES]

    @cached_property
    def references(self) -> list:
        self.scenes.picture(self.model, self.prompts[0], steps=2)  # pays for loading
        return [self.picture(self.model, n) for n in range(len(self.prompts))]

    def picture(self, cached, n: int, steps: int | None = None):
        return self.scenes.picture(cached, self.prompts[n], steps or self.steps, 100 + n, **self.settings)

    def watched(self, method: str, label: str, methods: Sequence[CacheMethod]) -> dict:
        return watched(method, f"{self.name}, {label}", self.model, methods, self.references, self.picture)

    def example(self, model, n: int) -> Tensor:
        """The final latent of the n-th that is learned from."""
        return self.scenes.sampled(model, self.examples[n], self.steps, 500 + n, **self.settings)[0]

    def recorded(self, n: int) -> Recording:
        recorders: list[Recorder] = []

        def at_start(facts) -> Plan:
            recorders.append(Recorder(facts["sigmas"], facts["flow"]))
            return Plan(computing_all("recorded"), {}, recorder=recorders[-1])

        self.example(apply_cache(self.model, computing_all("recorded"), at_start=at_start), n)
        recording = recorders[-1].recording()
        assert recording is not None
        return recording


@lru_cache
def scenes_of(video: bool) -> Scenes:
    return Videos() if video else Scenes()


def moving(prompts: tuple[str, ...]) -> tuple[str, ...]:
    """Each with a word for the pan."""
    return tuple(f"{prompt} {pan}" for prompt, pan in zip(prompts, cycle(PANS), strict=False))


def shifted(model, shift: float):
    """With a shift of the schedule, whatever the size."""
    if isinstance(model.model, WAN21):
        return ModelSamplingSD3().patch(model, shift)[0]
    return ModelSamplingFlux().patch(model, math.log(shift), math.log(shift), 256, 256)[0]


def planned(recordings: list[Recording], computed: int) -> ForecastPlan:
    forecaster = Forecaster(reduce(Recording.merged, recordings))
    return ForecastPlan(forecaster, forecaster.plan(computed))
