"""Fitted numbers for a detected model, from `calibrations/*.json`.

A model is recognised by what ComfyUI found out about it (its `unet_config` and model class), never by a file name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from comfy.model_patcher import ModelPatcher

from .architectures import identify

FOLDER = Path(__file__).parent / "calibrations"


@dataclass(frozen=True)
class Calibration:
    """What is recommended for a model; `source` is None where only the general rule applies."""

    name: str
    threshold: float
    coefficients: tuple[float, ...] | None = None  # highest power first; None: count the change of the signal itself
    fitted_range: tuple[float, float] | None = None
    time_embedding: bool = False  # what the polynomial was fitted on: the time embedding, or the modulated input
    source: str | None = None


@lru_cache
def entries(method: str) -> Mapping[str, Any]:
    """The parsed file of a method: {"general": {...}, "entries": [{...}, ...]}."""
    return json.loads((FOLDER / f"{method}.json").read_text(encoding="utf-8"))


def calibration_for(method: str, model: ModelPatcher) -> Calibration:
    """The first entry that matches the model, or the method's general rule.

    Args:
        method: name of the file, such as "teacache".
    """
    table = entries(method)
    architecture = identify(model.model.diffusion_model)
    facts = dict(model.model.model_config.unet_config) | {"model_class": type(model.model).__name__}
    for entry in table["entries"]:
        if architecture and entry["architecture"] == architecture.name and matches(entry.get("match", {}), facts):
            return _calibration(entry, entry["source"])
    return _calibration(table["general"] | {"name": "general rule"}, None)


def matches(wanted: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether every wanted fact holds. A list of values means any of them; null means absent or false."""
    for name, value in wanted.items():
        actual = facts.get(name)
        if value is None:
            if actual:
                return False
        elif actual not in (value if isinstance(value, list) else [value]):
            return False
    return True


def _calibration(entry: Mapping[str, Any], source: str | None) -> Calibration:
    coefficients, fitted = entry.get("coefficients"), entry.get("fitted_range")
    return Calibration(
        entry["name"],
        entry["threshold"],
        tuple(coefficients) if coefficients else None,
        (fitted[0], fitted[1]) if fitted else None,
        entry.get("signal") == "time_embedding",
        source,
    )
