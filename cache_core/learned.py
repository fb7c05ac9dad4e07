"""What was learned of one model, and its form as a file that can be read and shared."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .fitting import checked
from .forecasting import MOST_SLOPE, Forecaster, ForecastPlan, Segment
from .reading import listed, named, numbers, shown, steps_in_order, truth, whole, words
from .recording import Recording, falls

FORMAT, VERSION = "stepcache profile", 1

MOST_RECORDINGS = 16
"""Of one model; the oldest give way."""

MOST_CHARACTERS = 16 * 2**20

FINER = 2.0
"""A recording serves schedules of at most so many times its steps: between its sigmas it knows nothing."""


@dataclass(frozen=True)
class Conditions:
    """What a recording depends on beyond the model and the sigmas.

    Args:
        sampler: "ode", or "sde" for samplers that add noise.
        guided: whether a negative prompt takes part.
        size: log2 of the latent's cells, rounded.
        patches: digest of the LoRAs on the model; empty without.
    """

    sampler: str
    guided: bool
    size: int
    patches: str = ""

    def near(self, other: Conditions) -> bool:
        """Whether what was learned with the other serves here, as it does with other LoRAs while the guard watches."""
        return (self.sampler, self.guided) == (other.sampler, other.guided) and abs(self.size - other.size) <= 1


@dataclass(frozen=True)
class KeptPlan:
    """Steps to compute, and the forecasts behind each where they were tuned. See `ForecastPlan`."""

    steps: tuple[int, ...]
    tuned: tuple[Segment, ...] = ()

    @staticmethod
    def of(steps: Any, factors: Any, total: int) -> KeptPlan:
        """From the JSON values of a run of so many steps.

        Raises:
            ValueError: they are none.
        """
        planned, tuned = steps_in_order(steps, total), ()
        if planned[:1] != (0,):
            raise ValueError(f"{shown(steps)} is no plan, which starts with step 0")
        if factors is not None:
            ends = (*planned[1:], total)
            pairs = [numbers(pair, -MOST_SLOPE, MOST_SLOPE) for pair in listed(factors)]
            if [len(pair) for pair in pairs] != [2] * len(planned):
                raise ValueError("the factors do not fit the plan")
            tuned = tuple(Segment(start, end, *pair) for start, end, pair in zip(planned, ends, pairs, strict=True))
        return KeptPlan(planned, tuned)

    @property
    def factors(self) -> list[list[float]]:
        """(steps, 2), the slope and bend of each forecast."""
        return [[segment.slope, segment.bend] for segment in self.tuned]


@dataclass(frozen=True)
class Learned:
    """A recording and what it was made with.

    Args:
        plans: by the number of steps to compute, as far as they were asked for.
    """

    conditions: Conditions
    recording: Recording
    plans: Mapping[int, KeptPlan] = field(default_factory=dict)

    def plan(self, computed: int, forced: Collection[int] = (), longest: int = 0) -> ForecastPlan:
        """For the recorded schedule, planned anew where it is not kept. See `Forecaster.plan`."""
        forecaster = Forecaster(self.recording)
        kept = None if forced or longest else self.plans.get(computed)
        if kept:
            return ForecastPlan(forecaster, kept.steps, kept.tuned)
        return ForecastPlan(forecaster, forecaster.plan(computed, forced, longest))

    def with_plan(self, plan: ForecastPlan) -> Learned:
        """With a plan to keep for its number of steps."""
        return replace(self, plans={**self.plans, len(plan.steps): KeptPlan(plan.steps, plan.tuned)})

    @property
    def tuned_plans(self) -> dict[int, KeptPlan]:
        """The plans that were tuned, which hold for the model and the schedule whatever more is recorded."""
        return {count: plan for count, plan in self.plans.items() if plan.tuned}

    def merged(self, recording: Recording) -> Learned:
        """With another run of the same schedule."""
        return replace(self, recording=self.recording.merged(recording), plans=self.tuned_plans)

    def as_dict(self) -> dict[str, Any]:
        kept = sorted(self.plans.items())
        plans = {str(count): list(plan.steps) for count, plan in kept}
        factors = {str(count): plan.factors for count, plan in kept if plan.tuned}
        return asdict(self.conditions) | {"plans": plans, "factors": factors} | self.recording.as_dict()

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Learned:
        """The inverse of `as_dict`.

        Raises:
            ValueError: what is given is nothing of the kind; says what is wrong.
        """
        given, recording = named(given), Recording.from_dict(given)
        sampler, patches = words(given["sampler"]), words(given["patches"])
        conditions = Conditions(sampler, truth(given["guided"]), whole(given["size"]), patches)
        plans, factors = {}, named(given.get("factors", {}))  # profiles of the first version have none
        for count, steps in named(given["plans"]).items():
            plan = KeptPlan.of(steps, factors.get(count), recording.steps)
            if str(len(plan.steps)) != count:
                raise ValueError(f"the plan of {shown(count)} steps has {len(plan.steps)}")
            plans[len(plan.steps)] = plan
        return Learned(conditions, recording, plans)


@dataclass(frozen=True)
class ModelProfile:
    """All that was learned of one model.

    Args:
        model: name of the architecture, for people.
        identity: digest of what the model computes with.
        learned: oldest first.
        calibrations: fitted figures by method, as in `model_patches/calibrations`; see `fitting.fitted_entries`.
    """

    model: str
    identity: str
    learned: tuple[Learned, ...] = ()
    calibrations: Mapping[str, Any] = field(default_factory=dict)

    def find(self, conditions: Conditions, sigmas: Sequence[float]) -> Learned | None:
        """What was learned with these sigmas, or what comes nearest adapted to them; None if nothing serves."""
        steps = len(sigmas) - 1
        if steps < 1 or not falls(sigmas):
            return None
        serving = [
            each
            for each in reversed(self.learned)
            if conditions.near(each.conditions)
            and each.recording.covers(sigmas)
            and steps <= FINER * each.recording.steps
        ]
        nearest = min(
            serving,
            key=lambda each: (
                each.conditions.patches != conditions.patches,
                abs(each.conditions.size - conditions.size),
                not each.recording.of_schedule(sigmas),
                abs(each.recording.steps - steps),
            ),
            default=None,
        )
        if nearest is None or nearest.recording.of_schedule(sigmas):
            return nearest
        return replace(nearest, recording=nearest.recording.resampled(sigmas), plans={})

    def exact(self, conditions: Conditions, sigmas: Sequence[float]) -> Learned | None:
        """What was learned with just these conditions and sigmas."""
        return next((e for e in self.learned if e.conditions == conditions and e.recording.of_schedule(sigmas)), None)

    def with_learned(self, learned: Learned) -> ModelProfile:
        """With this as the newest, in place of what was learned with the same conditions and sigmas."""
        known = self.exact(learned.conditions, learned.recording.sigmas)
        others = tuple(each for each in self.learned if each is not known)
        return replace(self, learned=(*others, learned)[-MOST_RECORDINGS:])

    def as_json(self) -> str:
        """Plain JSON."""
        head = {"format": FORMAT, "version": VERSION, "model": self.model, "identity": self.identity}
        body = {"learned": [each.as_dict() for each in self.learned], "calibrations": dict(self.calibrations)}
        return json.dumps(head | body, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> ModelProfile:
        """The inverse of `as_json`.

        Raises:
            ValueError: the text is no profile of this version; says why.
        """
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a profile has at most {MOST_CHARACTERS} characters")
        try:
            given = named(json.loads(text))
        except RecursionError as problem:
            raise ValueError("it is nested too deeply") from problem
        if given["format"] != FORMAT:
            raise ValueError(f'its "format" is not "{FORMAT}"')
        if whole(given["version"]) != VERSION:
            raise ValueError(f"it is of version {given['version']}, and this pack reads version {VERSION}")
        learned = tuple(Learned.from_dict(each) for each in listed(given["learned"])[-MOST_RECORDINGS:])
        return ModelProfile(words(given["model"]), words(given["identity"]), learned, checked(given["calibrations"]))


def evaluations_for(speedup: float, steps: int) -> int:
    """How many of the steps to compute for a run `speedup` times as fast, 2 to `steps`.

    A reused one does not count: without a model to run it takes about 0.02 % of the time.

    >>> evaluations_for(2.0, 28), evaluations_for(5.0, 28)
    (14, 6)
    """
    return min(max(round(steps / max(speedup, 1.0)), 2), steps)
