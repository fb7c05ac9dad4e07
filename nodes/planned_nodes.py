"""Nodes whose computed steps are known before sampling."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from comfy_api.latest import io

from ..cache_core.method import Plan
from ..cache_core.methods import dpcache, magcache, meancache, spectrum, taylorseer
from ..cache_core.planning import general_steps
from ..cache_core.predictors import BASES
from ..cache_core.profiles import MagnitudeProfile
from ..cache_core.types import Run
from ..model_patches.calibration import few_step_model, magnitude_profile, magnitude_profile_for, published
from ..model_patches.variants import Facts
from .base import CacheNode, Settings
from .inputs import AUTOMATIC, limits_of

MIN_STEPS = 10
"""Plans are for longer runs: below, steps differ too much to reuse."""

GENERAL = "no published figures for this model: a general plan"
FLAT = MagnitudeProfile(
    "a general curve", {"all": (1.0, *[1.02] * 9, *[1.0] * 9, *[0.97] * 9)}, 28, 0.12, 3, 0.2, "", ""
)


def careful(model, settings: Settings, run_facts: Facts | None) -> dict[str, Any]:
    """Limits of a plan that nobody made for the run at hand: none in short runs and few-step models."""
    return limits_of(settings) | {"min_steps": MIN_STEPS, "few_step_model": few_step_model(model, run_facts)}


class MagCache(CacheNode):
    node_id = "StepCacheMagCache"
    title = "MagCache"
    description = (
        "Reuses by a curve, measured once for a model, of how its result drifts from step to step. Which steps are computed "
        "is known before sampling and shown. Costs no look at the model at all."
    )
    aliases: ClassVar = ["magcache", "mag cache", "magnitude"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            io.Float.Input(
                "threshold",
                default=AUTOMATIC,
                min=-1.0,
                max=10.0,
                step=0.005,
                round=0.0001,
                tooltip="How much foretold drift is allowed: larger is faster and less exact. -1 uses the value published with "
                "the model's curve, 0 switches the cache off.",
            ),
            io.Int.Input(
                "max_skip_steps",
                default=-1,
                min=-1,
                max=100,
                tooltip="At most so many reused in a row (K). -1: as published.",
            ),
            io.Float.Input(
                "retention",
                default=-1.0,
                min=-1.0,
                max=1.0,
                step=0.01,
                tooltip="This first part of sampling is computed. -1: as published.",
            ),
            io.String.Input(
                "profile_file",
                default="",
                tooltip="A JSON file with a curve of your own, as in the pack's calibrations/magcache.json. Empty: the one of "
                "the detected model.",
            ),
        ]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        if settings["threshold"] == 0:
            return None
        steps = int((run_facts or {}).get("steps") or 28)
        profile = profile_from(settings["profile_file"]) or magnitude_profile_for(model, steps, run_facts)
        used = profile or FLAT
        threshold = used.threshold if settings["threshold"] == AUTOMATIC else settings["threshold"]
        longest = used.max_consecutive if settings["max_skip_steps"] < 0 else settings["max_skip_steps"]
        retention = used.retention if settings["retention"] < 0 else settings["retention"]
        automatic = settings["threshold"] == AUTOMATIC
        limits = careful(model, settings, run_facts) if automatic else limits_of(settings)
        return Plan(
            magcache(used, threshold, longest, retention, **limits),
            {"threshold": threshold, "curve": used.name},
            () if profile else ("No curve is published for this model: a general one is used.",),
        )


def profile_from(file: str) -> MagnitudeProfile | None:
    """The curve in a person's file; None if no file is named.

    Raises:
        ValueError: what is wrong with the file and what it should hold.
    """
    if not file.strip():
        return None
    form = (
        'one object with "name", "steps", "ratios" ({"all": [1.0, ...]}), "threshold", "max_consecutive", "retention"'
    )
    try:
        entry = json.loads(Path(file.strip()).expanduser().read_text(encoding="utf-8"))
        return magnitude_profile({"sampler": "", "source": file, **entry})
    except OSError as problem:
        raise ValueError(
            f"profile_file {file} cannot be read ({problem.strerror}). Give the path of a JSON file."
        ) from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"profile_file {file} holds no curve ({problem}). It should be {form}.") from problem


def order_input(default: int) -> io.Input:
    tooltip = "0 holds the last result, 1 is linear, 2 and 3 are curved."
    return io.Int.Input("order", default=default, min=0, max=3, tooltip=tooltip)


class TaylorSeer(CacheNode):
    node_id = "StepCacheTaylorSeer"
    title = "TaylorSeer"
    description = (
        "Computes every few steps and continues the blocks' result in time between them. The speed is the same for every "
        "picture; each order takes as much memory again."
    )
    aliases: ClassVar = ["taylorseer", "taylor seer", "hicache", "hermite"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            io.Int.Input(
                "interval",
                default=0,
                min=0,
                max=100,
                tooltip="Every so many steps one is computed: larger is faster and less exact. 0 uses what is published for the "
                "detected model, 1 computes all.",
            ),
            io.Int.Input(
                "order", default=1, min=0, max=3, tooltip="0 holds the last result, 1 is linear, 2 and 3 are curved."
            ),
            io.Int.Input("warmup_steps", default=3, min=1, max=1000, tooltip="The first so many steps are computed."),
            io.Combo.Input(
                "basis",
                options=list(BASES),
                default="taylor",
                tooltip="taylor as published; newton is exact at uneven spacing; hermite (HiCache) dampens the slope.",
            ),
            io.Combo.Input(
                "time",
                options=["step", "sigma"],
                default="step",
                tooltip="What counts as time: the number of the step, or its noise level.",
            ),
        ]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        interval = settings["interval"]
        if interval == 1:
            return None
        figures = published("taylorseer", model, run_facts)
        limits = limits_of(settings) if interval else careful(model, settings, run_facts)
        used = interval or figures["interval"]
        basis = BASES[settings["basis"]]()
        method = taylorseer(used, settings["order"], settings["warmup_steps"], basis, settings["time"], **limits)
        return Plan(method, {"interval": used, "order": settings["order"], "figures": figures["name"]})


class StepShareNode(CacheNode):
    """A node that is told what share of the steps to compute."""

    default_share: ClassVar[float] = 0.5

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            io.Float.Input(
                "computed",
                default=cls.default_share,
                min=0.05,
                max=1.0,
                step=0.05,
                tooltip="What share of the steps is computed: smaller is faster and less exact. 1 switches the cache off.",
            ),
        ]


class MeanCache(StepShareNode):
    node_id = "StepCacheMeanCache"
    title = "MeanCache"
    description = (
        "Computes the steps of a table and otherwise continues the guided prediction: nothing of the model runs on the other "
        "steps. Tables are published for Qwen-Image and Z-Image at 50 steps; elsewhere a general plan is made."
    )
    aliases: ClassVar = ["meancache", "mean cache", "jvp"]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        share = settings["computed"]
        if share >= 1:
            return None
        limits = careful(model, settings, run_facts)
        steps = (run_facts or {}).get("steps")
        figures = published("meancache", model, run_facts)
        tables = [table for table in figures.get("schedules", ()) if table["steps"] == steps]
        if not tables:
            plan = partial(planned_share, share=share)
            told = f"a general plan for {steps} steps" if steps else "a general plan"
            return Plan(meancache(plan, figures.get("lookback", 2), **limits), {"computed": share, "table": told})
        table = min(tables, key=lambda table: abs(table["computed"] - share * table["steps"]))
        lookback = dict(zip(table["fresh"], table["lookback"], strict=False))
        return Plan(
            meancache(partial(tabled, steps=frozenset(table["fresh"])), lookback, **limits),
            {"computed": share, "table": f"{figures['name']}, {table['computed']} of {table['steps']}"},
        )


class DPCache(StepShareNode):
    node_id = "StepCacheDPCache"
    title = "DPCache"
    description = (
        "Computes the steps of a plan and continues the blocks' result between them along a curve. Until the model was "
        "recorded, a general plan stands in for the one that dynamic programming finds."
    )
    aliases: ClassVar = ["dpcache", "dp cache", "dynamic programming"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        order = io.Int.Input(
            "order", default=2, min=0, max=3, tooltip="0 holds the last result, 1 is linear, 2 and 3 are curved."
        )
        return [*super().own_inputs(), order]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        share = settings["computed"]
        if share >= 1:
            return None
        plan = partial(planned_share, share=share, forced=3)
        method = dpcache(plan, settings["order"], **careful(model, settings, run_facts))
        return Plan(method, {"computed": share, "order": settings["order"], "plan": GENERAL})


class Spectrum(CacheNode):
    node_id = "StepCacheSpectrum"
    title = "Spectrum"
    description = (
        "Forecasts the last hidden state from all computed steps with Chebyshev polynomials, and computes once in a window of "
        "steps that grows. Takes five times the memory of holding one result."
    )
    aliases: ClassVar = ["spectrum", "chebyshev"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            io.Float.Input(
                "window_size",
                default=2.0,
                min=1.0,
                max=100.0,
                step=0.25,
                tooltip="Steps from one computed to the next at first.",
            ),
            io.Float.Input(
                "flex_window", default=0.75, min=0.0, max=20.0, step=0.05, tooltip="The window grows by this each time."
            ),
            io.Int.Input("warmup_steps", default=5, min=1, max=1000, tooltip="The first so many steps are computed."),
            io.Int.Input(
                "degree", default=4, min=1, max=8, tooltip="Of the highest polynomial; memory is degree + 1 results."
            ),
            io.Float.Input(
                "ridge_lambda",
                default=0.1,
                min=0.0001,
                max=100.0,
                step=0.01,
                tooltip="Larger makes the forecast smoother.",
            ),
        ]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        names = ("warmup_steps", "window_size", "flex_window", "degree", "ridge_lambda")
        method = spectrum(*(settings[name] for name in names), **careful(model, settings, run_facts))
        return Plan(method, {"window": settings["window_size"], "growth": settings["flex_window"]})


def planned_share(run: Run, share: float, forced: int = 2) -> frozenset[int]:
    return general_steps(run, max(round(share * run.steps), min(forced, run.steps)), forced)


def tabled(run: Run, steps: frozenset[int]) -> frozenset[int]:
    return steps


PLANNED_NODES: list[type[io.ComfyNode]] = [MagCache, TaylorSeer, MeanCache, DPCache, Spectrum]
