"""One node for every composition of the parts that the methods are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from comfy_api.latest import io

from ..cache_core.composition import MASKED, misfit, name_of
from ..cache_core.method import Boundary, CacheMethod, Level, Plan
from ..cache_core.planning import interval_steps, share_steps, window_steps
from ..cache_core.policies import AccumulatedChange, ChangeFromAnchor, Policy, PredictedChange, Scheduled, StepMask
from ..cache_core.predictors import BASES, Chebyshev, Extrapolation, Hold, MeanVelocity, Predictor
from ..cache_core.probes import (
    HeadResidual,
    ModelInput,
    ModulatedInput,
    Nothing,
    Probe,
    SpectralInput,
    TimeEmbedding,
)
from ..cache_core.step_masks import masked_steps
from ..model_patches.architectures import identify
from ..model_patches.calibration import Calibration, calibration_for, published
from ..model_patches.variants import Facts
from .base import CacheNode, Settings
from .compose_inputs import DIFFERENCE, NO_MASK, choices, compose_inputs
from .inputs import AUTOMATIC, check_settings, limits_of, refuse_out_of_range, speedup_input
from .planned_nodes import NO_CURVE, careful, chosen_curve
from .threshold_nodes import NO_FIGURES

PROBES: Mapping[str, Callable[[], Probe]] = {
    "head residual": HeadResidual,
    "modulated input": ModulatedInput,
    "time embedding": TimeEmbedding,
    "latent": ModelInput,
    "none": Nothing,
}
WATCHING: Mapping[str, Callable[[float], Policy]] = {
    "change from anchor": ChangeFromAnchor,
    "accumulated change": AccumulatedChange,
    "predicted change": PredictedChange,
}
FIGURES = {"TeaCache": "teacache", "First Block Cache": "first_block", "DBCache": "dbcache", "SeaCache": "seacache",
           "EasyCache": "easycache"}  # fmt: skip
"""Files of recommended thresholds by the method's name."""

FIRST_THRESHOLD = 0.1
"""Where the threshold begins that a speedup moves, if none is known: within a few evaluations it follows the signal."""


class ComposeCache(CacheNode):
    node_id = "StepCacheCompose"
    title = "Compose Cache"
    description = (
        "Builds a method from its parts: where to look, when to reuse, what to return instead, and what is skipped. "
        "The other nodes are such compositions; this one is for trying others. As set at first it is First Block Cache."
    )
    aliases: ClassVar = ["compose", "custom", "experiment", "parts"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return compose_inputs()

    @classmethod
    def later_inputs(cls) -> list[io.Input]:
        return [speedup_input()]

    @classmethod
    def validate_inputs(
        cls, start_percent=None, end_percent=None, max_consecutive=None, speedup=None,
        probe=None, policy=None, predictor=None, boundary=None, step_mask=None,
    ) -> bool | str:  # fmt: skip
        """ComfyUI hands over the choices whether they are asked for or not; they are judged together in `plan`."""
        return check_settings(None, start_percent, end_percent, max_consecutive, speedup) or True

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        """As for all nodes.

        Raises:
            ValueError: the parts do not fit together or not to the model; the text says why and what to do.
        """
        refuse_impossible_choices(settings)
        if switched_off(settings):
            return None
        problem = check_settings(settings["policy"].get("threshold"))
        if problem:
            raise ValueError(problem)
        return composed(model, settings, run_facts)


def refuse_impossible_choices(settings: Settings) -> None:
    """Options that there are not, and numbers of their inputs out of range; the threshold has a check of its own."""
    for name, options in choices().items():
        chosen = (settings.get(name) or {}).get(name)
        if chosen not in options:
            raise ValueError(f"{name} is {chosen!r}. Use one of: {', '.join(options)}.")
        refuse_out_of_range((entry for entry in options[chosen] if entry.id != "threshold"), settings[name])


def switched_off(settings: Settings) -> bool:
    """Whether the settings ask for no reuse at all, which leaves the model as it is."""
    policy = settings["policy"]
    if settings["step_mask"].get("static"):
        return False
    everything = policy.get("interval") == 1 or policy.get("computed", 0) >= 1 or settings.get("speedup") == 1
    return policy.get("threshold") == 0 or everything


@dataclass(frozen=True)
class Chosen:
    """A policy, what the report shows of it, and whether the person left its settings to us."""

    policy: Policy
    shown: Mapping[str, Any]
    messages: tuple[str, ...] = ()
    recommended: bool = False


def composed(model, settings: Settings, run_facts: Facts | None) -> Plan:
    watching = WATCHING.get(settings["policy"]["policy"])
    mask = mask_of(settings["step_mask"])
    if mask and mask.reuse_others:
        chosen, watching = Chosen(Scheduled(mask.plan), {}), None
    elif watching:
        chosen = Chosen(watching(1.0), {})  # the threshold may depend on what the whole is called
    else:
        chosen = planned(model, settings, run_facts)
    draft = CacheMethod(
        "",
        probe_of(settings["probe"]),
        chosen.policy,
        predictor_of(settings["predictor"]),
        boundary_of(settings["boundary"]),
        mask=mask,
        warmup=settings["warmup_steps"],
        max_reused=settings["max_cached_steps"],
        speedup=settings.get("speedup", 0.0),
    )
    refuse_misfits(draft, model)
    name = name_of(draft)
    if watching:
        chosen = judged(draft, name, model, settings["policy"], run_facts)
    limits = careful(model, settings, run_facts) if chosen.recommended else limits_of(settings)
    method = replace(draft, name=name, policy=chosen.policy, **limits)
    return Plan(method, {"method": name, **chosen.shown}, chosen.messages)


def refuse_misfits(draft: CacheMethod, model) -> None:
    problem = misfit(draft)
    if problem:
        raise ValueError(f"These parts do not fit together: {problem}.")
    architecture = identify(model.model.diffusion_model)
    if isinstance(draft.probe, TimeEmbedding) and not (architecture and architecture.time_embedding):
        raise ValueError("The time embedding of this model is not known. Set probe to modulated input.")


def planned(model, settings: Settings, run_facts: Facts | None) -> Chosen:
    """A policy that knows its steps before sampling."""
    choice, warmup = settings["policy"], settings["warmup_steps"]
    if choice["policy"] == "interval":
        interval = choice["interval"] or published("taylorseer", model, run_facts)["interval"]
        plan = partial(interval_steps, warmup=warmup, interval=interval)
        return Chosen(Scheduled(plan), {"interval": interval}, recommended=not choice["interval"])
    if choice["policy"] == "step share":
        share = choice["computed"]
        plan = partial(share_steps, share=share, forced=max(warmup, 2))
        return Chosen(Scheduled(plan), {"computed": share})
    if choice["policy"] == "growing window":
        window, growth = choice["window_size"], choice["flex_window"]
        plan = partial(window_steps, warmup=warmup, window=window, growth=growth)
        return Chosen(Scheduled(plan), {"window": window, "growth": growth})
    curve, known = chosen_curve(model, choice, run_facts)
    shown = {"threshold": curve.threshold, "curve": curve.profile.name}
    return Chosen(curve, shown, () if known else (NO_CURVE,), choice["threshold"] == AUTOMATIC)


def judged(draft: CacheMethod, name: str, model, choice: Settings, run_facts: Facts | None) -> Chosen:
    """A policy that judges a signal, with the person's threshold or the one recommended for the method of this name.

    With a speedup that is only where the threshold begins, and nothing is left to us.
    """
    file = FIGURES.get(name.removesuffix(MASKED))
    figures = calibration_for(file, model, run_facts) if file else None
    if figures and file == "teacache":
        figures = teacache_figures(figures, draft.probe, choice)
    threshold, recommended = choice["threshold"], choice["threshold"] == AUTOMATIC
    if recommended:
        threshold = recommended_threshold(figures, draft, name)
    policy = WATCHING[choice["policy"]](threshold)
    if isinstance(policy, AccumulatedChange) and figures and figures.coefficients:
        policy = AccumulatedChange(threshold, figures.coefficients, figures.fitted_range or policy.fitted_range)
    shown = {"threshold": threshold, **({"figures": figures.name} if figures else {})}
    messages = (NO_FIGURES,) if figures and not figures.source else ()
    return Chosen(policy, shown, messages, recommended and not draft.speedup)


def recommended_threshold(figures: Calibration | None, draft: CacheMethod, name: str) -> float:
    if figures is None and not draft.speedup:
        raise ValueError(
            f"There is no recommended threshold for {name} as set here. Set a threshold above 0, or a speedup."
        )
    return figures.threshold if figures else FIRST_THRESHOLD


def teacache_figures(figures: Calibration, probe: Probe, choice: Settings) -> Calibration | None:
    """None where they are of another signal than the probe's, or are not wanted."""
    fits = figures.time_embedding == isinstance(probe, TimeEmbedding)
    wanted = choice["published_figures"] or not figures.coefficients
    return figures if fits and wanted else None


def probe_of(choice: Settings) -> Probe:
    if choice["probe"] == "filtered input":
        return SpectralInput(choice["beta"] or None)
    return PROBES[choice["probe"]]()


def predictor_of(choice: Settings) -> Predictor:
    if choice["predictor"] == "extrapolation":
        return Extrapolation(choice["order"], BASES[choice["basis"]](), choice["time"])
    if choice["predictor"] == "chebyshev":
        return Chebyshev(choice["degree"], choice["ridge_lambda"])
    return MeanVelocity(choice["lookback"]) if choice["predictor"] == "mean velocity" else Hold()


def boundary_of(choice: Settings) -> Boundary:
    blocks = choice.get("head_blocks", 0), choice.get("tail_blocks", 0)
    return Boundary(*blocks, Level(choice["boundary"]), choice["stored"] == DIFFERENCE)


def mask_of(choice: Settings) -> StepMask | None:
    if choice["step_mask"] == NO_MASK:
        return None
    return StepMask(partial(masked_steps, choice["step_mask"]), choice["static"])
