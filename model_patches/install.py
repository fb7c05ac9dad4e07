"""apply_cache(): a model with a cache on it.

Three wrappers, nothing else: OUTER_SAMPLE brackets a run and owns its session, PREDICT_NOISE is the evaluation clock,
APPLY_MODEL is one model call. The clone holds only the immutable method; a run's state lives in its session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import comfy.model_management
import comfy.patcher_extension
from comfy.model_patcher import ModelPatcher
from torch import nn

from ..cache_core.method import CacheMethod, Level, Plan
from ..cache_core.report import RunReport
from ..cache_core.schedule import part_covered
from ..cache_core.session import Branch, CacheSession, ModelCall
from ..cache_core.storage import CacheDevice, Storage
from ..cache_core.types import Run
from .architecture import Architecture, unwrapped
from .architectures import identify
from .branches import branches_of, guided_branch
from .fallback import LearningInterception
from .intercept import BlockInterception
from .latent import Latent
from .outputs import OutputInterception
from .samplers import looks_into_guidance, one_evaluation_a_step, undisturbed
from .variants import Facts, run_facts

KEY = "stepcache"
CORE_CACHES = {"easycache": "EasyCache", "lazycache": "LazyCache"}
"""Wrapper keys of ComfyUI's own caches."""

COMPUTES = "computes"
"""Name of the setting in the report that says which steps will be computed."""

INTO_GUIDANCE = "this sampler looks at what guidance is made of (CFG++), so nothing is reused"
CURE_OF_CFG_PP = "take a sampler without cfg_pp, or a cache that skips blocks or the model's output"

log = logging.getLogger("stepcache")

Wrappers = comfy.patcher_extension.WrappersMP


Interception = BlockInterception | LearningInterception | OutputInterception


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
        at_start: called when a run starts with the facts of it; gives the method, settings and messages for that run. The
            boundary must be that of `method`.

    Raises:
        ConflictingCache: the model already carries a cache, ours or ComfyUI's.
        ValueError: the model has too few blocks for the method.
    """
    refuse_other_caches(model.wrappers)
    architecture = identify(model.model.diffusion_model)
    if architecture:
        refuse_too_few_blocks(model.model.diffusion_model, architecture, method)
    name = architecture.name if architecture else type(unwrapped(model.model.diffusion_model)).__name__
    patch = CachePatch(name, listener, cache_device, Plan(method, dict(settings or {}), messages), at_start)
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


def refuse_too_few_blocks(model: nn.Module, architecture: Architecture, method: CacheMethod) -> None:
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
        facts = run_facts(guider, sigmas.tolist(), tuple(noise.shape), masked)
        live = LiveRun(self, guider, sigmas, facts, one_evaluation_a_step(sampler) and undisturbed(wrappers, KEY))
        guider.model_options = comfy.patcher_extension.copy_nested_dicts(original)
        guider.model_options["transformer_options"][KEY] = live
        try:
            return executor(noise, latent_image, sampler, sigmas, *args, **kwargs)
        finally:
            guider.model_options = original
            live.end()

    def predict_noise(self, executor, x, timestep, model_options, *args, **kwargs):
        live = model_options.get("transformer_options", {}).get(KEY)
        if live is None:
            return executor(x, timestep, model_options, *args, **kwargs)
        live.session.next_evaluation(timestep)
        call = live.open_guided_call(executor.class_obj, x)
        if not call:
            return executor(x, timestep, model_options, *args, **kwargs)
        latent = Latent(executor.class_obj.inner_model, x, timestep)
        refusal = live.refusal_of_guided(executor.class_obj, model_options)
        guided = OutputInterception(live.method)
        return guided.run(call, latent, lambda: executor(x, timestep, model_options, *args, **kwargs), refusal)

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


class LiveRun:
    """A run's session together with what of ComfyUI it needs; found by the wrappers in `transformer_options`.

    It has to be an object of our own: ComfyUI copies dicts and lists in there at every call.
    """

    def __init__(self, patch: CachePatch, guider, sigmas, facts: Facts, counted: bool):
        plan = patch.at_start(facts) if patch.at_start else patch.plan
        method = self.method = plan.method
        report = RunReport(method.name, patch.model_name, plan.settings, list(plan.messages))
        percent_to_sigma = guider.model_patcher.get_model_object("model_sampling").percent_to_sigma
        listed = sigmas.tolist()
        before, fraction = part_covered(listed, lambda percent: float(percent_to_sigma(percent)))
        run = Run(
            tuple(listed),
            start_sigma=float(percent_to_sigma(method.start_percent)),
            end_sigma=float(percent_to_sigma(method.end_percent)),
            fraction=fraction,
            before=before,
        )
        foretold = None if method.refusal(run) else method.foretold(run)
        if foretold:
            report.settings = {**report.settings, COMPUTES: ranges(foretold)}
        self.interceptions: dict[int, Interception] = {}
        storage = Storage(patch.cache_device, spare_memory)
        self.session = CacheSession(method, run, report, storage, patch.listener, counted)

    def interception(self, base) -> Interception:
        """What intercepts a model's calls in this run; there may be a second model."""
        key, found = id(base), self.interceptions.get(id(base))
        if found is None or (isinstance(found, BlockInterception) and found.misfit):
            self.interceptions[key] = self._intercepting(base.diffusion_model, known=found is None)
        return self.interceptions[key]

    def _intercepting(self, model: nn.Module, known: bool) -> Interception:
        if self.method.boundary.level is Level.MODEL_OUTPUT:
            return OutputInterception(self.method)
        architecture = identify(model) if known else None
        if architecture:
            return BlockInterception(model, architecture, self.method)
        return LearningInterception(model, self.method, self.session.report.message)

    def open_call(self, base, x, options, control) -> ModelCall | None:
        """A call of one model, or None if it must simply run."""
        if self.method.boundary.level is Level.GUIDED_PREDICTION:
            return None
        exchanged = self.interception(base).exchanges_rows
        branches: list[Branch] = branches_of(base, x, options, control, exchanged)
        return self.session.open_call(branches) if branches else None

    def open_guided_call(self, guider, x) -> ModelCall | None:
        """A call of all models and of guidance, or None where that level is not cached."""
        if self.method.boundary.level is not Level.GUIDED_PREDICTION:
            return None
        self.session.read()
        return self.session.open_call([guided_branch(guider, x, self.session.sigma_now)])

    def refusal_of_guided(self, guider, model_options) -> str | None:
        """Why a guided prediction is computed whatever the method proposes, or None. The user is told."""
        if not looks_into_guidance(model_options, guider.model_options):
            return None
        report = self.session.report
        report.settings = {name: value for name, value in report.settings.items() if name != COMPUTES}
        report.message(f"{INTO_GUIDANCE}: {CURE_OF_CFG_PP}")
        return INTO_GUIDANCE

    def end(self) -> None:
        self.session.end()
        self.interceptions.clear()
        log.info(self.session.report.log_line())


def spare_memory(device) -> float:
    """Bytes still free on a device beyond what ComfyUI wants for inference."""
    free: Any = comfy.model_management.get_free_memory(device)
    return float(free - comfy.model_management.minimum_inference_memory())


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in few words.

    >>> ranges((0, 1, 2, 5, 7, 8))
    '0-2 5 7-8'
    """
    words: list[list[int]] = []
    for number in numbers:
        if words and number == words[-1][-1] + 1:
            words[-1] = [words[-1][0], number]
        else:
            words.append([number])
    return " ".join("-".join(map(str, word)) for word in words)
