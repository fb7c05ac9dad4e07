"""Fitted numbers for a detected model, from `calibrations/*.json`, by its variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from comfy.model_patcher import ModelPatcher

from ..cache_core.profiles import MagnitudeProfile
from ..cache_core.recording import Recording
from .architectures import identify
from .variants import Facts, model_facts, table, variant


@dataclass(frozen=True)
class Calibration:
    """What is recommended for a model; `source` is None where only the general rule applies."""

    name: str
    threshold: float
    coefficients: tuple[float, ...] | None = None  # highest power first; None: count the change of the signal itself
    fitted_range: tuple[float, float] | None = None
    time_embedding: bool = False  # what the polynomial was fitted on: the time embedding, or the modulated input
    source: str | None = None
    few_step: bool = False  # the variant is distilled to few steps
    warmup: int = 0  # evaluations to compute first


def calibration_for(method: str, model: ModelPatcher, run_facts: Facts | None = None) -> Calibration:
    """The figures published for this model, or the method's general rule.

    Args:
        method: name of the file, such as "teacache".
        run_facts: what `variants.run_facts` tells when a run starts. Without them the usual run is assumed.
    """
    architecture = identify(model.model.diffusion_model)
    found = variant({**model_facts(model), **(run_facts or {})})
    few_step = bool(found and found.get("few_step"))
    for entry in _entries_for(method, found):
        # Figures are of a signal, which only an entry in the table of models can give.
        if architecture and (architecture.time_embedding or entry.get("signal") != "time_embedding"):
            return _calibration(entry, entry["source"], few_step)
    return _calibration(table(method)["general"] | {"name": "general rule"}, None, few_step)


def published(method: str, model: ModelPatcher, run_facts: Facts | None = None) -> Mapping[str, Any]:
    """The entry of a method's file for the model as it stands there, or the general rule."""
    found = variant({**model_facts(model), **(run_facts or {})})
    return next(iter(_entries_for(method, found)), {"name": "general rule", **table(method)["general"]})


def few_step_model(model: ModelPatcher, run_facts: Facts | None = None) -> bool:
    """Whether the model is known to be made for a few steps."""
    found = variant({**model_facts(model), **(run_facts or {})})
    return bool(found and found.get("few_step"))


def magnitude_profile_for(model: ModelPatcher, steps: int, run_facts: Facts | None = None) -> MagnitudeProfile | None:
    """MagCache's curve for this model, of several the one measured at the nearest number of steps; None if there is none.

    Args:
        steps: of the run.
        run_facts: as for `calibration_for`.
    """
    found = variant({**model_facts(model), **(run_facts or {})})
    profiles = [magnitude_profile(entry) for entry in _entries_for("magcache", found)]
    return min(profiles, key=lambda profile: abs(profile.steps - steps), default=None)


def magnitude_profile(entry: Mapping[str, Any]) -> MagnitudeProfile:
    """An entry of `magcache.json` as a profile, which checks it."""
    known: dict[str, Any] = {key: entry[key] for key in MagnitudeProfile.__dataclass_fields__ if key in entry}
    known["ratios"] = {branch: tuple(values) for branch, values in entry["ratios"].items()}
    return MagnitudeProfile(**known)


@lru_cache
def general_recording(flow: bool) -> Recording:
    """What StepCache plans by for a model of which nothing was learned. Recorded by `dev.py bench --record-general`."""
    recordings = [Recording.from_dict(each) for each in table("stepcache")["recordings"]]
    return next(each for each in recordings if each.flow == flow)


def _entries_for(method: str, found: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [entry for entry in table(method)["entries"] if found and found["name"] in entry["variants"]]


def _calibration(entry: Mapping[str, Any], source: str | None, few_step: bool) -> Calibration:
    coefficients, fitted = entry.get("coefficients"), entry.get("fitted_range")
    return Calibration(
        entry["name"],
        entry["threshold"],
        tuple(coefficients) if coefficients else None,
        (fitted[0], fitted[1]) if fitted else None,
        entry.get("signal") == "time_embedding",
        source,
        few_step,
        entry.get("warmup", 0),
    )
