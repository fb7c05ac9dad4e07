"""Calibrate: sample a model a few times and write down all that the other nodes can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import comfy.sample
import comfy.samplers
import comfy.utils
from comfy_api.latest import io, ui
from torch import Tensor

from ..cache_core.fitting import fitted_entries, gains_at
from ..cache_core.learned import Learned, ModelProfile
from ..cache_core.measuring import Changes
from ..cache_core.method import Plan
from ..cache_core.methods import measuring, reusing_once
from ..cache_core.recording import Recorder, Recording
from ..model_patches.install import apply_cache
from ..model_patches.profile_folder import user_profiles
from ..model_patches.variants import Facts
from .auto import ProfileType, kept_under, model_of, why_not
from .base import CATEGORY

INJECTED = 8
"""Steps at which a gain is measured; between them it is interpolated."""


class Calibrate(io.ComfyNode):
    title: ClassVar[str] = "Calibrate"

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheCalibrate",
            display_name=cls.title,
            category=CATEGORY,
            description="Samples a few pictures in full and writes a profile of the model: plans for StepCache at every "
            "speed, and figures for TeaCache, MagCache and DPCache, which use them from then on.",
            search_aliases=["calibrate", "profile", "coefficients", "cache", "step cache", "learn"],
            is_output_node=True,
            inputs=[
                io.Model.Input("model", tooltip="Without a cache on it. LoRAs may be."),
                io.Conditioning.Input("positive", tooltip="A prompt of the kind that you use."),
                io.Conditioning.Input("negative", tooltip="As in your workflow."),
                io.Latent.Input("latent_image", tooltip="An empty latent of the size that you use."),
                io.Int.Input(
                    "seed",
                    default=0,
                    min=0,
                    max=2**64 - 1,
                    control_after_generate=True,
                    tooltip="Of the first picture.",
                ),
                io.Int.Input("steps", default=28, min=4, max=1000, tooltip="As in your workflow."),
                io.Float.Input("cfg", default=3.0, min=0.0, max=100.0, step=0.1, tooltip="As in your workflow."),
                io.Combo.Input("sampler_name", options=comfy.samplers.SAMPLER_NAMES, tooltip="As in your workflow."),
                io.Combo.Input("scheduler", options=comfy.samplers.SCHEDULER_NAMES, tooltip="As in your workflow."),
                io.Int.Input("runs", default=2, min=1, max=16, tooltip="Pictures, each of another seed."),
                io.Boolean.Input(
                    "measure_gains",
                    default=False,
                    advanced=True,
                    tooltip=f"Measure how much an error grows until the end, by {INJECTED} more runs, instead of estimating "
                    "it. The estimate is usually as good.",
                ),
            ],
            outputs=[
                ProfileType.Output(display_name="profile", tooltip="For StepCache or Save Profile."),
                io.String.Output(display_name="summary", tooltip="What was found, in a few lines."),
            ],
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, model, positive, negative, latent_image, seed, steps, cfg, sampler_name, scheduler, runs,
                measure_gains) -> io.NodeOutput:  # fmt: skip
        scene = Scene(positive, negative, latent_image, steps, cfg, sampler_name, scheduler)
        pictures = runs + (min(INJECTED, steps - 1) if measure_gains else 0)
        calibration = Calibration(model, scene, comfy.utils.ProgressBar(pictures * steps))
        for n in range(runs):
            calibration.record(seed + n)
        if measure_gains:
            calibration.inject(seed)
        calibration.finish()
        return io.NodeOutput(calibration.profile, calibration.summary(), ui=ui.PreviewText(calibration.summary()))


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
        image = comfy.sample.fix_empty_latent_channels(model, self.latent["samples"])
        noise = comfy.sample.prepare_noise(image, seed, self.latent.get("batch_index"))
        return comfy.sample.sample(
            model, noise, self.steps, self.cfg, self.sampler, self.scheduler, self.positive, self.negative, image,
            noise_mask=self.latent.get("noise_mask"), seed=seed, disable_pbar=not comfy.utils.PROGRESS_BAR_ENABLED,
            callback=lambda *_: on_step(),
        )  # fmt: skip


class Calibration:
    """Runs of one scene, and what they add up to. What was recorded is kept after every run, so a stop loses one run."""

    def __init__(self, model, scene: Scene, progress: comfy.utils.ProgressBar):
        self.model, self.scene, self.progress = model, scene, progress
        self.facts: Facts = {}
        self.recordings: list[Recording] = []
        self.runs: list[list[Changes]] = []
        self.first: Tensor | None = None
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
        picture = self.scene.sample(cached, seed, partial(self.progress.update, 1))
        recording = recorder[-1].recording()
        if recording is None:
            raise ValueError(
                "An output of the model was not finite, so nothing can be learned. Check that it makes pictures."
            )
        self.first = picture if self.first is None else self.first
        self.recordings.append(recording)
        self.runs.append([changes[order] for order in sorted(changes)][:2])
        self.keep(self.merged())

    def inject(self, seed: int) -> None:
        """Measure how much of an error made at a step is left at the end, by holding one output for one step."""
        assert self.first is not None
        recording, steps = self.recordings[0], self.recordings[0].steps
        gains = []
        for step in sorted({1 + round(n * (steps - 2) / (INJECTED - 1)) for n in range(INJECTED)}):
            held = apply_cache(self.model, reusing_once(step))
            off = self.scene.sample(held, seed, partial(self.progress.update, 1)) - self.first
            made = recording.distance(step - 1, step) * (recording.sigmas[step] - recording.sigmas[step + 1])
            gains.append((step, max(float(off.double().square().mean().sqrt()) / max(made, 1e-12), 1e-6)))
        self.keep(replace(self.merged(), gains=gains_at(gains, steps)))

    def finish(self) -> None:
        """Plan for every number of steps, and fit the figures of other methods."""
        learned = self.profile.exact(kept_under(self.facts), self.facts["sigmas"])
        assert learned is not None
        planned = replace(learned, plans={n: learned.plan(n).steps for n in range(2, learned.recording.steps)})
        entries = fitted_entries(self.runs, self.facts["sigmas"], self.scene.sampler)
        self.update(
            lambda profile: replace(profile.with_learned(planned), calibrations={**profile.calibrations, **entries})
        )

    def merged(self) -> Recording:
        total = self.recordings[0]
        for recording in self.recordings[1:]:
            total = total.merged(recording)
        return total

    def keep(self, recording: Recording) -> None:
        learned = Learned(kept_under(self.facts), recording)
        self.update(lambda profile: profile.with_learned(learned))

    def update(self, change: Callable[[ModelProfile], ModelProfile]) -> None:
        self.profile = user_profiles().update(*model_of(self.facts), change)

    def summary(self) -> str:
        """What was found, in a few lines."""
        learned = self.profile.learned[-1]
        recording = learned.recording
        lines = [f"{self.profile.model}: {recording.runs} pictures of {recording.steps} steps"]
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
