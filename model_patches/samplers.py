"""What is known of ComfyUI's samplers before they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from comfy.patcher_extension import WrappersMP

ONE_EVALUATION_A_STEP = frozenset(
    f"sample_{name}"
    for name in (
        *("euler", "euler_cfg_pp", "euler_ancestral", "euler_ancestral_cfg_pp", "lms", "ddpm", "lcm", "deis"),
        *("dpmpp_2m", "dpmpp_2m_cfg_pp", "ipndm", "ipndm_v", "gradient_estimation", "gradient_estimation_cfg_pp"),
        *("res_multistep", "res_multistep_cfg_pp", "res_multistep_ancestral", "res_multistep_ancestral_cfg_pp"),
        *("unipc", "unipc_bh2"),
    )
)
"""Functions that evaluate the model once at each sigma of the schedule but the last, in order, for every kind of model.

The SDE samplers are not among them: for flow models they begin a little below the first sigma.
"""

MOVES_SIGMA = "s_churn"
"""An option of some of them, under which they evaluate above the sigmas of the schedule."""


def one_evaluation_a_step(sampler: Any) -> bool:
    """Whether evaluation n of a run is known to be at sigma n of its schedule.

    The function has to be ComfyUI's own: other packs bring, or put in their place, some that do something else.
    """
    from comfy.extra_samplers import uni_pc
    from comfy.k_diffusion import sampling
    from comfy.samplers import KSAMPLER

    if type(sampler) is not KSAMPLER or sampler.extra_options.get(MOVES_SIGMA):
        return False
    function = sampler.sampler_function
    name = getattr(function, "__name__", "")
    own = [module for module in (sampling, uni_pc) if function is getattr(module, name, None)]
    return name in ONE_EVALUATION_A_STEP and any(function.__module__ == module.__name__ for module in own)


def undisturbed(wrappers: Mapping[str, Mapping[Any, list]], ours: str) -> bool:
    """Whether no node but ours stands between a sampler and its evaluations: it might repeat some, or leave some out.

    Args:
        wrappers: of a run, by type and key.
    """
    kinds = WrappersMP.OUTER_SAMPLE, WrappersMP.SAMPLER_SAMPLE, WrappersMP.PREDICT_NOISE
    return not any(functions for kind in kinds for key, functions in wrappers.get(kind, {}).items() if key != ours)


POST_CFG = "sampler_post_cfg_function"
"""The option under which functions wait that are shown what guidance was made of."""

NOISY = ("ancestral", "sde", "lcm", "ddpm", "seeds", "sa_solver")
"""Parts of the names of samplers that add noise at every step."""


def sampler_kind(sampler: Any) -> Literal["ode", "sde"]:
    """Whether a sampler adds noise on the way, by the name of its function."""
    noisy = any(part in sampler_name(sampler) for part in NOISY)
    return "sde" if noisy or getattr(sampler, "extra_options", {}).get(MOVES_SIGMA) else "ode"


def is_cfg_pp(sampler: Any) -> bool:
    """Whether a sampler will look at what guidance is made of, as `looks_into_guidance` finds out at its evaluations."""
    return sampler_name(sampler).endswith("cfg_pp")


def sampler_name(sampler: Any) -> str:
    return getattr(getattr(sampler, "sampler_function", None), "__name__", type(sampler).__name__).lower()


def looks_into_guidance(at_evaluation: Mapping[str, Any], of_run: Mapping[str, Any]) -> bool:
    """Whether a sampler asks what guidance was made of, as CFG++ does: it added a function of its own for that.

    Args:
        at_evaluation, of_run: the `model_options` that the sampler hands over, and the guider's.
    """
    return len(at_evaluation.get(POST_CFG, ())) > len(of_run.get(POST_CFG, ()))
