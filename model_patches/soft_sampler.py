"""SoftCache as a sampler: Euler that skips blocks, and parts of the schedule, where little changes.

It brings its own cache: the session of a run begins and ends with the sampler's loop, and the loop is its clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import comfy.patcher_extension
import comfy.samplers
import torch
from comfy.model_sampling import CONST
from torch import Tensor
from tqdm.auto import tqdm

from ..cache_core.method import Plan
from ..cache_core.methods import softcache
from ..cache_core.report import RunReport
from ..cache_core.schedule import StepClock
from ..cache_core.stepping import AdaptiveSchedule, Landing, StepRule, falling
from ..cache_core.storage import CacheDevice
from .architectures import model_name
from .branches import changes
from .install import KEY, CachePatch, Wrappers, refuse_other_caches, refuse_too_few_blocks

Listener = Callable[[RunReport], None]

NO_FLOW = (
    "SoftCache Sampler steps through the sigmas of flow models (Flux, Wan, Qwen-Image, SD3 ...), and this model has others. "
    "Use a cache node on the model and another sampler, such as EasyCache with euler."
)
SOFT_MASK = "the inpainting mask changes with every step: steps keep the schedule's length"


@dataclass(frozen=True)
class SoftCache:
    """The settings of a sampler; holds no state.

    Args:
        extrapolation: how much of the slope a reused result follows, 0 to hold it.

    Raises:
        ValueError: `extrapolation` is out of its range.
    """

    rule: StepRule
    extrapolation: float = 1.0
    cache_device: CacheDevice = "auto"
    listener: Listener | None = None

    def __post_init__(self):
        if not (math.isfinite(self.extrapolation) and self.extrapolation >= 0):
            raise ValueError(f"extrapolation is {self.extrapolation:g}. Use a number from 0 up.")

    def sampler(self) -> comfy.samplers.KSAMPLER:
        """A SAMPLER of ComfyUI."""
        return comfy.samplers.KSAMPLER(sample_softcache, {"settings": self})


@torch.no_grad()
def sample_softcache(
    model, x: Tensor, sigmas: Tensor, extra_args=None, callback=None, disable=None, *, settings: SoftCache
) -> Tensor:
    """Sample from the first to the last of `sigmas`, visiting as many in between as it takes.

    Args:
        model: ComfyUI's denoiser; `model.inner_model` is the guider.
        x: (B, ...), noised to the first sigma.
        sigmas: (steps + 1,), falling; the native schedule.

    Raises:
        ConflictingCache: the model carries a cache already.
        ValueError: it is no flow model, has too few blocks, or the sigmas rise.
    """
    if len(sigmas) < 2:
        return x
    run = SoftRun(settings, model, sigmas, dict(extra_args or {}))
    try:
        return run.sample(x, callback, disable)
    finally:
        run.end()


class SoftRun:
    """One run of the sampler."""

    def __init__(self, settings: SoftCache, model, sigmas: Tensor, extra_args: dict[str, Any]):
        guider = model.inner_model
        options = comfy.patcher_extension.copy_nested_dicts(extra_args["model_options"])
        self.transformer_options = options.setdefault("transformer_options", {})
        refuse_other_caches(self.transformer_options.get("wrappers", {}))
        sampling = guider.inner_model.model_sampling
        if not isinstance(sampling, CONST):
            raise ValueError(NO_FLOW)
        self.native = falling(sigmas.tolist())
        soft_mask = extra_args.get("denoise_mask") is not None and "denoise_mask_function" in options
        rule = replace(settings.rule, max_stride=1.0) if soft_mask else settings.rule
        self.steps = AdaptiveSchedule(rule, self.native, changes(guider.conds), shift_of(sampling))
        method = softcache(rule.threshold, settings.extrapolation)
        network = guider.inner_model.diffusion_model
        refuse_too_few_blocks(network, method)
        plan = Plan(method, {"threshold": rule.threshold}, (SOFT_MASK,) if soft_mask else ())
        patch = CachePatch(model_name(network), settings.listener, settings.cache_device, plan)
        self.live = patch.live_run(guider, self.native, {}, judge=self.steps)
        self.transformer_options[KEY] = self.live
        comfy.patcher_extension.add_wrapper_with_key(
            Wrappers.APPLY_MODEL, KEY, patch.apply_model, self.transformer_options
        )
        self.model, self.schedule = model, sigmas
        self.scheduled: list[float] = []  # the values of `schedule`, once it is of this run
        self.extra_args = {**extra_args, "model_options": options}

    @property
    def session(self):
        return self.live.session

    def sample(self, x: Tensor, callback, disable) -> Tensor:
        with Progress(self.native, callback, disable) as progress:
            while not self.steps.ended:
                here = self._schedule()[self.steps.index]
                denoised = self._evaluate(x, here)
                landing = self._land()
                progress.show(landing, {"x": x, "sigma": here, "sigma_hat": here, "denoised": denoised})
                x = x + (x - denoised) / here * (self._schedule()[self.steps.index] - here)
        return x

    def end(self) -> None:
        """However the run ended."""
        if self.steps.ended:
            self.session.report.steps_saved = self.steps.native_steps - self.session.report.evaluations
        self.live.end()

    def _schedule(self) -> Tensor:
        """The nodes visited and to be visited, where ComfyUI and other nodes look for them.

        Made anew only where they have moved, as putting them on the device waits for it.
        """
        if self.steps.sigmas != self.scheduled:
            self.scheduled = list(self.steps.sigmas)
            self.schedule = torch.tensor(self.scheduled, dtype=self.schedule.dtype, device=self.schedule.device)
            self.transformer_options["sample_sigmas"] = self.schedule
        return self.schedule

    def _evaluate(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The denoised latent, all of it computed or all of it with blocks reused."""
        at = sigma * x.new_ones([x.shape[0]])
        self.session.next_evaluation(at)
        denoised = self.model(x, at, **self.extra_args)
        if self.session.disagreed:
            self.session.repeat_evaluation()
            denoised = self.model(x, at, **self.extra_args)
        return denoised

    def _land(self) -> Landing:
        evaluation = self.session.report.trace[-1]
        landing = self.steps.land(evaluation.reused)
        evaluation.landing, evaluation.stride, evaluation.headroom = landing.sigma, landing.stride, landing.headroom
        return landing


class Progress:
    """A run's progress in steps of the native schedule, which is smooth and ends at 100 %, whatever is skipped."""

    def __init__(self, native: list[float], callback, disable):
        self.clock, self.callback = StepClock(native), callback
        self.bar = tqdm(total=self.clock.total, disable=disable)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception) -> None:
        self.bar.close()

    def show(self, landing: Landing, seen: dict[str, Any]) -> None:
        """A step was taken; `seen` is for the callback, which hears the native step that lies before the landing."""
        done = max(int(self.clock.step(landing.sigma).position), 1)
        if self.callback is not None:
            self.callback({**seen, "i": done - 1})
        self.bar.update(done - self.bar.n)


def shift_of(sampling) -> float:
    """s of sigma = s u / (1 + (s - 1) u), the shift of a flow model's schedule.

    >>> from types import SimpleNamespace
    >>> round(shift_of(SimpleNamespace(percent_to_sigma=lambda percent: 3 * (1 - percent) / (1 + 2 * (1 - percent)))), 6)
    3.0
    """
    half = float(sampling.percent_to_sigma(0.5))
    return half / (1 - half)
