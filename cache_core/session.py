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

from .branch import Branch, BranchState
from .method import CacheMethod
from .model_call import DISAGREED, ModelCall
from .policies import Policy
from .report import Evaluation, RunReport
from .schedule import StepClock
from .stopwatch import Stopwatch
from .storage import Storage
from .types import Decision, Run, Step

SIGMA_RISE = 1e-4
"""Relative; a sigma that rises by more than this starts a new descent (restart samplers), with nothing to reuse."""

log = logging.getLogger("stepcache")


class Judge(Protocol):
    """Decides for evaluations in place of the policies of their branches."""

    def decide(self, step: Step, change: float | None) -> Decision:
        """Propose, by the largest score of a call's branches; asked again for each further call that is to reuse."""
        ...


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
