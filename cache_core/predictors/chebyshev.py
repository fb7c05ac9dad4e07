"""A fit over the whole run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..types import Step, Streams
from .predictor import TensorMap, combined, moved


@dataclass
class Chebyshev:
    """Least squares with Chebyshev polynomials of the step over all observations of the run.

    The fit only needs sums over the observations, so memory is degree + 1 times that of `Hold`, whatever their number.

    Args:
        degree: of the highest polynomial.
        ridge: added to the diagonal of the normal equations; larger is smoother.

    Source: the description and settings of the Spectrum ports to ComfyUI (degree 4, ridge 0.1). That the sums reach back to
    the first observation, instead of the last 16, is ours.
    """

    degree: int = 4
    ridge: float = 0.1
    gram: Tensor | None = field(default=None, repr=False)  # (degree + 1, degree + 1), on the CPU
    sums: list[Streams] = field(default_factory=list, repr=False)

    @property
    def ready(self) -> bool:
        return bool(self.sums)

    def enter(self, step: Step, entry: Streams) -> None:
        pass

    def update(self, step: Step, value: Streams) -> None:
        terms = self._terms(step)
        outer = terms.outer(terms)
        self.gram = outer if self.gram is None else self.gram + outer
        if not self.sums:
            self.sums = [combined((value,), (float(term),)) for term in terms]
        else:
            self.sums = [combined((old, value), (1.0, float(term))) for old, term in zip(self.sums, terms, strict=True)]

    def predict(self, step: Step) -> Streams:
        assert self.gram is not None
        damped = self.gram + self.ridge * torch.eye(self.degree + 1, dtype=self.gram.dtype)
        return combined(self.sums, torch.linalg.solve(damped, self._terms(step)).tolist())

    def map_tensors(self, move: TensorMap) -> None:
        self.sums = [moved(streams, move) for streams in self.sums]

    def _terms(self, step: Step) -> Tensor:
        x = 2 * step.position / max(step.total, 1) - 1
        angle = math.acos(max(-1.0, min(1.0, x)))
        return torch.tensor([math.cos(n * angle) for n in range(self.degree + 1)], dtype=torch.float64)
