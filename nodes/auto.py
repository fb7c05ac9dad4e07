"""StepCache: the node that learns a model's best steps from one picture."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from comfy_api.latest import io

from ..cache_core.forecasting import ForecastPlan
from ..cache_core.learned import Conditions, Learned, ModelProfile, evaluations_for
from ..cache_core.method import CacheMethod, Completed, Plan
from ..cache_core.methods import computing_all, stepcache
from ..cache_core.recording import MOST_STEPS, Recorder, Recording, falls
from ..cache_core.report import RunReport
from ..model_patches.calibration import few_step_model, general_recording
from ..model_patches.identity import model_identity
from ..model_patches.learning import ADAPTED, from_profile, kept_under, model_of
from ..model_patches.profile_folder import profile_of, user_profiles
from ..model_patches.variants import Facts
from . import base
from .inputs import MIN_STEPS, limits_of, shared_inputs

LEARN, GENERAL, PROFILE = MODES = ("learn", "general", "profile")

GUARD = 4.0
"""So many times as far off as recorded a forecast may be. Where a prompt begins otherwise than the recorded one, the first
is up to 8 times as far off; later ones seldom come to 3."""

ProfileType = io.Custom("STEPCACHE_PROFILE")

RECORDING = "this picture is computed in full and recorded; the next with these settings will be faster"
NOTHING_LEARNED = (
    "This run gave nothing to learn from: the sampler passed by sigmas of the schedule, or an output was not finite. "
    "Record a picture with another sampler (euler), which serves this one too, or use mode general."
)
OTHER_NODE = "to reuse all the same take another cache node, with a threshold of your own"


class StepCache(base.CacheNode):
    node_id = "StepCacheAuto"
    title = "StepCache"
    description = (
        "Say how much faster. The first picture with new settings is computed in full and recorded; from the next one on "
        "only the steps that matter are computed, and the rest is forecast. Works on every model, and takes next to no memory."
    )
    aliases: ClassVar = ["stepcache", "auto", "learn", "profile"]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        return [
            io.Float.Input(
                "speedup",
                default=2.0,
                min=1.0,
                max=5.0,
                step=0.1,
                round=0.01,
                display_mode=io.NumberDisplay.slider,
                tooltip="How many times as fast. 1 switches it off; up to 2 the picture hardly changes.",
            ),
            io.Combo.Input(
                "mode",
                options=list(MODES),
                default=LEARN,
                tooltip="learn: records a picture of settings it has not seen, then plans. general: plans at once, by what "
                "holds for most models; less exact. profile: plans by the connected profile alone.",
            ),
        ]

    @classmethod
    def shared_inputs(cls) -> list[io.Input]:
        inputs = [given for given in shared_inputs() if given.id != "branches"]
        for given in inputs:
            given.advanced = True
        return inputs

    @classmethod
    def later_inputs(cls) -> list[io.Input]:
        return [
            io.Float.Input(
                "guard",
                default=GUARD,
                min=0.0,
                max=100.0,
                step=0.1,
                optional=True,
                advanced=True,
                tooltip="Computes more where a forecast is so many times as far off as it was in the recording, as for a "
                "picture quite unlike it. 0 never looks. Not in mode general, which has no recording of the model.",
            ),
            io.Int.Input(
                "learn_from",
                default=1,
                min=1,
                max=16,
                optional=True,
                advanced=True,
                tooltip="Pictures to record in full before planning. More make it a little more exact.",
            ),
            ProfileType.Input("profile", optional=True, tooltip="From Load Profile or Calibrate."),
        ]

    @classmethod
    def validate_inputs(cls, start_percent=None, end_percent=None, max_consecutive=None) -> bool | str:
        return super().validate_inputs(None, start_percent, end_percent, max_consecutive)

    @classmethod
    def plan(cls, model, settings: base.Settings, run_facts: Facts | None = None) -> Plan | None:
        if settings["mode"] == PROFILE and not isinstance(settings.get("profile"), ModelProfile):
            raise ValueError("mode is profile, but none is connected. Connect Load Profile or Calibrate, or use learn.")
        if settings["speedup"] <= 1:
            return None
        shown = {"speedup": f"{settings['speedup']:g}x asked for"}
        if run_facts is None:  # all is found out when a run starts
            return Plan(computing_all("not sampled yet"), shown)
        hopeless = why_not(model, run_facts)
        if hopeless:
            return Plan(computing_all(hopeless), shown)
        learned, origin = SOURCES[settings["mode"]](settings, run_facts)
        if learned is None:
            return learning_plan(run_facts, shown) if settings["mode"] == LEARN else Plan(computing_all(origin), shown)
        try:
            route = best_plan(learned, settings, run_facts)
        except (ValueError, np.linalg.LinAlgError) as problem:  # must not cost the picture
            return Plan(computing_all(f"no plan could be made ({problem}): {OTHER_NODE}"), shown)
        method = planned(route, settings, run_facts)
        shown |= {"plan": f"{origin}, tuned" if route.tuned else origin}
        if settings["mode"] == LEARN and origin == ADAPTED:
            recorder = Recorder(run_facts["sigmas"], run_facts["flow"])
            done = partial(keep_if_whole, recorder, model_of(run_facts), kept_under(run_facts))
            return Plan(method, shown, recorder=recorder, completed=done)
        return Plan(method, shown, completed=keeping(learned, route, settings, run_facts))


def why_not(model, facts: Facts) -> str | None:
    """Why nothing at all can be reused in a run and what to do about it, or None."""
    if few_step_model(model, facts):
        return f"this model is made for few steps, which differ too much to reuse: {OTHER_NODE}"
    if facts["whole_steps"] < MIN_STEPS:
        return f"{facts['whole_steps']} steps are few and differ too much to reuse: {OTHER_NODE}"
    if facts["steps"] > MOST_STEPS:
        return f"{facts['steps']} steps are more than can be planned ({MOST_STEPS}): {OTHER_NODE}"
    if not falls(facts["sigmas"]):
        return f"the sigmas of this run do not fall from step to step, so it cannot be planned: {OTHER_NODE}"
    return None


def learned_before(settings: base.Settings, facts: Facts) -> tuple[Learned | None, str]:
    """What fits the run of what was learned, or None if a picture should be recorded."""
    profile = profile_of(facts["model"])
    exact = profile.exact(kept_under(facts), facts["sigmas"])
    wanted = settings.get("learn_from", 1)
    if wanted > 1 and (exact is None or exact.recording.runs < wanted):
        return None, ""
    return from_profile(profile, facts)


def from_connected(settings: base.Settings, facts: Facts) -> tuple[Learned | None, str]:
    found, origin = from_profile(settings["profile"], facts)
    other = settings["profile"].identity != model_identity(facts["model"])
    return found, f"{origin} (on another model)" if found and other else origin


def in_general(settings: base.Settings, facts: Facts) -> tuple[Learned, str]:
    recording = general_recording(facts["flow"]).resampled(facts["sigmas"])
    return Learned(kept_under(facts), recording), "what holds for most models"


SOURCES = {LEARN: learned_before, GENERAL: in_general, PROFILE: from_connected}
"""By mode: (settings, facts of the run) -> what to plan by and what it is; or None and why."""


def best_plan(learned: Learned, settings: base.Settings, facts: Facts) -> ForecastPlan:
    return learned.plan(
        evaluations_for(settings["speedup"], facts["steps"]),
        outside_window(facts, settings["start_percent"], settings["end_percent"]),
        settings["max_consecutive"],
    )


def planned(plan: ForecastPlan, settings: base.Settings, facts: Facts) -> CacheMethod:
    """The method that follows a plan."""
    guard = settings.get("guard", GUARD) if settings["mode"] != GENERAL else 0.0  # it would judge by another model
    return stepcache(plan, guard, per_branch=facts["sees_branches"], **limits_of(settings))


def outside_window(facts: Facts, start_percent: float, end_percent: float) -> frozenset[int]:
    """Steps at which nothing may be reused."""
    to_sigma = facts["model"].get_model_object("model_sampling").percent_to_sigma
    start, end = float(to_sigma(start_percent)), float(to_sigma(end_percent))
    return frozenset(step for step, sigma in enumerate(facts["sigmas"][:-1]) if not end <= sigma <= start)


def keeping(learned: Learned, plan: ForecastPlan, settings: base.Settings, facts: Facts) -> Completed | None:
    """What keeps a plan that was made anew, as planning many steps takes seconds; None if there is nothing to keep."""
    limited = settings["max_consecutive"] or outside_window(facts, settings["start_percent"], settings["end_percent"])
    if settings["mode"] != LEARN or limited or len(plan.steps) in learned.plans:
        return None
    return partial(keep_plan, learned.recording, plan, model_of(facts), kept_under(facts))


def keep_plan(
    recording: Recording, plan: ForecastPlan, model: tuple[str, str], kept: Conditions, report: RunReport
) -> None:
    """Add a plan to what it was made from, if that is still as it was."""

    def with_plan(profile: ModelProfile) -> ModelProfile:
        known = profile.exact(kept, recording.sigmas)
        if known is None or known.recording.runs != recording.runs:
            return profile
        return profile.with_learned(known.with_plan(plan))

    user_profiles().update(*model, with_plan)


def learning_plan(facts: Facts, shown: dict[str, Any]) -> Plan:
    """Compute and record everything; keep it when the run is complete."""
    recorder = Recorder(facts["sigmas"], facts["flow"])
    done = partial(keep, recorder, model_of(facts), kept_under(facts))
    return Plan(computing_all(RECORDING), shown | {"plan": "being learned"}, recorder=recorder, completed=done)


def keep_if_whole(recorder: Recorder, model: tuple[str, str], kept: Conditions, report: RunReport) -> None:
    """Where the guard had everything computed, what was learned before did not fit; now there is something that does."""
    if recorder.recording() is not None:
        keep(recorder, model, kept, report)


def keep(recorder: Recorder, model: tuple[str, str], kept: Conditions, report: RunReport) -> None:
    """Add what was recorded to the model's profile."""
    recording = recorder.recording()
    if recording is None:
        report.messages = [message for message in report.messages if message != RECORDING]
        report.message(NOTHING_LEARNED)
        return

    def with_recording(profile: ModelProfile) -> ModelProfile:
        known = profile.exact(kept, recording.sigmas)
        return profile.with_learned(known.merged(recording) if known else Learned(kept, recording))

    user_profiles().update(*model, with_recording)
