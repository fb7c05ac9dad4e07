"""What fits a run of what was learned of its model."""

from __future__ import annotations

import math

from ..cache_core.learned import Conditions, Learned, ModelProfile
from .architectures import model_name
from .identity import model_identity, patches_identity
from .variants import Facts

ADAPTED = "adapted from what was learned with other settings"


def kept_under(facts: Facts) -> Conditions:
    """What a recording of the run depends on."""
    size = round(math.log2(max(math.prod(facts["latent"][2:]), 1)))
    return Conditions(facts["sampler"], facts["guided"], size, patches_identity(facts["model"]))


def from_profile(profile: ModelProfile, facts: Facts) -> tuple[Learned | None, str]:
    """What fits the run of a profile, and what to call it; or None and why there is none."""
    kept, sigmas = kept_under(facts), facts["sigmas"]
    found = profile.find(kept, sigmas)
    if found is None:
        return None, "the profile holds nothing for this sampler, guidance, size and schedule: use mode learn"
    if found is profile.exact(kept, sigmas):
        pictures = "one picture" if found.recording.runs == 1 else f"{found.recording.runs} pictures"
        return found, f"learned from {pictures}"
    return found, ADAPTED


def model_of(facts: Facts) -> tuple[str, str]:
    """Name and identity of the model that is sampled."""
    return model_name(facts["model"].model.diffusion_model), model_identity(facts["model"])
