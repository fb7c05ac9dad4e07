"""Nodes whose computed steps are known before sampling."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from comfy_api.latest import io

from ..cache_core.method import Plan
from ..cache_core.methods import dpcache, magcache, meancache, spectrum, taylorseer
from ..cache_core.planning import share_steps
from ..cache_core.policies import MagnitudeBudget
from ..cache_core.predictors import BASES
from ..cache_core.profiles import MagnitudeProfile, magnitude_profile
from ..cache_core.recording import same_schedule
from ..cache_core.types import Run
from ..model_patches.calibration import few_step_model, magnitude_profile_for, published
from ..model_patches.learning import from_profile
from ..model_patches.profile_folder import profile_of
from ..model_patches.variants import Facts
from .base import CacheNode, Settings
from .inputs import AUTOMATIC, MIN_STEPS, limits_of
from .part_inputs import (
    basis_inputs,
    chebyshev_inputs,
    curve_inputs,
    interval_input,
    order_input,
    share_input,
    window_inputs,
)

GENERAL = "no published figures for this model: a general plan"
NO_CURVE = "No curve is published for this model: a general one is used."
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
        return curve_inputs()

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        if settings["threshold"] == 0:
            return None
        curve, known = chosen_curve(model, settings, run_facts)
        automatic = settings["threshold"] == AUTOMATIC
        limits = careful(model, settings, run_facts) if automatic else limits_of(settings)
        return Plan(
            magcache(curve.profile, curve.threshold, curve.longest, curve.retention, **limits),
            {"threshold": curve.threshold, "curve": curve.profile.name},
            () if known else (NO_CURVE,),
        )


def chosen_curve(model, settings: Settings, run_facts: Facts | None) -> tuple[MagnitudeBudget, bool]:
    """The policy by a person's curve, else the model's, else a general one; and whether it is not the general one.

    Args:
        settings: `threshold`, `max_skip_steps` and `retention`, below 0 as published; `profile_file`.
    """
    steps = int((run_facts or {}).get("steps") or 28)
    profile = profile_from(settings["profile_file"]) or magnitude_profile_for(model, steps, run_facts)
    used = profile or FLAT
    threshold = used.threshold if settings["threshold"] == AUTOMATIC else settings["threshold"]
    longest = used.max_consecutive if settings["max_skip_steps"] < 0 else settings["max_skip_steps"]
    retention = used.retention if settings["retention"] < 0 else settings["retention"]
    return MagnitudeBudget(used, threshold, longest, retention), profile is not None


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
            interval_input(),
            order_input(1),
            io.Int.Input("warmup_steps", default=3, min=0, max=1000, tooltip="The first so many steps are computed."),
            *basis_inputs(),
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
        return [share_input(cls.default_share)]


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
        limits = limits_of(settings)
        steps = (run_facts or {}).get("steps")
        figures = published("meancache", model, run_facts)
        tables = [table for table in figures.get("schedules", ()) if table["steps"] == steps]
        if not tables:
            return cls.untabled(model, share, figures.get("lookback", 2), limits, run_facts)
        table = min(tables, key=lambda table: abs(table["computed"] - share * table["steps"]))
        lookback = dict(zip(table["fresh"], table["lookback"], strict=False))
        return Plan(
            meancache(partial(tabled, steps=frozenset(table["fresh"])), lookback, **limits),
            {"computed": share, "table": f"{figures['name']}, {table['computed']} of {table['steps']}"},
        )

    @classmethod
    def untabled(cls, model, share: float, lookback: int, limits: dict[str, Any], run_facts: Facts | None) -> Plan:
        """By what StepCache or Calibrate learned of the model, else a general plan."""
        learned, origin = from_profile(profile_of(model), run_facts) if run_facts else (None, "")
        if learned is None:
            return Plan(
                meancache(partial(share_steps, share=share), lookback, **limits), {"computed": share, "table": GENERAL}
            )
        count = learned.recording.steps
        steps = frozenset(learned.plan(round(share * count), {count - 1}).steps)
        return Plan(meancache(partial(tabled, steps=steps), lookback, **limits), {"computed": share, "table": origin})


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
        return [*super().own_inputs(), order_input(1)]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        share = settings["computed"]
        if share >= 1:
            return None
        steps = calibrated_steps(model, share, run_facts)
        plan = partial(tabled, steps=steps) if steps else partial(share_steps, share=share, forced=3)
        method = dpcache(plan, settings["order"], **limits_of(settings))
        told = "calibrated for this model and schedule" if steps else GENERAL
        return Plan(method, {"computed": share, "order": settings["order"], "plan": told})


def calibrated_steps(model, share: float, run_facts: Facts | None) -> frozenset[int] | None:
    """DPCache's steps by Calibrate's costs, which hold for the schedule they were measured with; else None."""
    fitted = profile_of(model).calibrations.get("dpcache")
    sigmas = (run_facts or {}).get("sigmas", ())
    if not fitted or not same_schedule(fitted["sigmas"], sigmas):
        return None
    steps = len(sigmas) - 1
    return frozenset(fitted["plans"].get(str(max(round(share * steps), 3)), range(steps)))


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
            *window_inputs(),
            io.Int.Input("warmup_steps", default=5, min=1, max=1000, tooltip="The first so many steps are computed."),
            *chebyshev_inputs(),
        ]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        names = ("warmup_steps", "window_size", "flex_window", "degree", "ridge_lambda")
        method = spectrum(*(settings[name] for name in names), **limits_of(settings))
        return Plan(method, {"window": settings["window_size"], "growth": settings["flex_window"]})


def tabled(run: Run, steps: frozenset[int]) -> frozenset[int]:
    return steps


PLANNED_NODES: list[type[io.ComfyNode]] = [MagCache, TaylorSeer, MeanCache, DPCache, Spectrum]
