"""The state of one sampling run. It is made when sampling starts and dropped when it ends; nothing survives it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from .method import CacheMethod
from .policies import Policy
from .predictors import Predictor
from .report import Evaluation, RunReport
from .schedule import StepClock
from .stopwatch import Stopwatch
from .storage import Storage
from .types import Decision, Run, Step, Streams

SIGMA_RISE = 1e-4
"""Relative; a sigma that rises by more than this starts a new descent (restart samplers), with nothing to reuse."""

log = logging.getLogger("stepcache")

UNOBSERVED = "blocks did not run as expected (replaced or repeated by another node?)"

DISAGREED = "its calls could not all be reused"
MOST_REPEATS = 3
"""Evaluations of a run that may begin again, before none is reused any more."""

NO_STEP = Step(0.0, 0, 0.0)


class Judge(Protocol):
    """Decides for evaluations in place of the policies of their branches."""

    def decide(self, step: Step, change: float | None) -> Decision:
        """Propose, by the largest score of a call's branches; asked again for each further call that is to reuse."""
        ...


@dataclass(frozen=True)
class Branch:
    """One set of conditionings within a model call.

    `place` and `identity` tell branches apart (model, device, context window, ...; which conditioning); `order` says who
    leads a decision, lowest first. `facts` are what a stored result depends on beyond that (shapes, weights, control):
    if they differ from those stored, the stored result is dropped.
    """

    place: Hashable
    order: int
    identity: Hashable
    facts: Hashable = None

    @property
    def key(self) -> Hashable:
        return self.place, self.order, self.identity


@dataclass
class BranchState:
    """What a run remembers of one branch."""

    facts: Hashable
    policy: Policy
    predictor: Predictor
    last_seen: int = -1  # index of the evaluation that last stored or reused something here
    layout: Hashable = None  # shapes and dtypes of the streams of the call that stored something here
    shapes: Hashable = None  # shapes and dtypes of what was stored for this branch
    held: int = 0  # bytes

    def keep(self, storage: Storage) -> None:
        """Move what is kept to where it shall stay, and note how much it is."""
        self.held = 0

        def moved(tensor: Tensor) -> Tensor:
            self.held += tensor.numel() * tensor.element_size()
            return storage.keep(tensor)

        self.policy.map_tensors(moved)
        self.predictor.map_tensors(moved)


@dataclass
class CacheSession:
    """Decides, stores and reports for one run.

    The host calls `next_evaluation` for each evaluation of the sampler and `open_call` for each model call in it.
    One decision is made per evaluation, by the branch that leads its first call, because guidance amplifies any mismatch
    between a reused and a computed branch. It costs one read from the device, for sigma and the branch's score; none
    where sigma is known from counting and there is no score. Calls may come from several threads.

    With a `judge` all branches have a say. A host that wants them to agree in any case looks at `disagreed` after an
    evaluation, and runs it again after `repeat_evaluation`.

    Args:
        counted: whether evaluation n is at sigma n of the run, so that sigma need not be read.
        judge: see above.
    """

    method: CacheMethod
    run: Run
    report: RunReport
    storage: Storage = field(default_factory=Storage)
    listener: Callable[[RunReport], None] | None = None
    counted: bool = False
    judge: Judge | None = None

    def __post_init__(self):
        self.contested = False  # a later call of the evaluation would have had it computed
        self.repeats = 0
        self.clock = StepClock(self.run.sigmas)
        self.branches: dict[Hashable, BranchState] = {}
        self.decision: Decision | None = None
        self.occurrences: dict[Hashable, int] = {}
        self.sigma: Tensor | None = None
        self.step: Step | None = None
        self.last_sigma = float("inf")
        self.report.steps, self.report.asked = self.run.steps, self.method.speedup
        self.refusal = self.method.refusal(self.run)
        if self.refusal:
            self.report.message(self.refusal)
        self.lock = threading.RLock()
        self.unobserved = -2  # index of the last evaluation with a call whose blocks did not run as expected
        self.watch = Stopwatch()
        self.started = time.perf_counter()

    # -- the evaluation clock -----------------------------------------------------------------------------------------

    def next_evaluation(self, sigma: Tensor) -> None:
        """A new evaluation begins at `sigma` ((B,) or 0-d; not read here, as reading may wait for the device)."""
        self._end_evaluation()
        self.report.trace.append(Evaluation(len(self.report.trace)))
        self.watch.mark(sigma.device)
        self.sigma, self.step = sigma.flatten()[0], None
        self.decision, self.contested = None, False
        self.occurrences.clear()
        newest_useful = len(self.report.trace) - 2
        for key in [key for key, state in self.branches.items() if state.last_seen < newest_useful]:
            del self.branches[key]  # it missed an evaluation: too old to reuse, and its memory is better used elsewhere

    @property
    def disagreed(self) -> bool:
        """Whether calls of this evaluation were reused that should not have been, as others had to be computed."""
        evaluation = self.report.trace[-1]
        return evaluation.reused_calls > 0 and (self.contested or evaluation.computed_calls > 0)

    def repeat_evaluation(self) -> None:
        """This evaluation begins again, and is computed."""
        self.repeats += 1
        self.decision, self.contested = Decision(False, DISAGREED), False
        self.occurrences.clear()
        evaluation = self.report.trace[-1]
        evaluation.reason, evaluation.reused_calls, evaluation.computed_calls = DISAGREED, 0, 0
        evaluation.branches.clear()

    def end(self) -> None:
        """The run is over, however it ended."""
        self._end_evaluation()
        self._time_evaluations()
        self.branches.clear()
        self.sigma = None
        self.report.note_budget()
        self.report.finished = True
        self.report.seconds = time.perf_counter() - self.started
        self._tell()

    def _end_evaluation(self) -> None:
        if self.report.trace:
            self.report.trace[-1].seconds = self.watch.since()
            self._tell()

    def _time_evaluations(self) -> None:
        """Now that the work is done, or about to be, by the device's clock."""
        if self.sigma is not None:
            self.watch.mark(self.sigma.device)
            for evaluation, seconds in zip(self.report.trace, self.watch.laps(), strict=True):
                evaluation.seconds = seconds

    def _tell(self) -> None:
        """Show the report. A display that fails must not cost the picture, so it is heard no more and logged."""
        try:
            if self.listener:
                self.listener(self.report)
        except Exception:
            log.exception("StepCache: showing the report failed; sampling goes on")
            self.listener = None

    # -- model calls --------------------------------------------------------------------------------------------------

    def open_call(self, branches: Sequence[Branch]) -> ModelCall | None:
        """A model call with these branches, one per equal share of the batch, in batch order.

        Returns None outside of an evaluation, and in a run that is not to be cached: then the model must simply run.
        """
        if self.sigma is None:
            return None
        if self.refusal:
            self.report.trace[-1].reason = self.refusal
            return None
        with self.lock:
            numbered = [self._numbered(branch) for branch in branches]
            return ModelCall(self, [(branch, self._state(branch)) for branch in numbered])

    def _numbered(self, branch: Branch) -> Branch:
        """Tell apart repeated calls of one branch in an evaluation (perturbed guidance, regional prompts)."""
        count = self.occurrences.get(branch.key, 0)
        self.occurrences[branch.key] = count + 1
        return replace(branch, identity=(branch.identity, count))

    def _state(self, branch: Branch) -> BranchState:
        state = self.branches.get(branch.key)
        if state is None or state.facts != branch.facts:
            state = BranchState(branch.facts, self.new_policy(branch), self.method.new_predictor())
            self.branches[branch.key] = state
        return state

    def new_policy(self, branch: Branch) -> Policy:
        policy = self.method.new_policy(self.report.trace)
        policy.begin(self.run, branch.order)
        return policy

    def read(self, scores: Sequence[Tensor | None] = ()) -> list[float | None]:
        """Fetch sigma (once per evaluation, unless it is known) and scores from the device, together, and find the step."""
        assert self.sigma is not None
        known = self._counted_sigma()
        if self.step is None and known is not None:
            self._enter(self.clock.step(known))
        wanted = ([] if self.step else [self.sigma]) + [score for score in scores if score is not None]
        values = self._fetched(wanted) if wanted else []
        if self.step is None:
            self._enter(self.clock.step(values.pop(0)))
        fetched = iter(values)
        return [None if score is None else next(fetched) for score in scores]

    def _counted_sigma(self) -> float | None:
        """Sigma of this evaluation by the schedule; None if it has to be read, as where more evaluations come than steps."""
        index = len(self.report.trace) - 1
        return self.run.sigmas[index] if self.counted and index < self.run.steps else None

    @property
    def sigma_now(self) -> float:
        """Of this evaluation, once it was read."""
        return self.step.sigma if self.step else math.nan

    def _fetched(self, wanted: list[Tensor]) -> list[float]:
        if all(value.device == wanted[0].device for value in wanted):
            self.report.device_reads += 1
            return torch.stack([value.float() for value in wanted]).tolist()
        self.report.device_reads += len(wanted)
        return [float(value) for value in wanted]

    def _enter(self, step: Step) -> None:
        self.step = step
        evaluation = self.report.trace[-1]
        evaluation.sigma, evaluation.position = step.sigma, step.position
        if step.sigma > self.last_sigma * (1 + SIGMA_RISE):
            self.report.message("sigma rose during the run: reuse starts anew there")
            for state in self.branches.values():
                state.last_seen, state.predictor = -1, self.method.new_predictor()
        self.last_sigma = step.sigma

    def account(self) -> None:
        """Note how much is held."""
        held = sum(state.held for state in self.branches.values())
        self.report.cache_bytes = max(self.report.cache_bytes, held)


class ModelCall:
    """One forward of the model inside an evaluation."""

    def __init__(self, session: CacheSession, branches: list[tuple[Branch, BranchState]]):
        self.session = session
        self.branches = branches
        self.index = len(session.report.trace) - 1
        self.layout: Hashable = None
        self.refusal: str | None = None
        self.signals: Sequence[Tensor | None] = [None] * len(branches)
        self.entries: list[Streams] = []

    def decide(
        self,
        signal: Tensor | None,
        layout: Hashable = None,
        refusal: str | None = None,
        entry: Streams | None = None,
    ) -> bool:
        """Whether to reuse.

        Args:
            signal: (B, ...) with the branches' shares in order, or None.
            layout: what a stored value must fit, such as the shapes of the streams.
            refusal: why the host cannot do without computing, or None.
            entry: what goes into the model, for predictors that look at it (levels above blocks).
        """
        self.layout, self.refusal = layout, refusal
        shares = [None] * len(self.branches) if signal is None else signal.chunk(len(self.branches))
        with self.session.lock:
            self.signals = shares
            scores = [state.policy.observe(share) for (_, state), share in zip(self.branches, shares, strict=True)]
            decision = self._shared(scores) if self.session.method.shared else self._own(scores)
            missing = self._missing()
            if decision.reuse and missing:
                self.evaluation.reason = f"reused in part: {missing.reason}"
            if entry is not None:
                self._enter(entry)
            return decision.reuse and missing is None

    def _enter(self, entry: Streams) -> None:
        self.entries = list(zip(*(split(stream, len(self.branches)) for stream in entry), strict=True))
        for (_, state), share in zip(self.branches, self.entries, strict=True):
            state.predictor.enter(self.step, share)

    def _begin_anew(self, index: int) -> None:
        """Forget all of a branch but this evaluation: old values and changes are of another shape."""
        branch, state = self.branches[index]
        state.policy, state.predictor = self.session.new_policy(branch), self.session.method.new_predictor()
        state.policy.observe(self.signals[index])
        if self.entries:
            state.predictor.enter(self.step, self.entries[index])

    def _shared(self, scores: Sequence[Tensor | None]) -> Decision:
        """What the evaluation's first call decided, this one if it is the first."""
        decision, judge = self.session.decision, self.session.judge
        if decision is None:
            return self._lead(scores)
        if judge and decision.reuse and not judge.decide(self.step, largest(self.session.read(scores))).reuse:
            self.session.contested = True
        return decision

    def _lead(self, scores: Sequence[Tensor | None]) -> Decision:
        """Decide for the evaluation."""
        leader = min(range(len(self.branches)), key=lambda i: self.branches[i][0].order)
        asked = scores if self.session.judge else [scores[leader]]
        score = largest(self.session.read(asked))
        judge = self.session.judge or self.branches[leader][1].policy
        decision = self._unobserved() or self._missing() or judge.decide(self.step, score)
        self.session.decision = decision
        self._note(decision, score)
        return decision

    def _own(self, scores: Sequence[Tensor | None]) -> Decision:
        """Decide for this call alone; a batch is computed if any of its branches has to be."""
        fetched = self.session.read(scores)
        forced = self._unobserved() or self._missing()
        proposed = [
            state.policy.decide(self.step, score) for (_, state), score in zip(self.branches, fetched, strict=True)
        ]
        decision = forced or next((each for each in proposed if not each.reuse), proposed[0])
        known = [score for score in fetched if score is not None]
        self._note(decision, max(known, default=None))
        return decision

    def _note(self, decision: Decision, score: float | None) -> None:
        self.evaluation.reason = decision.reason
        self.evaluation.signal, self.evaluation.threshold = finite(score), finite(decision.threshold)

    @property
    def evaluation(self) -> Evaluation:
        return self.session.report.trace[self.index]

    @property
    def step(self) -> Step:
        return self.session.step or NO_STEP

    @property
    def _places(self) -> list[int]:
        return [branch.order for branch, _ in self.branches]

    def _unobserved(self) -> Decision | None:
        """A reason to compute if some branch cannot be reused: it and the others must not be mixed."""
        if self.session.repeats >= MOST_REPEATS:
            return Decision(False, DISAGREED)
        return Decision(False, UNOBSERVED) if self.session.unobserved >= self.index - 1 else None

    def _missing(self) -> Decision | None:
        """A reason to compute if this call cannot reuse, or any branch has nothing (recent) to reuse."""
        if self.refusal:
            return Decision(False, self.refusal)
        states = [state for _, state in self.branches]
        if not all(state.predictor.ready and state.last_seen >= 0 for state in states):
            return Decision(False, "first evaluation" if self.index == 0 else "nothing stored for this branch yet")
        if any(state.layout != self.layout for state in states):
            return Decision(False, "the token streams changed their shape")
        return None

    def predict(self) -> Streams:
        """The residual to add to the entry streams, for the whole batch."""
        per_branch = [state.predictor.predict(self.step) for _, state in self.branches]
        return tuple(joined(parts) for parts in zip(*per_branch, strict=True))

    def reused(self) -> None:
        """The prediction was used."""
        with self.session.lock:
            self.evaluation.ran("reused", self._places)
            for _, state in self.branches:
                state.policy.reused(self.step)
            self._keep()

    def computed_unseen(self) -> None:
        """The model ran, and nothing of it was to be kept."""
        with self.session.lock:
            self.evaluation.ran("computed", self._places)

    def computed(self, residual: Streams | None) -> None:
        """The blocks ran; `residual` is exit - entry for the whole batch, or None if it could not be observed."""
        with self.session.lock:
            self.evaluation.ran("computed", self._places)
            if residual is None:
                self.evaluation.reason = UNOBSERVED
                self.session.unobserved = self.index
                self.session.report.message("Another node replaces or repeats blocks: nothing is reused while it does")
                for branch, _ in self.branches:
                    self.session.branches.pop(branch.key, None)
                return
            shares = zip(*(split(stream, len(self.branches)) for stream in residual), strict=True)
            for index, ((_, state), share) in enumerate(zip(self.branches, shares, strict=True)):
                shapes = shapes_of(share)
                if state.shapes not in (None, shapes):
                    self._begin_anew(index)
                state.policy.computed(self.step, share)
                state.predictor.update(self.step, share)
                state.layout, state.shapes = self.layout, shapes
            self._keep()

    def _keep(self) -> None:
        for _, state in self.branches:
            state.last_seen = self.index
            state.keep(self.session.storage)
        self.session.account()


def largest(scores: Sequence[float | None]) -> float | None:
    """The largest of the scores there are; NaN if one of them is."""
    known = [score for score in scores if score is not None]
    return math.nan if any(map(math.isnan, known)) else max(known, default=None)


def split(stream: Tensor | None, count: int) -> Sequence[Tensor | None]:
    return [None] * count if stream is None else stream.chunk(count)


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def shapes_of(streams: Streams) -> Hashable:
    return tuple(None if stream is None else (stream.shape, stream.dtype) for stream in streams)


def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The shares of a batch as one, on the device of the first: where they are kept is judged one by one."""
    first = parts[0]
    if first is None or len(parts) == 1:
        return first
    return torch.cat([part.to(first.device, non_blocking=True) for part in parts if part is not None])
