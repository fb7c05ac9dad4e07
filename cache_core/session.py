"""The state of one sampling run. It is made when sampling starts and dropped when it ends; nothing survives it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .method import CacheMethod
from .policies import Policy
from .predictors import Predictor
from .report import Evaluation, RunReport
from .schedule import StepClock
from .storage import Storage
from .types import Decision, Run, Step, Streams

SIGMA_RISE = 1e-4
"""Relative; a sigma that rises by more than this starts a new descent (restart samplers), with nothing to reuse."""

log = logging.getLogger("stepcache")

NO_STEP = Step(0.0, 0, 0.0)


@dataclass(frozen=True)
class Branch:
    """One set of conditionings within a model call.

    `group` names what shares a decision (model, device, context window, ...); `order` says who leads it (lowest
    first); `identity` tells branches of a group apart. `facts` are what a stored result depends on beyond that (shapes,
    weights, control): if they differ from those stored, the stored result is dropped.
    """

    group: Hashable
    order: int
    identity: Hashable
    facts: Hashable = None

    @property
    def key(self) -> Hashable:
        return self.group, self.order, self.identity


@dataclass
class BranchState:
    """What a run remembers of one branch."""

    facts: Hashable
    policy: Policy
    predictor: Predictor
    last_seen: int = -1  # index of the evaluation that last stored or reused something here

    def tensors(self) -> Iterator[Tensor]:
        kept: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            kept.append(tensor)
            return tensor

        self.policy.map_tensors(note)
        self.predictor.map_tensors(note)
        yield from kept


@dataclass
class CacheSession:
    """Decides, stores and reports for one run.

    The host calls `next_evaluation` for each evaluation of the sampler and `open_call` for each model call in it.
    One decision is made per evaluation and group, by the branch that leads the first call, because guidance amplifies
    any mismatch between a reused and a computed branch. It costs one read from the device.
    """

    method: CacheMethod
    run: Run
    report: RunReport
    storage: Storage = field(default_factory=Storage)
    listener: Callable[[RunReport], None] | None = None

    def __post_init__(self):
        self.clock = StepClock(self.run.sigmas)
        self.branches: dict[Hashable, BranchState] = {}
        self.decisions: dict[Hashable, Decision] = {}
        self.occurrences: dict[Hashable, int] = {}
        self.sigma: Tensor | None = None
        self.step: Step | None = None
        self.last_sigma = float("inf")
        self.report.steps = self.run.steps
        self.started = time.perf_counter()

    # -- the evaluation clock -----------------------------------------------------------------------------------------

    def next_evaluation(self, sigma: Tensor) -> None:
        """A new evaluation begins at `sigma` ((B,) or 0-d; not read here, as reading may wait for the device)."""
        self._end_evaluation()
        self.report.trace.append(Evaluation(len(self.report.trace)))
        self._evaluation_started = time.perf_counter()
        self.sigma, self.step = sigma.flatten()[0], None
        self.decisions.clear()
        self.occurrences.clear()
        newest_useful = len(self.report.trace) - 2
        for key in [key for key, state in self.branches.items() if state.last_seen < newest_useful]:
            del self.branches[key]  # it missed an evaluation: too old to reuse, and its memory is better used elsewhere

    def end(self) -> None:
        """The run is over, however it ended."""
        self._end_evaluation()
        self.branches.clear()
        self.sigma = None
        self.report.finished = True
        self.report.seconds = time.perf_counter() - self.started
        self._tell()

    def _end_evaluation(self) -> None:
        if self.report.trace:
            self.report.trace[-1].seconds = time.perf_counter() - self._evaluation_started
            self._tell()

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

        Returns None outside of an evaluation: then the model must simply run.
        """
        if self.sigma is None:
            return None
        numbered = [self._numbered(branch) for branch in branches]
        return ModelCall(self, [(branch, self._state(branch)) for branch in numbered])

    def _numbered(self, branch: Branch) -> Branch:
        """Tell apart repeated calls of one branch in an evaluation (perturbed guidance, regional prompts)."""
        count = self.occurrences.get(branch.key, 0)
        self.occurrences[branch.key] = count + 1
        return Branch(branch.group, branch.order, (branch.identity, count), branch.facts)

    def _state(self, branch: Branch) -> BranchState:
        state = self.branches.get(branch.key)
        if state is None or state.facts != branch.facts:
            policy = self.method.new_policy()
            policy.begin(self.run)
            state = BranchState(branch.facts, policy, self.method.new_predictor())
            self.branches[branch.key] = state
        return state

    def read(self, score: Tensor | None) -> float | None:
        """Fetch sigma (once per evaluation) and a score from the device, together, and find the step."""
        assert self.sigma is not None
        wanted = [] if self.step else [self.sigma]
        wanted += [] if score is None else [score]
        if not wanted:
            return None
        same_place = all(value.device == wanted[0].device for value in wanted)
        values = torch.stack([v.float() for v in wanted]).tolist() if same_place else [float(v) for v in wanted]
        self.report.device_reads += 1 if same_place else len(wanted)
        if self.step is None:
            self._enter(self.clock.step(values[0]))
        return None if score is None else values[-1]

    def _enter(self, step: Step) -> None:
        self.step = step
        evaluation = self.report.trace[-1]
        evaluation.sigma, evaluation.position = step.sigma, step.position
        if step.sigma > self.last_sigma * (1 + SIGMA_RISE):
            self.report.message("sigma rose during the run: reuse starts anew there")
            for state in self.branches.values():
                state.last_seen = -1
        self.last_sigma = step.sigma

    def account(self) -> None:
        """Move what is kept to where it shall stay, and note how much it is."""
        held = 0
        for state in self.branches.values():
            state.policy.map_tensors(self.storage.keep)
            state.predictor.map_tensors(self.storage.keep)
            held += sum(tensor.numel() * tensor.element_size() for tensor in state.tensors())
        self.report.cache_bytes = max(self.report.cache_bytes, held)


class ModelCall:
    """One forward of the model inside an evaluation."""

    def __init__(self, session: CacheSession, branches: list[tuple[Branch, BranchState]]):
        self.session = session
        self.branches = branches
        self.group = branches[0][0].group
        self.index = len(session.report.trace) - 1

    def decide(self, signal: Tensor | None) -> bool:
        """Whether to reuse. `signal` is (B, ...) with the branches' shares in order, or None."""
        shares = [None] * len(self.branches) if signal is None else signal.chunk(len(self.branches))
        scores = [state.policy.observe(share) for (_, state), share in zip(self.branches, shares, strict=True)]
        session, evaluation = self.session, self.session.report.trace[self.index]
        decision = session.decisions.get(self.group)
        if decision is None:
            leader = min(range(len(self.branches)), key=lambda i: self.branches[i][0].order)
            score = session.read(scores[leader])
            decision = self._missing() or self.branches[leader][1].policy.decide(self.step, score)
            session.decisions[self.group] = decision
            evaluation.reason, evaluation.signal = decision.reason, score
        reuse = decision.reuse and self._missing() is None
        if decision.reuse and not reuse:
            evaluation.reason = "a branch had nothing to reuse"
        return reuse

    @property
    def step(self) -> Step:
        return self.session.step or NO_STEP

    def _missing(self) -> Decision | None:
        """A reason to compute if any branch has nothing (recent) to reuse."""
        states = [state for _, state in self.branches]
        if all(state.predictor.ready and state.last_seen >= 0 for state in states):
            return None
        return Decision(False, "first evaluation" if self.index == 0 else "nothing stored for this branch yet")

    def predict(self) -> Streams:
        """The residual to add to the entry streams, for the whole batch."""
        per_branch = [state.predictor.predict(self.step) for _, state in self.branches]
        return tuple(joined(parts) for parts in zip(*per_branch, strict=True))

    def reused(self) -> None:
        """The prediction was used."""
        for _, state in self.branches:
            state.policy.reused(self.step)
            state.last_seen = self.index
        self.session.report.trace[self.index].reused_calls += 1
        self.session.account()

    def computed(self, residual: Streams | None) -> None:
        """The blocks ran; `residual` is exit - entry for the whole batch, or None if it could not be observed."""
        evaluation = self.session.report.trace[self.index]
        evaluation.computed_calls += 1
        if residual is None:
            evaluation.reason = "a block did not run (replaced by another node?)"
            for branch, _ in self.branches:
                self.session.branches.pop(branch.key, None)
            return
        shares = zip(*(split(stream, len(self.branches)) for stream in residual), strict=True)
        for (_, state), share in zip(self.branches, shares, strict=True):
            state.policy.computed(self.step)
            state.predictor.update(self.step, share)
            state.last_seen = self.index
        self.session.account()


def split(stream: Tensor | None, count: int) -> Sequence[Tensor | None]:
    return [None] * count if stream is None else stream.chunk(count)


def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    if parts[0] is None:
        return None
    return parts[0] if len(parts) == 1 else torch.cat(parts)  # type: ignore[arg-type]
