"""Nodes that watch how much something changes, and reuse while that stays below a threshold."""

from __future__ import annotations

from typing import Any, ClassVar

from comfy_api.latest import io

from ..cache_core.method import CacheMethod, Plan
from ..cache_core.methods import dbcache, easycache, first_block_cache, seacache, teacache
from ..cache_core.predictors import Extrapolation, Hold, Predictor, Taylor
from ..cache_core.step_masks import POLICIES
from ..model_patches.calibration import Calibration, calibration_for
from ..model_patches.variants import Facts
from .base import CacheNode, Settings
from .inputs import AUTOMATIC, MIN_STEPS, limits_of, speedup_input, threshold_input

THRESHOLD = (
    "How much change is ignored: larger is faster and less exact. "
    "-1 uses the value recommended for the detected model and reuses nothing in runs of fewer than 10 steps; "
    "0 switches the cache off."
)

NO_FIGURES = "No figures are published for this model: the general rule is used."


class ThresholdNode(CacheNode):
    """A node with a threshold. A subclass gives its calibration file and its method as well."""

    calibrations: ClassVar[str]

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        raise NotImplementedError

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [threshold_input(THRESHOLD)]

    @classmethod
    def later_inputs(cls) -> list[io.Input]:
        return [speedup_input()]

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        threshold, speedup = settings["threshold"], settings.get("speedup", 0.0)
        if threshold == 0 or speedup == 1:
            return None
        calibration = calibration_for(cls.calibrations, model, run_facts)
        limits = limits_of(settings)
        if threshold == AUTOMATIC:
            threshold = calibration.threshold
            if not speedup:
                limits |= {"min_steps": MIN_STEPS, "few_step_model": calibration.few_step}
        asked = {"speedup": speedup} if speedup else {}
        return Plan(
            cls.method(threshold, calibration, settings, **limits, **asked),
            {"threshold": threshold, "figures": calibration.name},
            () if calibration.source else (NO_FIGURES,),
        )


class TeaCache(ThresholdNode):
    node_id = "StepCacheTeaCache"
    title = "TeaCache"
    description = (
        "Skips the transformer blocks of a step while the timestep-modulated input has changed little. "
        "A good first choice: the fastest to decide, with figures fitted to many models."
    )
    aliases: ClassVar = ["teacache", "tea cache", "timestep embedding"]
    calibrations = "teacache"

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        fitted = calibration.coefficients, calibration.fitted_range, calibration.time_embedding
        return teacache(threshold, *fitted, **limits)


class FirstBlockCache(ThresholdNode):
    node_id = "StepCacheFirstBlockCache"
    title = "First Block Cache"
    description = (
        "Runs the first block of each step and skips the others while that block's result has changed little. "
        "Needs no fitted figures, so it suits any model."
    )
    aliases: ClassVar = ["fbcache", "first block cache", "wavespeed", "paraattention"]
    calibrations = "first_block"

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        return first_block_cache(threshold, **limits)


class SeaCache(ThresholdNode):
    node_id = "StepCacheSeaCache"
    title = "SeaCache"
    description = (
        "As TeaCache, but the input is first filtered to what can be known at its noise level, so that noise does not "
        "count as change. Needs no fitted figures."
    )
    aliases: ClassVar = ["seacache", "sea cache", "spectral"]
    calibrations = "seacache"

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        return seacache(threshold, **limits)


class EasyCache(ThresholdNode):
    node_id = "StepCacheEasyCache"
    title = "EasyCache (model output)"
    description = (
        "Skips the whole model while its output is predicted to change little from how the latent changes. Needs almost "
        "no memory and works with every model. Its thresholds are not those of ComfyUI's own EasyCache."
    )
    aliases: ClassVar = ["easycache", "easy cache", "lazycache"]
    calibrations = "easycache"

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        return easycache(threshold, warmup=calibration.warmup, **limits)


PREDICTORS: dict[str, Predictor] = {
    "hold": Hold(),
    "linear": Extrapolation(1, Taylor()),
    "quadratic": Extrapolation(2, Taylor()),
}
NO_MASK = "none"
STATIC_WITH_SPEEDUP = (
    "A static step mask alone decides how many evaluations are computed. Set speedup to 0, or mask_is_static to off."
)


class DBCache(ThresholdNode):
    node_id = "StepCacheDBCache"
    title = "DBCache"
    description = (
        "First Block Cache with more control: how many blocks always run at both ends, a warm-up, limits, a forecast, and a "
        "mask of steps that are always computed. 1 head and 0 tail blocks make it First Block Cache."
    )
    aliases: ClassVar = ["dbcache", "cache-dit", "dual block cache", "scm"]
    calibrations = "dbcache"

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            threshold_input(THRESHOLD),
            io.Int.Input("head_blocks", default=8, min=1, max=200, tooltip="Blocks at the start that always run (Fn)."),
            io.Int.Input("tail_blocks", default=0, min=0, max=200, tooltip="Blocks at the end that always run (Bn)."),
            io.Int.Input(
                "warmup_steps",
                default=8,
                min=0,
                max=1000,
                tooltip="The first so many evaluations are computed. A step mask has a warm-up of its own instead.",
            ),
            io.Int.Input(
                "max_cached_steps",
                default=0,
                min=0,
                max=1000,
                tooltip="At most so many are reused in a run; 0: no limit.",
            ),
            io.Combo.Input(
                "predictor",
                options=list(PREDICTORS),
                default="hold",
                tooltip="What stands in for the skipped blocks: their last result, or that continued in time. linear takes "
                "twice the memory, quadratic three times.",
            ),
            io.Combo.Input(
                "step_mask",
                options=[NO_MASK, *POLICIES],
                default=NO_MASK,
                tooltip="Steps that are computed in any case, dense at the start: slow computes most, ultra fewest.",
            ),
            io.Boolean.Input(
                "mask_is_static",
                default=False,
                tooltip="With a mask: reuse all other steps without looking at the threshold.",
            ),
        ]

    @classmethod
    def later_inputs(cls) -> list[io.Input]:
        return [
            io.Int.Input(
                "warmup_interval",
                default=1,
                min=1,
                max=1000,
                optional=True,
                advanced=True,
                tooltip="During the warm-up every so many evaluations are computed, and others may be reused. 1 computes all.",
            ),
            io.Float.Input(
                "max_accumulated",
                default=0.0,
                min=0.0,
                max=1000.0,
                step=0.05,
                round=0.0001,
                optional=True,
                advanced=True,
                tooltip="Once the changes that were judged in a run sum up to this, the rest is computed; 0: no limit.",
            ),
            *super().later_inputs(),
        ]

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, settings: Settings, **limits: Any) -> CacheMethod:
        mask = settings["step_mask"]
        if limits.get("speedup") and mask != NO_MASK and settings["mask_is_static"]:
            raise ValueError(STATIC_WITH_SPEEDUP)
        return dbcache(
            threshold,
            settings["head_blocks"],
            settings["tail_blocks"],
            PREDICTORS[settings["predictor"]],
            None if mask == NO_MASK else mask,
            settings["mask_is_static"],
            settings.get("max_accumulated", 0.0),
            warmup_interval=settings.get("warmup_interval", 1),
            warmup=settings["warmup_steps"],
            max_reused=settings["max_cached_steps"],
            **limits,
        )


THRESHOLD_NODES: list[type[io.ComfyNode]] = [TeaCache, FirstBlockCache, DBCache, SeaCache, EasyCache]
