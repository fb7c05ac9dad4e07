"""Calibrate: sample a model a few times and write down all that the other nodes can use."""

from __future__ import annotations

from typing import ClassVar

import comfy.samplers
import comfy.utils
from comfy_api.latest import io, ui

from ..cache_core.gains import INJECTED
from ..cache_core.learned import evaluations_for
from ..model_patches.profile_folder import user_profiles
from .auto import ProfileType
from .base import CATEGORY
from .calibration_runs import CalibrationRuns, Scene
from .inputs import refuse_out_of_range

SEEDS = 2**64
"""How many there are; after the last comes the first."""


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
                    max=SEEDS - 1,
                    control_after_generate=io.ControlAfterGenerate.fixed,  # else every prompt would calibrate anew
                    tooltip="Of the first picture.",
                ),
                io.Int.Input("steps", default=28, min=4, max=1000, tooltip="As in your workflow."),
                io.Float.Input("cfg", default=3.0, min=0.0, max=100.0, step=0.1, tooltip="As in your workflow."),
                io.Combo.Input("sampler_name", options=comfy.samplers.SAMPLER_NAMES, tooltip="As in your workflow."),
                io.Combo.Input("scheduler", options=comfy.samplers.SCHEDULER_NAMES, tooltip="As in your workflow."),
                io.Int.Input("runs", default=4, min=1, max=16, tooltip="Pictures, each of another seed."),
                io.Float.Input(
                    "speedup",
                    default=2.0,
                    min=1.0,
                    max=5.0,
                    step=0.1,
                    round=0.01,
                    tooltip="The speed at which you will use StepCache: the plan for it is tuned. 1 tunes none.",
                ),
                io.Int.Input(
                    "trials",
                    default=24,
                    min=0,
                    max=1000,
                    tooltip="Plans to try out for it at most, each on every picture; the forecasts of the best are then fitted "
                    "to the pictures. 0 tries and fits none.",
                ),
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
    def execute(cls, model, positive, negative, latent_image, seed, steps, cfg, sampler_name, scheduler, runs, speedup,
                trials, measure_gains) -> io.NodeOutput:  # fmt: skip
        numbers = dict(seed=seed, steps=steps, cfg=cfg, runs=runs, speedup=speedup, trials=trials)
        refuse_out_of_range(cls.define_schema().inputs, numbers)
        user_profiles().refuse_if_not_writable()
        scene = Scene(positive, negative, latent_image, steps, cfg, sampler_name, scheduler)
        tries = trials if speedup > 1 else 0
        tuning = tries + 2 * evaluations_for(speedup, steps) if tries else 0  # at most
        pictures = runs * (1 + tuning) + (min(INJECTED, steps - 1) if measure_gains else 0)
        calibration = CalibrationRuns(model, scene, comfy.utils.ProgressBar(pictures * steps))
        for n in range(runs):
            calibration.record((seed + n) % SEEDS)
        if measure_gains:
            calibration.inject()
        calibration.fit()
        if tries:
            calibration.tune(speedup, tries)
        calibration.progress.update_absolute(calibration.progress.total)
        return io.NodeOutput(calibration.profile, calibration.summary(), ui=ui.PreviewText(calibration.summary()))
