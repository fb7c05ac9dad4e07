"""Fitted numbers for a detected model, from `calibrations/*.json`, by its variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from comfy.model_patcher import ModelPatcher

from ..cache_core.fitting import SOURCE as CALIBRATED_HERE
from ..cache_core.profiles import MagnitudeProfile, magnitude_profile
from ..cache_core.recording import Recording
from .architectures import identify
from .profile_folder import profile_of
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
    few_step = few_step_model(model, run_facts)
    for entry in entries_for(method, model, run_facts):
        # Figures are of a signal, which only an entry in the table of models can give.
        if architecture and (architecture.time_embedding or entry.get("signal") != "time_embedding"):
            return _calibration(entry, entry["source"], few_step)
    return _calibration(table(method)["general"] | {"name": "general rule"}, None, few_step)


def published(method: str, model: ModelPatcher, run_facts: Facts | None = None) -> Mapping[str, Any]:
    """The entry of a method's file for the model as it stands there, or the general rule."""
    return next(iter(entries_for(method, model, run_facts)), {"name": "general rule", **table(method)["general"]})


def few_step_model(model: ModelPatcher, run_facts: Facts | None = None) -> bool:
    """Whether the model is known to be made for a few steps."""
    found = variant({**model_facts(model), **(run_facts or {})})
    return bool(found and found.get("few_step"))


def magnitude_profile_for(model: ModelPatcher, steps: int, run_facts: Facts | None = None) -> MagnitudeProfile | None:
    """MagCache's curve for this model; of several published the one measured at the nearest number of steps.

    Args:
        steps: of the run.
        run_facts: as for `calibration_for`.
    """
    entries = entries_for("magcache", model, run_facts)
    if entries and entries[0]["source"] == CALIBRATED_HERE:
        return magnitude_profile(entries[0])
    profiles = [magnitude_profile(entry) for entry in entries]
    return min(profiles, key=lambda profile: abs(profile.steps - steps), default=None)


@lru_cache
def general_recording(flow: bool) -> Recording:
    """What StepCache plans by for a model of which nothing was learned. Recorded by `dev.py bench --record-general`.

    It counts as one run, however many pictures it is of: another model differs from it as much as another picture would.
    """
    recordings = [Recording.from_dict(each) for each in table("stepcache")["recordings"]]
    return replace(next(each for each in recordings if each.flow == flow), runs=1)


def entries_for(method: str, model: ModelPatcher, run_facts: Facts | None = None) -> list[Mapping[str, Any]]:
    """The entries of a method for a model: the one that Calibrate fitted to it, if any, then those published."""
    fitted = profile_of(model).calibrations.get(method)
    found = variant({**model_facts(model), **(run_facts or {})})
    published = [entry for entry in table(method)["entries"] if found and found["name"] in entry["variants"]]
    return [fitted, *published] if fitted else published


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
