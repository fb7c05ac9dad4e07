"""A set of conditionings within a model call, and what a run remembers of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor

from .policies import Policy
from .predictors import Predictor
from .storage import Storage


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
