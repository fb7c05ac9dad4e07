"""Recordings of made-up runs, and what drawn ones look like."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from stepcache.cache_core.forecasting import Segment
from stepcache.cache_core.learned import Conditions, KeptPlan, Learned, ModelProfile
from stepcache.cache_core.recording import Recording

few = settings(max_examples=30)


def even(steps: int) -> tuple[float, ...]:
    """Sigmas from 1 to 0."""
    return tuple(1 - step / steps for step in range(steps + 1))


def recorded(outputs, sigmas=None, **values) -> Recording:
    """Of outputs, (T, E)."""
    outputs = np.asarray(outputs, dtype=float)
    return Recording(sigmas or even(len(outputs)), outputs @ outputs.T / outputs.shape[1], **values)


def noisy(steps: int, seed: int = 0) -> np.ndarray:
    """Outputs without any order, (T, 6): the hardest to plan for."""
    return np.random.default_rng(seed).normal(size=(steps, 6))


def smooth(steps: int, seed: int = 0) -> np.ndarray:
    """Outputs that change steadily and faster at both ends, (T, 6), as those of models do."""
    t, draw = np.linspace(0, 1, steps)[:, None], np.random.default_rng(seed).normal(size=(3, 6))
    return draw[0] + draw[1] * np.exp(-6 * t) + draw[2] * t**3


def straight(steps: int, seed: int = 0) -> np.ndarray:
    """Outputs that are linear in the index of the step, (T, 6)."""
    draw = np.random.default_rng(seed).normal(size=(2, 6))
    return draw[0] + draw[1] * np.arange(steps)[:, None] / steps


def learned(steps: int = 12, sampler: str = "ode", guided: bool = False, size: int = 8, patches: str = "", **values):
    recording = recorded(smooth(steps), values.pop("sigmas", None), **values)
    return Learned(Conditions(sampler, guided, size, patches), recording)


CALIBRATIONS = {
    "teacache": dict(
        name="calibrated", source="a test", steps=4, sampler="euler", coefficients=[1.0, 0.0], fitted_range=[0.0, 1.0],
        threshold=0.1,
    ),
    "magcache": dict(
        name="calibrated", source="a test", steps=4, sampler="euler", ratios={"cond": [1.0, 0.9, 0.9, 0.8]}, threshold=0.1,
        max_consecutive=4, retention=0.2, whole=True,
    ),
    "dpcache": dict(
        name="calibrated", source="a test", steps=4, sampler="euler", sigmas=list(even(4)), plans={"3": [0, 1, 2]},
    ),
}  # fmt: skip


def full_profile(steps: int = 4) -> ModelProfile:
    """With something in every field."""
    recording = recorded(smooth(steps), gains=tuple(float(n) for n in range(steps, 0, -1)), runs=2)
    tuned = (Segment(0, 1), Segment(1, 2), Segment(2, steps, 0.5, -0.25))
    plans = {2: KeptPlan((0, 1)), 3: KeptPlan((0, 1, 2), tuned)}
    return ModelProfile(
        "A Model",
        "0123456789abcdef",
        (learned(3), Learned(Conditions("sde", True, 9, "abcd1234"), recording, plans)),
        CALIBRATIONS,
    )


seeds = st.integers(0, 10**6)
kinds = st.sampled_from([noisy, smooth])
