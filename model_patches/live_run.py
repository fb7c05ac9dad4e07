"""A run's session together with what of ComfyUI it needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import comfy.model_management
from torch import Tensor, nn

from ..cache_core.branch import Branch
from ..cache_core.method import Level, Plan
from ..cache_core.model_call import ModelCall
from ..cache_core.report import RunReport
from ..cache_core.schedule import part_covered
from ..cache_core.session import CacheSession, Judge
from ..cache_core.storage import CacheDevice, Storage
from ..cache_core.types import Run
from .architectures import identify
from .branches import branches_of, guided_branch
from .fallback import LearningInterception
from .intercept import BlockInterception
from .latent import Latent
from .outputs import OutputInterception
from .samplers import looks_into_guidance

COMPUTES = "computes"
"""Name of the setting in the report that says which steps will be computed."""

INTO_GUIDANCE = "this sampler looks at what guidance is made of (CFG++), so nothing is reused"
CURE_OF_CFG_PP = "take a sampler without cfg_pp, or a cache that skips blocks or the model's output"

log = logging.getLogger("stepcache")

Interception = BlockInterception | LearningInterception | OutputInterception


class LiveRun:
    """A run under a plan; found by the wrappers in `transformer_options`.

    It has to be an object of our own: ComfyUI copies dicts and lists in there at every call.

    Args:
        plan: of this run.
        sigmas: (steps + 1), those of the run.
        percent_to_sigma: ComfyUI's, of the model that is sampled.
        counted, judge: see `CacheSession`.
    """

    def __init__(
        self,
        plan: Plan,
        report: RunReport,
        sigmas: Sequence[float],
        percent_to_sigma: Callable[[float], float],
        cache_device: CacheDevice,
        listener: Callable[[RunReport], None] | None,
        counted: bool = False,
        judge: Judge | None = None,
    ):
        method = self.method = plan.method
        self.plan = plan
        before, fraction = part_covered(sigmas, percent_to_sigma)
        start, end = percent_to_sigma(method.start_percent), percent_to_sigma(method.end_percent)
        run = Run(tuple(sigmas), start_sigma=start, end_sigma=end, fraction=fraction, before=before)
        foretold = None if method.refusal(run) else method.foretold(run)
        if foretold:
            report.settings = {**report.settings, COMPUTES: ranges(foretold)}
        self.interceptions: dict[int, Interception] = {}
        self.session = CacheSession(method, run, report, Storage(cache_device, spare_memory), listener, counted, judge)

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
        if self.session.refusal:  # no need to know where the run is
            return self.session.open_call(())
        self.session.read()
        return self.session.open_call([guided_branch(guider, x, self.session.sigma_now)])

    def recorded(self, latent: Latent, output: Any) -> Any:
        """The guided output as it is, shown to the recorder."""
        if self.plan.recorder and isinstance(output, Tensor) and output.shape == latent.x.shape:
            self.session.read()
            if self.session.step and self.session.step.sigma > 0:
                self.plan.recorder.observe(self.session.step, latent.derivative(output))
        return output

    def completed(self) -> None:
        """The run came to its end. What it was good for must not cost the picture."""
        if self.plan.completed:
            try:
                self.plan.completed(self.session.report)
            except Exception as problem:
                log.exception("StepCache: what the run told could not be kept")
                self.session.report.message(f"What this run told could not be kept: {problem}")

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
