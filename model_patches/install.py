"""apply_cache(): a model with a cache on it.

Three wrappers, nothing else: OUTER_SAMPLE brackets a run and owns its session, PREDICT_NOISE is the evaluation clock,
APPLY_MODEL is one model call. The clone holds only the immutable method; a run's state lives in its session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import comfy.patcher_extension
from comfy.model_patcher import ModelPatcher
from torch import nn

from ..cache_core.method import CacheMethod, Plan
from ..cache_core.report import RunReport
from ..cache_core.session import Judge
from ..cache_core.storage import CacheDevice
from .architecture import unwrapped
from .architectures import identify, model_name
from .latent import Latent
from .live_run import LiveRun
from .outputs import OutputInterception
from .samplers import one_evaluation_a_step, undisturbed
from .variants import Facts, run_facts

KEY = "stepcache"
CORE_CACHES = {"easycache": "EasyCache", "lazycache": "LazyCache"}
"""Wrapper keys of ComfyUI's own caches."""

Wrappers = comfy.patcher_extension.WrappersMP


class ConflictingCache(ValueError):
    """The model already carries a cache."""


def apply_cache(
    model: ModelPatcher,
    method: CacheMethod,
    listener: Callable[[RunReport], None] | None = None,
    cache_device: CacheDevice = "auto",
    settings: Mapping[str, Any] | None = None,
    messages: tuple[str, ...] = (),
    at_start: Callable[[Facts], Plan] | None = None,
) -> ModelPatcher:
    """A clone of `model` that samples with `method`.

    Args:
        listener: called with the run's report after every evaluation and, with `finished` set, at the end of each run.
        cache_device: where cached tensors are kept.
        settings, messages: shown in the report.
        at_start: called when a run starts with the facts of it; gives the plan of that run. What it always
            computes must be no more than `method` does, by which the model's blocks are checked.

    Raises:
        ConflictingCache: the model already carries a cache, ours or ComfyUI's.
        ValueError: the model has too few blocks for the method.
    """
    refuse_other_caches(model.wrappers)
    network = model.model.diffusion_model
    refuse_too_few_blocks(network, method)
    plan = Plan(method, dict(settings or {}), messages)
    patch = CachePatch(model_name(network), listener, cache_device, plan, at_start)
    cached = model.clone()
    cached.add_wrapper_with_key(Wrappers.OUTER_SAMPLE, KEY, patch.outer_sample)
    cached.add_wrapper_with_key(Wrappers.PREDICT_NOISE, KEY, patch.predict_noise)
    cached.add_wrapper_with_key(Wrappers.APPLY_MODEL, KEY, patch.apply_model)
    return cached


def without_cache(model: ModelPatcher) -> ModelPatcher | None:
    """A clone of a cached model that is the same but for our cache; None if there is none on it."""
    if not model.get_wrappers(Wrappers.OUTER_SAMPLE, KEY):
        return None
    plain = model.clone()
    for kind in (Wrappers.OUTER_SAMPLE, Wrappers.PREDICT_NOISE, Wrappers.APPLY_MODEL):
        plain.remove_wrappers_with_key(kind, KEY)
    return plain


def refuse_too_few_blocks(model: nn.Module, method: CacheMethod) -> None:
    architecture = identify(model)
    if architecture is None:
        return
    blocks = sum(1 for _ in architecture.blocks(unwrapped(model)))
    always = max(method.boundary.head, architecture.always_run) + method.boundary.tail
    if always >= blocks:
        raise ValueError(
            f"{method.name} always computes {always} blocks, but this model has {blocks}: nothing is left to skip. "
            "Choose a method or setting that computes fewer."
        )


def refuse_other_caches(wrappers: Mapping[str, Mapping[str, list]], ours: int = 0) -> None:
    """Raise if the wrappers (by type and key) hold ComfyUI's cache, or more than `ours` caches of this pack."""
    counts = {key: len(functions) for by_key in wrappers.values() for key, functions in by_key.items()}
    found = [name for key, name in CORE_CACHES.items() if key in counts]
    found += ["another StepCache node"] if counts.get(KEY, 0) > ours else []
    if found:
        raise ConflictingCache(
            f"This model already carries {found[0]}. Two caches on one model would decide against each other: "
            "remove or bypass one of them."
        )


@dataclass(frozen=True)
class CachePatch:
    """The wrappers of one cache node; holds settings, no state."""

    model_name: str
    listener: Callable[[RunReport], None] | None
    cache_device: CacheDevice
    plan: Plan
    at_start: Callable[[Facts], Plan] | None = None

    def outer_sample(self, executor, noise, latent_image, sampler, sigmas, *args, **kwargs):
        guider = executor.class_obj
        original = guider.model_options
        wrappers = original["transformer_options"]["wrappers"]
        refuse_other_caches(wrappers, ours=1)
        masked = (args[0] if args else kwargs.get("denoise_mask")) is not None
        facts = run_facts(guider, sigmas.tolist(), tuple(noise.shape), masked, sampler)
        counted = one_evaluation_a_step(sampler) and undisturbed(wrappers, KEY)
        live = self.live_run(guider, sigmas.tolist(), facts, counted)
        guider.model_options = comfy.patcher_extension.copy_nested_dicts(original)
        guider.model_options["transformer_options"][KEY] = live
        try:
            sampled = executor(noise, latent_image, sampler, sigmas, *args, **kwargs)
            live.completed()
            return sampled
        finally:
            guider.model_options = original
            live.end()

    def live_run(
        self, guider, sigmas: list[float], facts: Facts, counted: bool = False, judge: Judge | None = None
    ) -> LiveRun:
        """The state of a run of `guider`."""
        plan = self.at_start(facts) if self.at_start else self.plan
        report = RunReport(plan.method.name, self.model_name, plan.settings, list(plan.messages))
        model_sampling = guider.model_patcher.get_model_object("model_sampling")

        def percent_to_sigma(percent: float) -> float:
            return float(model_sampling.percent_to_sigma(percent))

        return LiveRun(plan, report, sigmas, percent_to_sigma, self.cache_device, self.listener, counted, judge)

    def predict_noise(self, executor, x, timestep, model_options, *args, **kwargs):
        live = model_options.get("transformer_options", {}).get(KEY)
        if live is None:
            return executor(x, timestep, model_options, *args, **kwargs)
        live.session.next_evaluation(timestep)
        latent = Latent(executor.class_obj.inner_model, x, timestep)

        def forward():
            return live.recorded(latent, executor(x, timestep, model_options, *args, **kwargs))

        call = live.open_guided_call(executor.class_obj, x)
        if not call:
            return forward()
        refusal = live.refusal_of_guided(executor.class_obj, model_options)
        return OutputInterception(live.method).run(call, latent, forward, refusal)

    def apply_model(self, executor, x, t, *args, **kwargs):
        options = args[3] if len(args) > 3 else kwargs.get("transformer_options", {})
        live = options.get(KEY)
        call = live and live.open_call(
            executor.class_obj, x, options, control=args[2] if len(args) > 2 else kwargs.get("control")
        )
        if not call:
            return executor(x, t, *args, **kwargs)
        latent = Latent(executor.class_obj, x, t)
        return live.interception(executor.class_obj).run(call, latent, lambda: executor(x, t, *args, **kwargs))
