"""One forward of the model: decides with its session, hands out what is reused, and stores what was computed."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .branch import Branch, BranchState
from .report import Evaluation
from .types import Decision, Step, Streams

if TYPE_CHECKING:
    from .session import CacheSession


UNOBSERVED = "blocks did not run as expected (replaced or repeated by another node?)"

DISAGREED = "its calls could not all be reused"
MOST_REPEATS = 3
"""Evaluations of a run that may begin again, before none is reused any more."""

NO_STEP = Step(0.0, 0, 0.0)


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
