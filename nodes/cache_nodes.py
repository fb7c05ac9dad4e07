"""The cache nodes: each takes a model and returns it with a cache on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from comfy_api.latest import io

from ..cache_core.method import CacheMethod, Plan
from ..cache_core.methods import first_block_cache, teacache
from ..model_patches.calibration import Calibration, calibration_for
from ..model_patches.install import apply_cache
from ..model_patches.variants import Facts
from .inputs import AUTOMATIC, cache_inputs, check_settings
from .progress import NodeProgress

CATEGORY = "StepCache"

THRESHOLD = (
    "How much change is ignored: larger is faster and less exact. "
    "-1 uses the value recommended for the detected model and reuses nothing in runs of fewer than 10 steps; "
    "0 switches the cache off."
)

MIN_STEPS = 10
"""Recommended thresholds are for longer runs: below, steps differ too much to reuse."""

NO_FIGURES = "No figures are published for this model: the general rule is used."


class ThresholdCacheNode(io.ComfyNode):
    """What nodes with one threshold share. A subclass gives its schema, its calibration file and its method."""

    calibrations = ""

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, **limits) -> CacheMethod:
        raise NotImplementedError

    @classmethod
    def validate_inputs(cls, threshold=None, start_percent=None, end_percent=None, max_consecutive=None) -> bool | str:
        return check_settings(threshold, start_percent, end_percent, max_consecutive) or True

    @classmethod
    def execute(cls, model, threshold, start_percent, end_percent, max_consecutive, cache_device) -> io.NodeOutput:
        problem = check_settings(threshold, start_percent, end_percent, max_consecutive)
        if problem:
            raise ValueError(problem)
        if threshold == 0:
            return io.NodeOutput(model)
        limits = {"start_percent": start_percent, "end_percent": end_percent, "max_consecutive": max_consecutive}
        plan = cls.plan(model, threshold, limits)
        cached = apply_cache(
            model,
            plan.method,
            NodeProgress(cls.hidden.unique_id),
            cache_device,
            settings=plan.settings,
            messages=plan.messages,
            at_start=partial(cls.plan, model, threshold, limits),
        )
        return io.NodeOutput(cached)

    @classmethod
    def plan(cls, model, threshold: float, limits: Mapping[str, Any], run_facts: Facts | None = None) -> Plan:
        """What to do with the model; with `run_facts`, in the run that they are of."""
        calibration = calibration_for(cls.calibrations, model, run_facts)
        used = threshold
        if threshold == AUTOMATIC:
            used = calibration.threshold
            limits = {**limits, "min_steps": MIN_STEPS, "few_step_model": calibration.few_step}
        return Plan(
            cls.method(used, calibration, **limits),
            {"threshold": used, "figures": calibration.name},
            () if calibration.source else (NO_FIGURES,),
        )


def schema(node_id: str, display_name: str, description: str, aliases: list[str]) -> io.Schema:
    return io.Schema(
        node_id=node_id,
        display_name=display_name,
        category=CATEGORY,
        description=description,
        search_aliases=[*aliases, "cache", "step cache", "speed up", "faster"],
        inputs=[io.Model.Input("model", tooltip="The diffusion model to speed up."), *cache_inputs(THRESHOLD)],
        outputs=[io.Model.Output(tooltip="The same model, with the cache on it. Connect it to the sampler.")],
        hidden=[io.Hidden.unique_id],
    )


class TeaCache(ThresholdCacheNode):
    calibrations = "teacache"

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "StepCacheTeaCache",
            "TeaCache",
            "Skips the transformer blocks of a step while the timestep-modulated input has changed little. "
            "A good first choice: the fastest to decide, with figures fitted to many models.",
            ["teacache", "tea cache", "timestep embedding"],
        )

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, **limits) -> CacheMethod:
        fitted = calibration.coefficients, calibration.fitted_range, calibration.time_embedding
        return teacache(threshold, *fitted, **limits)


class FirstBlockCache(ThresholdCacheNode):
    calibrations = "first_block"

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            "StepCacheFirstBlockCache",
            "First Block Cache",
            "Runs the first block of each step and skips the others while that block's result has changed little. "
            "Needs no fitted figures, so it suits any model.",
            ["fbcache", "first block cache", "wavespeed", "paraattention"],
        )

    @classmethod
    def method(cls, threshold: float, calibration: Calibration, **limits) -> CacheMethod:
        return first_block_cache(threshold, **limits)


NODES: list[type[io.ComfyNode]] = [TeaCache, FirstBlockCache]
