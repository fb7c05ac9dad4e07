"""The inputs of the node that composes a method: for each part a choice, and what belongs to the chosen one."""

from __future__ import annotations

from comfy_api.latest import io

from ..cache_core.step_masks import POLICIES
from .inputs import threshold_input
from .part_inputs import (
    basis_inputs,
    chebyshev_inputs,
    curve_inputs,
    interval_input,
    order_input,
    share_input,
    window_inputs,
)

DIFFERENCE, EXIT = STORED = ("difference", "exit")
NO_MASK = "none"
CHANGE = (
    "How much change is ignored: larger is faster and less exact. -1 uses the value recommended for the detected model, "
    "where this probe and policy are a known method; 0 switches the cache off."
)


def choices() -> dict[str, dict[str, list[io.Input]]]:
    """By input: its options in order, the first being the default, each with its own inputs."""
    return {
        "probe": {
            "head residual": [],
            "modulated input": [],
            "time embedding": [],
            "filtered input": [beta_input()],
            "latent": [],
            "none": [],
        },
        "policy": {
            "change from anchor": [threshold_input(CHANGE)],
            "accumulated change": [threshold_input(CHANGE), figures_input()],
            "predicted change": [threshold_input(CHANGE)],
            "interval": [interval_input()],
            "step share": [share_input(0.5)],
            "growing window": window_inputs(),
            "magnitude curve": curve_inputs(),
        },
        "predictor": {
            "hold": [],
            "extrapolation": [order_input(1), *basis_inputs()],
            "chebyshev": chebyshev_inputs(),
            "mean velocity": [lookback_input()],
        },
        "boundary": {
            "blocks": [*block_inputs(), stored_input(DIFFERENCE)],
            "model output": [stored_input(DIFFERENCE)],
            "guided prediction": [stored_input(EXIT)],
        },
        "step_mask": {NO_MASK: [], **{name: [static_input()] for name in POLICIES}},
    }


TOOLTIPS = {
    "probe": "Where to look: what the first blocks add, their modulated input (as it is, or filtered by noise level), the "
    "time embedding, the latent, or nowhere, for policies that know their steps before sampling.",
    "policy": "When to reuse: while the probe's signal changed little, or at steps that are known before sampling.",
    "predictor": "What stands in for what is skipped: the last result, or one that is continued in time.",
    "boundary": "What a reused step skips: blocks, the whole model, or all models and guidance.",
    "step_mask": "Steps that are computed in any case, dense at the start: slow computes most, ultra fewest.",
}


def compose_inputs() -> list[io.Input]:
    """`probe`, `policy`, `predictor`, `boundary`, `step_mask`, `warmup_steps`, `max_cached_steps`, in this order."""
    parts: list[io.Input] = [
        io.DynamicCombo.Input(
            name,
            options=[io.DynamicCombo.Option(key, inputs) for key, inputs in options.items()],
            tooltip=TOOLTIPS[name],
        )
        for name, options in choices().items()
    ]
    return [
        *parts,
        io.Int.Input("warmup_steps", default=0, min=0, max=1000, tooltip="The first so many evaluations are computed."),
        io.Int.Input(
            "max_cached_steps", default=0, min=0, max=1000, tooltip="At most so many are reused in a run; 0: no limit."
        ),
    ]


def beta_input() -> io.Input:
    tooltip = "How fast the spectrum falls with frequency. 0 takes 2 for pictures and 3 for videos."
    return io.Float.Input("beta", default=0.0, min=0.0, max=8.0, step=0.1, tooltip=tooltip)


def figures_input() -> io.Input:
    tooltip = (
        "Rescale the change by the figures published for the detected model, where they are of this probe (TeaCache)."
    )
    return io.Boolean.Input("published_figures", default=True, tooltip=tooltip)


def lookback_input() -> io.Input:
    tooltip = "Over how many past steps the mean is taken. 1 holds the last prediction."
    return io.Int.Input("lookback", default=2, min=1, max=20, tooltip=tooltip)


def block_inputs() -> list[io.Input]:
    return [
        io.Int.Input("head_blocks", default=1, min=0, max=200, tooltip="Blocks at the start that always run."),
        io.Int.Input("tail_blocks", default=0, min=0, max=200, tooltip="Blocks at the end that always run."),
    ]


def stored_input(default: str) -> io.Input:
    tooltip = "Whether what the skipped part added is kept (difference), or its result (exit)."
    return io.Combo.Input("stored", options=list(STORED), default=default, tooltip=tooltip)


def static_input() -> io.Input:
    tooltip = "Reuse all steps that are not in the mask. The policy is then not asked, and the probe must be none."
    return io.Boolean.Input("static", default=False, tooltip=tooltip)
