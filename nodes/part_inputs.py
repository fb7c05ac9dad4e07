"""Inputs of single parts of a method, for the nodes of methods and for the one that composes them."""

from __future__ import annotations

from comfy_api.latest import io

from ..cache_core.predictors import BASES
from .inputs import AUTOMATIC


def curve_inputs() -> list[io.Input]:
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


def interval_input() -> io.Input:
    return io.Int.Input(
        "interval",
        default=0,
        min=0,
        max=100,
        tooltip="Every so many steps one is computed: larger is faster and less exact. 0 uses what is published for the "
        "detected model, 1 computes all.",
    )


def order_input(default: int) -> io.Input:
    tooltip = (
        "0 holds the last result, 1 is linear, 2 and 3 are curved. 2 and 3 lose much where few steps are computed, unless the "
        "basis is hermite; at large intervals 0 is closest."
    )
    return io.Int.Input("order", default=default, min=0, max=3, tooltip=tooltip)


def basis_inputs() -> list[io.Input]:
    return [
        io.Combo.Input(
            "basis",
            options=list(BASES),
            default="taylor",
            tooltip="taylor as published; newton is exact at uneven spacing; hermite (HiCache) dampens the slope, and was "
            "closest at order 2.",
        ),
        io.Combo.Input(
            "time",
            options=["step", "sigma"],
            default="step",
            tooltip="What counts as time: the number of the step, or its noise level.",
        ),
    ]


def share_input(default: float) -> io.Input:
    return io.Float.Input(
        "computed",
        default=default,
        min=0.05,
        max=1.0,
        step=0.05,
        tooltip="What share of the steps is computed: smaller is faster and less exact. 1 switches the cache off.",
    )


def window_inputs() -> list[io.Input]:
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
    ]


def chebyshev_inputs() -> list[io.Input]:
    return [
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
