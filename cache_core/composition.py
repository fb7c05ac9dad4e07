"""What a free composition is called, and whether its parts fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from .method import Boundary, CacheMethod, Level
from .planning import interval_steps, share_steps, window_steps
from .policies import AccumulatedChange, ChangeFromAnchor, MagnitudeBudget, Policy, PredictedChange, Scheduled
from .predictors import Chebyshev, Extrapolation, Hold, MeanVelocity, Newton, Predictor, Taylor
from .probes import HeadResidual, ModelInput, ModulatedInput, Nothing, SpectralInput, TimeEmbedding
from .step_masks import masked_steps

WORDS: dict[object, str] = {
    HeadResidual: "head residual",
    ModulatedInput: "modulated input",
    TimeEmbedding: "time embedding",
    SpectralInput: "filtered input",
    ModelInput: "latent",
    Nothing: "none",
    ChangeFromAnchor: "change from anchor",
    AccumulatedChange: "accumulated change",
    PredictedChange: "predicted change",
    MagnitudeBudget: "magnitude curve",
    interval_steps: "interval",
    share_steps: "step share",
    window_steps: "growing window",
    masked_steps: "static step mask",
    Hold: "hold",
    Extrapolation: "extrapolation",
    Chebyshev: "chebyshev",
    MeanVelocity: "mean velocity",
}
"""The parts as people choose them."""

MASKED = " with a step mask"

WATCHING = (ChangeFromAnchor, AccumulatedChange, PredictedChange)
"""Policies that judge a signal."""

OF_BLOCKS = (HeadResidual, ModulatedInput, TimeEmbedding, SpectralInput)
"""Probes that only blocks can give a signal for."""


ALL_BLOCKS = Boundary()


@dataclass(frozen=True)
class Recipe:
    """The parts of a method that people know by name."""

    name: str
    probes: tuple[type, ...]
    policy: object
    predictor: type
    boundary: Boundary = ALL_BLOCKS
    also: Callable[[CacheMethod], bool] = lambda method: True


def exact_in_steps(method: CacheMethod) -> bool:
    predictor = method.predictor
    return isinstance(predictor, Extrapolation) and isinstance(predictor.basis, Newton) and predictor.clock == "step"


GUIDED = Boundary(level=Level.GUIDED_PREDICTION, difference=False)
RECIPES = (
    Recipe("TeaCache", (ModulatedInput, TimeEmbedding), AccumulatedChange, Hold),
    Recipe("First Block Cache", (HeadResidual,), ChangeFromAnchor, Hold, Boundary(1), lambda method: not method.mask),
    Recipe("SeaCache", (SpectralInput,), AccumulatedChange, Hold),
    Recipe("EasyCache", (ModelInput,), PredictedChange, Hold, Boundary(level=Level.MODEL_OUTPUT)),
    Recipe("MagCache", (Nothing,), MagnitudeBudget, Hold),
    Recipe("TaylorSeer", (Nothing,), interval_steps, Extrapolation),
    Recipe("DPCache", (Nothing,), share_steps, Extrapolation, also=exact_in_steps),
    Recipe("Spectrum", (Nothing,), window_steps, Chebyshev, Boundary(difference=False)),
    Recipe("MeanCache", (Nothing,), share_steps, MeanVelocity, GUIDED),
)


def name_of(method: CacheMethod) -> str:
    """The name of the published method that this composition is, or else its parts in words.

    Limits (warm-up, window, how many are reused) do not change the name; a step mask does.
    """
    known = next((recipe.name for recipe in RECIPES if _is(recipe, method)), None)
    if known is None and _is_dbcache(method):
        return "DBCache"
    name = known or ", ".join((*map(_word, _parts(method)), _place(method.boundary)))
    masked = method.mask is not None and not method.mask.reuse_others
    return name + MASKED if masked else name


def misfit(method: CacheMethod) -> str | None:
    """Why the parts do not make sense together and what to do about it, or None."""
    return (
        _misfit_of_mask(method) or _misfit_of_policy(method) or _misfit_of_boundary(method) or _misfit_of_budget(method)
    )


def _misfit_of_budget(method: CacheMethod) -> str | None:
    if method.speedup and isinstance(method.probe, Nothing):
        return (
            "a speedup moves the threshold of a policy that judges a change, and there is none. Set speedup to 0, or set a "
            "probe and policy to change from anchor, accumulated change or predicted change"
        )
    return None


def _misfit_of_mask(method: CacheMethod) -> str | None:
    if method.mask and method.mask.reuse_others and not isinstance(method.probe, Nothing):
        probe = _word(type(method.probe))
        return (
            f"a static step mask decides alone, so the probe {probe} is never used. Set probe to none, or static to off"
        )
    return None


def _misfit_of_policy(method: CacheMethod) -> str | None:
    policy, probe = _word(kind(method.policy)), _word(type(method.probe))
    watching, blind = isinstance(method.policy, WATCHING), isinstance(method.probe, Nothing)
    if watching and blind:
        return f"{policy} has nothing to look at. Choose a probe, or a policy that needs none (interval, step share)"
    if not watching and not blind:
        return f"{policy} knows its steps before sampling, so the probe {probe} is never used. Set probe to none"
    if isinstance(method.policy, PredictedChange):
        if not isinstance(method.probe, ModelInput):
            return f"predicted change compares the latent with the output, not the {probe}. Set probe to latent"
        if method.boundary.level is Level.BLOCKS or not method.boundary.difference:
            return (
                "predicted change needs the whole model's output. Set boundary to model output or guided prediction, "
                "and stored to difference"
            )
    whole_difference = method.boundary.level is Level.BLOCKS and method.boundary.difference
    if isinstance(method.policy, MagnitudeBudget) and not whole_difference:
        return "a magnitude curve is of what the blocks add. Set boundary to blocks, and stored to difference"
    return None


def _misfit_of_boundary(method: CacheMethod) -> str | None:
    boundary, probe = method.boundary, _word(type(method.probe))
    if isinstance(method.probe, OF_BLOCKS) and boundary.level is not Level.BLOCKS:
        return (
            f"the {probe} is a signal of the blocks, and at the {boundary.level.value} only the latent is seen. "
            "Set probe to latent or none, or boundary to blocks"
        )
    if isinstance(method.probe, HeadResidual) and boundary.head == 0:
        return (
            "the head residual is what the head blocks add, and there are none. Set head_blocks to 1 or more, or probe "
            "to modulated input"
        )
    if isinstance(method.predictor, MeanVelocity) and (
        boundary.level is not Level.GUIDED_PREDICTION or boundary.difference
    ):
        return (
            "mean velocity continues the path of the guided latent. Set boundary to guided prediction and stored to "
            "exit, or predictor to extrapolation"
        )
    return None


def kind(policy: Policy) -> object:
    """The class of a policy, or for one with a plan what makes the plan."""
    if isinstance(policy, Scheduled) and isinstance(policy.plan, partial):
        return policy.plan.func
    return type(policy)


def _parts(method: CacheMethod) -> tuple[object, object, object]:
    return type(method.probe), kind(method.policy), type(method.predictor)


def _is(recipe: Recipe, method: CacheMethod) -> bool:
    probe, policy, predictor = _parts(method)
    alike = probe in recipe.probes and policy is recipe.policy and predictor is recipe.predictor
    return alike and method.boundary == recipe.boundary and recipe.also(method)


def _is_dbcache(method: CacheMethod) -> bool:
    boundary = method.boundary
    return (
        isinstance(method.probe, HeadResidual)
        and isinstance(method.policy, ChangeFromAnchor)
        and _continues_steps(method.predictor)
        and boundary == Boundary(boundary.head, boundary.tail)
    )


def _continues_steps(predictor: Predictor) -> bool:
    if isinstance(predictor, Extrapolation):
        return type(predictor.basis) is Taylor and predictor.clock == "step"
    return isinstance(predictor, Hold)


def _word(part: object) -> str:
    return WORDS.get(part, getattr(part, "__name__", str(part)))


def _place(boundary: Boundary) -> str:
    place = boundary.level.value
    if boundary.level is Level.BLOCKS and (boundary.head or boundary.tail):
        place += f" but {boundary.head} + {boundary.tail}"
    return place if boundary.difference else f"{place} (exit)"
