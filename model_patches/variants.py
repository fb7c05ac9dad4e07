"""Which variant of a model this is, by what ComfyUI knows of it and of the run, never by a file name.

Some facts are known only when a run starts: Kontext is FLUX.1-dev with reference latents, Wan's 480p and 720p models
differ in nothing but the size they are used at, and the two experts of Wan 2.2 A14B in their part of the sigmas. So
detection has two stages. Before a run `ASSUMED` stands in for its facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from comfy.model_patcher import ModelPatcher
from comfy.model_sampling import CONST

from ..cache_core.schedule import part_covered
from ..cache_core.types import Run
from .architecture import unwrapped
from .samplers import is_cfg_pp, sampler_kind

FOLDER = Path(__file__).parent / "calibrations"

Facts = Mapping[str, Any]

ASSUMED: Facts = {
    "references": False,
    "masked": False,
    "guided": True,
    "latent_area": 60 * 104,  # 832 x 480 pixels
    "noise_range": "all",
}
"""Facts of a run that has not begun. A calibration chosen with them is shown, and chosen again when the run starts."""

HIGH_ENDS_ABOVE = 0.6
LOW_STARTS_BELOW = 0.95
"""Bounds around the sigma at which Wan 2.2 changes experts: published as 0.875 (t2v) and 0.9 (i2v). Workflows split at
half the steps instead, which is 0.75 to 0.92 for shifts of 3 to 12."""


@lru_cache
def table(name: str) -> Mapping[str, Any]:
    """A parsed file of `calibrations`."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def variant(facts: Facts) -> Mapping[str, Any] | None:
    """The entry of `variants.json` that fits, or None for a model that is not in it.

    Args:
        facts: `model_facts`, and where known `run_facts`.
    """
    facts = {**ASSUMED, **facts}
    for entry in table("variants")["variants"]:
        wanted = {"class": entry["class"], **entry["match"], **entry.get("run", {})}
        if matches(wanted, facts):
            return entry
    return None


def matches(wanted: Facts, facts: Facts) -> bool:
    """Whether every wanted fact holds.

    A list means any of its values, null means absent or false, {"below": x} and {"from": x} are bounds of a number.
    """
    return all(_holds(value, facts.get(name)) for name, value in wanted.items())


def _holds(wanted: Any, actual: Any) -> bool:
    if wanted is None:
        return not actual
    if isinstance(wanted, Mapping):
        return actual is not None and wanted.get("from", actual) <= actual < wanted.get("below", float("inf"))
    return actual in (wanted if isinstance(wanted, list) else [wanted])


def model_facts(model: ModelPatcher) -> Facts:
    """What ComfyUI found out when it loaded the model: its configuration from shapes and block counts, and classes."""
    network = unwrapped(model.model.diffusion_model)
    classes = {"class": type(network).__name__, "model_class": type(model.model).__name__}
    return {**model.model.model_config.unet_config, **classes}


def run_facts(guider: Any, sigmas: Sequence[float], latent: Sequence[int], masked: bool, sampler: Any) -> Facts:
    """What is known when a run starts.

    Args:
        guider: ComfyUI's CFGGuider, with `conds` and `cfg`.
        sigmas: those of the run, descending.
        latent: shape of the noise, (B, C, H, W) or (B, C, T, H, W).
        masked: whether the run has a denoise mask.
        sampler: ComfyUI's.

    Returns:
        model: the ModelPatcher with all that was put on it. steps, sigmas: of the run. whole_steps: of the whole schedule that
        the run may be a part of. latent: its shape. flow: whether it is a flow model. sampler: what kind, see
        `samplers.sampler_kind`. sees_branches: whether the sampler looks at what guidance is made of. references: some
        conditioning carries reference latents. masked. guided: a negative prompt takes part. latent_area: height times width
        in latent cells, or None for a packed latent. noise_range: "all", "high" or "low", the part of the schedule that is
        run.
    """
    conds = getattr(guider, "conds", {})
    model_sampling = guider.model_patcher.get_model_object("model_sampling")
    _, fraction = part_covered(sigmas, lambda percent: float(model_sampling.percent_to_sigma(percent)))
    every = [cond for several in conds.values() for cond in several or ()]
    return {
        "steps": max(len(sigmas) - 1, 0),
        "whole_steps": Run(tuple(sigmas), max(sigmas, default=0.0), 0.0, fraction=fraction).whole_steps,
        "sigmas": tuple(sigmas),
        "references": any(cond.get("reference_latents") for cond in every),
        "masked": masked,
        "guided": len(conds) > 2 or (len(conds) == 2 and guider.cfg != 1),
        "latent_area": latent[-2] * latent[-1] if len(latent) > 3 else None,
        "noise_range": noise_range(sigmas),
        "latent": tuple(latent),
        "flow": isinstance(model_sampling, CONST),
        "model": guider.model_patcher,
        "sampler": sampler_kind(sampler),
        "sees_branches": is_cfg_pp(sampler),
    }


def noise_range(sigmas: Sequence[float]) -> str:
    """The part of a flow model's schedule, from 1 to 0, that these sigmas cover: "all", "high" or "low"."""
    if not sigmas:
        return "all"
    if min(sigmas) >= HIGH_ENDS_ABOVE:
        return "high"
    return "low" if max(sigmas) <= LOW_STARTS_BELOW else "all"
