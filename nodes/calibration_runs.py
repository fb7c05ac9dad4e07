"""The runs that Calibrate makes, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import comfy.utils
import numpy as np
from comfy.model_management import throw_exception_if_processing_interrupted
from comfy.model_patcher import ModelPatcher
from torch import Tensor

from ..cache_core.fitting import fitted_entries
from ..cache_core.forecasting import ForecastPlan
from ..cache_core.gains import measured_gains
from ..cache_core.learned import Learned, ModelProfile, evaluations_for
from ..cache_core.measuring import Changes
from ..cache_core.method import Plan
from ..cache_core.methods import measuring, reusing_once, stepcache
from ..cache_core.recording import Recorder, Recording, Sketch
from ..cache_core.tuning import better_plans, candidates, free_factors
from ..model_patches.install import apply_cache
from ..model_patches.learning import kept_under, model_of
from ..model_patches.profile_folder import user_profiles
from ..model_patches.variants import Facts
from .auto import why_not
from .sampling import difference, sampled, squared_error

ALL_PLANNED = 50
"""Runs of at most so many steps have a plan for every number of them."""

NOT_RECORDED = (
    "Nothing can be learned of this run: an output was not finite, or the sampler left out a step of its schedule. Check that "
    "the model makes pictures, or take another sampler (euler)."
)


@dataclass(frozen=True)
class Scene:
    """What is sampled, as a KSampler is told."""

    positive: list
    negative: list
    latent: dict[str, Any]
    steps: int
    cfg: float
    sampler: str
    scheduler: str

    def sample(self, model, seed: int, on_step: Callable[[], None]) -> Tensor:
        """The final latent."""
        return sampled(
            model, self.latent, seed, self.steps, self.cfg, self.sampler, self.scheduler, self.positive, self.negative,
            callback=lambda *_: on_step(),
        )  # fmt: skip


class CalibrationRuns:
    """Runs of one scene, and what they add up to.

    What was recorded is kept after every run, so a stop loses one run. What was learned before from more pictures gives way
    when all runs are made, and a plan that was tuned before to a better one.
    """

    def __init__(self, model, scene: Scene, progress: comfy.utils.ProgressBar):
        self.model, self.scene, self.progress = model, scene, progress
        self.facts: Facts = {}
        self.recordings: list[Recording] = []
        self.runs: list[list[Changes]] = []
        self.pictures: dict[int, Tensor] = {}  # latents by seed
        self.learned: Learned  # set by the first run
        self.profile = ModelProfile("", "")

    def record(self, seed: int) -> None:
        """Sample a picture in full, watching."""
        changes: dict[int, Changes] = {}
        method = measuring(lambda order: changes.setdefault(order, Changes()))
        recorder: list[Recorder] = []

        def at_start(facts: Facts) -> Plan:
            self.facts = facts
            refuse_hopeless(self.model, facts)
            recorder.append(Recorder(facts["sigmas"], facts["flow"]))
            return Plan(method, {}, recorder=recorder[-1])

        cached = apply_cache(self.model, method, at_start=at_start)
        picture = self.sample(cached, seed)
        recording = recorder[-1].recording()
        if recording is None:
            raise ValueError(NOT_RECORDED)
        self.pictures[seed] = picture
        self.recordings.append(recording)
        self.runs.append([changes[order] for order in sorted(changes)][:2])
        self.keep(self.merged())

    def inject(self) -> None:
        """Measure how much of an error made at a step is left at the end, by holding one output for one step."""
        seed, first = next(iter(self.pictures.items()))

        def left(step: int) -> float:
            held = apply_cache(self.model, reusing_once(step, self.facts["sees_branches"]))
            return math.sqrt(squared_error(self.sample(held, seed), first))

        self.keep(replace(self.merged(), gains=measured_gains(self.recordings[0], left)))

    def fit(self) -> None:
        """Plan for the numbers of steps that may be asked for, and fit the figures of other methods."""
        planned = self.learned
        for computed in planned_counts(planned.recording.steps):
            throw_exception_if_processing_interrupted()  # many steps take a while
            planned = planned.with_plan(planned.plan(computed))
        self.learned = planned
        entries = fitted_entries(self.runs, self.facts["sigmas"], self.scene.sampler)
        self.update(
            lambda profile: replace(profile.with_learned(planned), calibrations={**profile.calibrations, **entries})
        )

    def tune(self, speedup: float, trials: int) -> None:
        """Try out plans for a speed on the pictures, fit the forecasts of the best, and keep it.

        Args:
            speedup: nothing is tried if all steps are computed for it.
        """
        learned = self.learned
        total = learned.recording.steps  # some schedulers make one more than the scene asks for
        computed = evaluations_for(speedup, total)
        if computed == total:
            return
        recordings = [replace(each, gains=learned.recording.gains) for each in self.recordings]
        plans = list(candidates(recordings, computed, trials, throw_exception_if_processing_interrupted))
        if computed in learned.tuned_plans:  # by an earlier calibration
            plans.insert(0, learned.plan(computed))
        self.expect(len(plans) + max(len(free_factors(plan.segments)) for plan in plans) + 1)

        for better in better_plans(plans, partial(self.left_behind, Sketch())):
            learned = learned.with_plan(better)
            self.update(lambda profile, learned=learned: profile.with_learned(learned))

    def left_behind(self, sketch: Sketch, plan: ForecastPlan) -> list[np.ndarray]:
        """By picture, a sketch (E) of how its latent by a plan differs from the exact one."""
        cached = apply_cache(self.model, stepcache(plan, per_branch=self.facts["sees_branches"]))
        differences = (difference(self.sample(cached, seed), exact) for seed, exact in self.pictures.items())
        return [sketch(each).cpu().double().numpy() for each in differences]

    def sample(self, cached: ModelPatcher, seed: int) -> Tensor:
        """The final latent, shown as progress."""
        return self.scene.sample(cached, seed, partial(self.progress.update, 1))

    def expect(self, trials: int) -> None:
        """Show the progress of what is left: so many runs of every picture."""
        steps = trials * len(self.pictures) * self.scene.steps
        self.progress.update_absolute(self.progress.current, self.progress.current + steps)

    def merged(self) -> Recording:
        return reduce(Recording.merged, self.recordings)

    def keep(self, recording: Recording) -> None:
        """In place of what was learned before from as many pictures or fewer; plans that were tuned stay."""

        def with_more(profile: ModelProfile) -> ModelProfile:
            known = profile.exact(kept_under(self.facts), recording.sigmas)
            self.learned = Learned(kept_under(self.facts), recording, known.tuned_plans if known else {})
            return profile if known and known.recording.runs > recording.runs else profile.with_learned(self.learned)

        self.update(with_more)

    def update(self, change: Callable[[ModelProfile], ModelProfile]) -> None:
        self.profile = user_profiles().update(*model_of(self.facts), change)

    def summary(self) -> str:
        """What was found, in a few lines."""
        learned = self.profile.learned[-1]
        recording = learned.recording
        pictures = "one picture" if recording.runs == 1 else f"{recording.runs} pictures"
        lines = [f"{self.profile.model}: {pictures} of {recording.steps} steps"]
        lines += [
            f"tuned for {recording.steps / count:.1f}x: {count} steps computed" for count in sorted(learned.tuned_plans)
        ]
        for name, entry in self.profile.calibrations.items():
            if "threshold" in entry:
                lines.append(f"{name}: threshold {entry['threshold']:g} for 1.5x")
        if recording.gains:
            lines.append(f"gains from {recording.gains[1]:.3g} at the start to {recording.gains[-1]:.3g}")
        return "\n".join(lines)


def refuse_hopeless(model, facts: Facts) -> None:
    problem = why_not(model, facts)
    if problem:
        raise ValueError(f"There is nothing to calibrate: {problem}.")


def planned_counts(steps: int) -> Sequence[int]:
    """Numbers of steps to make plans of: all, or for many steps, whose plans take seconds, those of speeds by quarters."""
    if steps <= ALL_PLANNED:
        return range(2, steps)
    return sorted({evaluations_for(1 + quarters / 4, steps) for quarters in range(1, 17)})
