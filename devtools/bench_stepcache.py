"""StepCache beside plain sampling with as many steps, learned from pictures that are not among those compared.

From one picture means: from each of those learned in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import cycle

from comfy.model_base import WAN21
from comfy_extras.nodes_model_advanced import ModelSamplingFlux, ModelSamplingSD3

from stepcache.cache_core.forecasting import Forecaster, ForecastPlan
from stepcache.cache_core.method import Plan
from stepcache.cache_core.methods import computing_all, easycache, stepcache
from stepcache.cache_core.recording import Recorder, Recording
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
}
PANS = ("right", "left", "down", "up", "still")
SHARES = (6 / 28, 8 / 28, 10 / 28, 12 / 28, 14 / 28)
EASYCACHE = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
"""Thresholds of the method to compare with in the first case."""


def rows(quick: bool) -> Iterator[dict]:
    scenes = Scenes()
    prompts = COMPARED[:2] if quick else COMPARED
    for name, settings in list(CASES.items())[: 1 if quick else None]:
        yield from case(scenes, name, settings, prompts)


def case(scenes: Scenes, name: str, settings: dict, prompts: tuple[str, ...]) -> Iterator[dict]:
    settings = dict(size=128) | settings
    examples = LEARNED
    if settings.pop("video", False):
        scenes, prompts, examples = Videos(), moving(prompts), moving(examples)
    shift = settings.pop("shift", None)
    model = shifted(scenes.model, shift) if shift else scenes.model
    steps = settings.pop("steps", 28)

    def picture(cached, n: int, steps: int = steps):
        return scenes.picture(cached, prompts[n], steps, 100 + n, **settings)

    scenes.picture(model, prompts[0], steps=2)  # pays for loading
    references = [picture(model, n) for n in range(len(prompts))]
    recordings = [recorded(scenes, model, prompt, steps, 500 + n, settings) for n, prompt in enumerate(examples)]
    singly, together = [[each] for each in recordings], [recordings]
    ways = (("from 1 picture", singly, 0.0), ("guarded", singly, GUARD), (f"from {len(LEARNED)}", together, 0.0))
    for label, learned, guard in ways:
        for computed in (round(share * steps) for share in SHARES):
            methods = [stepcache(planned(each, computed), guard) for each in learned]
            yield watched("StepCache", f"{name}, {label}", model, methods, references, picture)
    for computed in (round(share * steps) for share in SHARES):
        plain = [picture(model, n, computed) for n in range(len(prompts))]
        yield row("plain", name, computed, references, plain)
    if name == next(iter(CASES)):
        for threshold in EASYCACHE:
            methods = [easycache(threshold, warmup=3)]
            yield watched("EasyCache", f"{name}, {threshold:g}", model, methods, references, picture)


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


def recorded(scenes: Scenes, model, prompt: str, steps: int, seed: int, settings: dict) -> Recording:
    recorders: list[Recorder] = []

    def at_start(facts) -> Plan:
        recorders.append(Recorder(facts["sigmas"], facts["flow"]))
        return Plan(computing_all("recorded"), {}, recorder=recorders[-1])

    recording_model = apply_cache(model, computing_all("recorded"), at_start=at_start)
    scenes.picture(recording_model, prompt, steps, seed, **settings)
    recording = recorders[-1].recording()
    assert recording is not None
    return recording
