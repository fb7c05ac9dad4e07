"""Inputs that the cache nodes share, and the checks on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from comfy_api.latest import io

from ..cache_core.storage import CACHE_DEVICES

AUTOMATIC = -1.0
MOST_SPEEDUP = 5.0
MIN_STEPS = 10
"""What is recommended or planned is for longer runs: below, steps differ too much to reuse."""

TOGETHER, APART = BRANCHES = ("together", "apart")


def threshold_input(tooltip: str) -> io.Input:
    return io.Float.Input("threshold", default=AUTOMATIC, min=-1.0, max=10.0, step=0.005, round=0.0001, tooltip=tooltip)


def speedup_input() -> io.Input:
    return io.Float.Input(
        "speedup",
        default=0.0,
        min=0.0,
        max=MOST_SPEEDUP,
        step=0.1,
        round=0.01,
        optional=True,
        tooltip="How many times fewer evaluations are computed: 2 computes half of them, and the threshold is moved during "
        "the run to land there. From 1 (computes all) to 5; 0 uses the threshold as it is. Reused evaluations are not free, "
        "above all where some blocks always run, so the time saved is less.",
    )


def cache_device_input() -> io.Input:
    return io.Combo.Input(
        "cache_device",
        options=list(CACHE_DEVICES),
        default="auto",
        tooltip="Where the cache is kept. auto: on the GPU while there is room, else in main memory. "
        "cpu saves VRAM; each step then waits for a copy to main memory.",
    )


def shared_inputs() -> list[io.Input]:
    """`start_percent`, `end_percent`, `max_consecutive`, `cache_device`, `branches`, in this order."""
    return [
        io.Float.Input(
            "start_percent",
            default=0.0,
            min=0.0,
            max=1.0,
            step=0.01,
            tooltip="Nothing is reused before this part of sampling. Raise it if the composition changes too much.",
        ),
        io.Float.Input(
            "end_percent",
            default=1.0,
            min=0.0,
            max=1.0,
            step=0.01,
            tooltip="Nothing is reused after this part of sampling. Lower it if fine detail is lost.",
        ),
        io.Int.Input(
            "max_consecutive",
            default=0,
            min=0,
            max=1000,
            tooltip="At most this many evaluations in a row are reused. 0 sets no limit.",
        ),
        cache_device_input(),
        io.Combo.Input(
            "branches",
            options=list(BRANCHES),
            default=TOGETHER,
            optional=True,
            advanced=True,
            tooltip="Whether the positive and the negative prompt are computed or reused together (recommended), or each by "
            "itself, as some papers do. Where ComfyUI runs both in one batch they always go together.",
        ),
    ]


def check_settings(
    threshold: float | None = None,
    start_percent: float | None = None,
    end_percent: float | None = None,
    max_consecutive: int | None = None,
    speedup: float | None = None,
) -> str | None:
    """What is wrong with the settings and how to mend it, or None. Settings not known yet are None."""
    given = {
        "threshold": threshold,
        "start_percent": start_percent,
        "end_percent": end_percent,
        "max_consecutive": max_consecutive,
        "speedup": speedup,
    }
    for name, value in given.items():
        if value is not None and not isinstance(value, (int, float)):
            return f"{name} is {value!r}. Use a number."
    if max_consecutive is not None and max_consecutive < 0:
        return f"max_consecutive is {max_consecutive}. Use 0 for no limit, or a number above 0."
    if threshold is not None and not (math.isfinite(threshold) and (threshold >= 0 or threshold == AUTOMATIC)):
        return (
            f"threshold is {threshold:g}. Use -1 for the recommended value, 0 to switch the cache off, "
            "or a number above 0 (larger is faster and less exact)."
        )
    if speedup and not 1 <= speedup <= MOST_SPEEDUP:
        otherwise = "" if threshold is None else ", or 0 to use the threshold"
        allowed = f"from 1 to {MOST_SPEEDUP:g} (2 computes half of the evaluations){otherwise}"
        return f"speedup is {speedup:g}. Use a number {allowed}."
    for name, value in (("start_percent", start_percent), ("end_percent", end_percent)):
        if value is not None and not 0 <= value <= 1:
            return f"{name} is {value:g}. Use a number from 0 to 1."
    if start_percent is not None and end_percent is not None and start_percent >= end_percent:
        return (
            f"start_percent ({start_percent:g}) is not below end_percent ({end_percent:g}), so nothing could be "
            "reused. Lower start_percent or raise end_percent."
        )
    return None


def out_of_range(inputs: Iterable[io.Input], settings: Mapping[str, Any]) -> str | None:
    """What is wrong with numbers that came from another node, which ComfyUI checks only where they were typed; or None."""
    for entry in inputs:
        low, high, value = getattr(entry, "min", None), getattr(entry, "max", None), settings.get(entry.id)
        if low is None or high is None or value is None:
            continue
        if not isinstance(value, (int, float)):
            return f"{entry.id} is {value!r}. Use a number."
        if not low <= value <= high:
            return f"{entry.id} is {value:g}. Use a number from {low:g} to {high:g}."
    return None


def refuse_out_of_range(inputs: Iterable[io.Input], settings: Mapping[str, Any]) -> None:
    """Raises ValueError where `out_of_range` finds something."""
    if problem := out_of_range(inputs, settings):
        raise ValueError(problem)


def limits_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The shared settings as arguments of `CacheMethod`."""
    names = ("start_percent", "end_percent", "max_consecutive")
    return {name: settings[name] for name in names} | {"shared": settings.get("branches", TOGETHER) == TOGETHER}
