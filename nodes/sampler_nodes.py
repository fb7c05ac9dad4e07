"""Nodes that are samplers: they bring a cache of their own."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io

from ..cache_core.stepping import TAILS, StepRule
from ..model_patches.soft_sampler import SoftCache
from .base import CATEGORY
from .inputs import cache_device_input
from .progress import NodeProgress
from .runs import SAMPLER_ATTRIBUTE, RunLog

THRESHOLD = (
    "How much change is ignored before the model is computed again: larger is faster and less exact. "
    "0 computes every step, as euler does."
)


class SoftCacheSampler(io.ComfyNode):
    """Gives a sampler that takes a plain model."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheSoftCacheSampler",
            display_name="SoftCache Sampler",
            category=CATEGORY,
            description="An Euler sampler that skips the transformer blocks while little changes, and then also takes "
            "longer steps. Give the model to the sampler as it is: this brings its own cache. For flow models.",
            search_aliases=[
                "softcache",
                "soft cache",
                "adaptive",
                "euler",
                "cache",
                "step cache",
                "speed up",
                "faster",
            ],
            inputs=inputs(),
            outputs=[io.Sampler.Output(tooltip="Connect it to SamplerCustom or SamplerCustomAdvanced.")],
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,  # as for the cache nodes: each shows its own runs
        )

    @classmethod
    def validate_inputs(
        cls, threshold=None, max_stride=None, extrapolation=None, early_guard=None, change_guard=None
    ) -> bool | str:
        given = {
            "threshold": threshold,
            "max_stride": max_stride,
            "extrapolation": extrapolation,
            "early_guard": early_guard,
            "change_guard": change_guard,
        }
        known = {name: value for name, value in given.items() if value is not None}  # linked ones come later
        wrong = next((name for name, value in known.items() if not isinstance(value, (int, float))), None)
        if wrong:
            return f"{wrong} is {known[wrong]!r}. Use a number."
        try:
            softcache_of({"threshold": 0.0, "max_stride": 1, "early_guard": 0.0, "change_guard": 0.0, **known})
        except ValueError as problem:
            return str(problem)
        return True

    @classmethod
    def execute(cls, **settings) -> io.NodeOutput:
        log = RunLog(NodeProgress(cls.hidden.unique_id))
        sampler = softcache_of(settings, log).sampler()
        setattr(sampler, SAMPLER_ATTRIBUTE, log)
        return io.NodeOutput(sampler)


def softcache_of(settings: dict[str, Any], listener: RunLog | None = None) -> SoftCache:
    """Raises ValueError if one of the settings is out of its range."""
    rule = StepRule(
        settings["threshold"],
        settings["max_stride"],
        settings["early_guard"],
        settings["change_guard"],
        settings.get("tail", "t"),
    )
    return SoftCache(rule, settings.get("extrapolation", 1.0), settings.get("cache_device", "auto"), listener)


def inputs() -> list[io.Input]:
    return [
        io.Float.Input("threshold", default=0.3, min=0.0, max=10.0, step=0.005, round=0.0001, tooltip=THRESHOLD),
        io.Int.Input(
            "max_stride",
            default=8,
            min=1,
            max=100,
            tooltip="The longest step, in steps of the schedule, taken when nothing of the threshold is used up. "
            "1 visits every step.",
        ),
        io.Float.Input(
            "extrapolation",
            default=1.0,
            min=0.0,
            max=2.0,
            step=0.05,
            tooltip="How far a reused result follows its trend. 0.5 is published for more than 4x; 0 holds the last one.",
        ),
        io.Float.Input(
            "early_guard",
            default=0.1,
            min=0.0,
            max=1.0,
            step=0.01,
            tooltip="No longer steps until sigma is below 1 minus this. Raise it if the composition changes.",
        ),
        io.Float.Input(
            "change_guard",
            default=0.18,
            min=0.0,
            max=10.0,
            step=0.01,
            tooltip="No longer step where a single step changes more than this.",
        ),
        io.Combo.Input(
            "tail",
            options=list(TAILS),
            default="t",
            tooltip="How the rest of the schedule is spaced after a longer step. t: evenly in sigma, as published. "
            "u: as dense as the model's shift has it.",
        ),
        cache_device_input(),
    ]


SAMPLER_NODES: list[type[io.ComfyNode]] = [SoftCacheSampler]
