"""What a run tells of its model: how the outputs of its steps relate to each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .reading import listed, named, numbers, truth, whole
from .schedule import TOLERANCE
from .types import Step

SKETCH = 8192
"""Elements of an output that are kept: enough for its lengths and angles to within a percent or two."""

VARIATION = 0.5
"""By how much the change of an output from step to step is taken to vary from picture to picture: its variance, relative to
the square of how much it differs from the change before. Half of that was best for one picture and others, measured."""

MOST_STEPS = 200
"""A recording of more steps is refused: planning takes memory and time with the cube of the steps, 64 MB at 200."""


@dataclass(frozen=True)
class Recording:
    """The mean products of the outputs of a run's steps. An output is dx / dsigma, after guidance.

    Lengths, angles, and so the error of any linear forecast of one output from others follow from these alone.

    Args:
        sigmas: (T + 1), those of the run.
        products: (T, T), <v_q, v_r> / elements.
        flow: whether the latent is (1 - sigma) picture + sigma noise; else it is picture + sigma noise.
        runs: how many runs this is the mean of.
        gains: (T), how much of an error made at a step is left at the end, if that was measured.
        adapted_spread: (T), the `spread` where it is known from the steps of another schedule.

    Raises:
        ValueError: the shapes do not fit, or a value is not finite.
    """

    sigmas: tuple[float, ...]
    products: np.ndarray = field(repr=False, compare=False)
    flow: bool = True
    runs: int = 1
    gains: tuple[float, ...] | None = None
    adapted_spread: np.ndarray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self):
        steps = len(self.sigmas) - 1
        if not 1 <= steps <= MOST_STEPS or self.products.shape != (steps, steps):
            raise ValueError("the table of products does not fit the number of steps")
        if self.gains is not None and len(self.gains) != steps:
            raise ValueError("the gains do not fit the number of steps")
        if not (np.isfinite(self.products).all() and all(map(math.isfinite, self.sigmas + (self.gains or ())))):
            raise ValueError("it holds values that are not finite")
        if (np.diag(self.products) < 0).any() or not falls(self.sigmas):
            raise ValueError("the sigmas do not fall, or a length is negative")
        if self.runs < 1 or min(self.gains or (1.0,)) <= 0:
            raise ValueError("runs or gains are out of range")

    @property
    def times(self) -> np.ndarray:
        """(T), the share of noise at each step, 0 to 1."""
        return noise_shares(self.sigmas[:-1], self.flow)

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1

    def foreseen(self) -> np.ndarray:
        """(T, T), the mean products to expect of other pictures, whose outputs change otherwise from step to step."""
        spread = self.spread()
        return self.products + np.minimum.outer(spread, spread)

    def spread(self) -> np.ndarray:
        """(T), the mean square by which outputs of other pictures have come apart from these up to each step.

        Each change is taken to vary by how much it differs from the one before (`VARIATION`), no longer than itself, the
        first as much as the second, and independently of others; the mean of several runs varies less. On a straight line
        nothing does.
        """
        if self.adapted_spread is not None:
            return self.adapted_spread
        changes = np.diff(np.eye(self.steps), axis=0)  # (T - 1, T)
        bends = np.diff(changes, axis=0)
        squares = [((rows @ self.products) * rows).sum(axis=1) for rows in (changes[1:], bends)]
        varying = VARIATION * np.minimum(*squares).clip(0) / self.runs  # (T - 2)
        first = varying[:1] if len(varying) else np.zeros(self.steps - 1)
        return np.cumsum([0, *first, *varying])

    def distance(self, first: int, second: int) -> float:
        """Root mean square of the difference of two steps' outputs."""
        products = self.products
        squared = products[first, first] - 2 * products[first, second] + products[second, second]
        return math.sqrt(max(float(squared), 0.0))

    def of_schedule(self, sigmas: Sequence[float]) -> bool:
        """Whether it was recorded with these sigmas."""
        return same_schedule(self.sigmas, sigmas)

    def merged(self, other: Recording) -> Recording:
        """The mean with another recording of the same sigmas, each weighed by its runs."""
        total = self.runs + other.runs
        products = (self.products * self.runs + other.products * other.runs) / total
        return replace(self, products=products, runs=total, gains=other.gains or self.gains, adapted_spread=None)

    def covers(self, sigmas: Sequence[float]) -> bool:
        """Whether the steps of another schedule lie between, or next to, those recorded."""
        nodes, wanted = self.times, noise_shares(sigmas[:-1], self.flow)
        margin = 2 * np.abs(np.diff(nodes)).max(initial=0.0) + TOLERANCE
        return bool(wanted.max() <= nodes[0] + margin and wanted.min() >= nodes[-1] - margin)

    def resampled(self, sigmas: Sequence[float]) -> Recording:
        """As it would have been with other sigmas: outputs are taken as linear in the share of noise between those recorded.

        Those of other pictures still change otherwise at every step, or what lies on these lines would be taken as certain.
        """
        nodes, wanted = self.times, noise_shares(sigmas[:-1], self.flow)
        mix = np.stack([np.interp(-wanted, -nodes, row) for row in np.eye(len(nodes))], axis=1)  # (T', T)
        gains = tuple(mix @ np.array(self.gains)) if self.gains else None
        return Recording(tuple(sigmas), mix @ self.products @ mix.T, self.flow, self.runs, gains, mix @ self.spread())

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; of the symmetric table the lower half, row by row."""
        rows = [[float(f"{value:.7g}") for value in row[: n + 1]] for n, row in enumerate(self.products)]
        return {
            "sigmas": list(self.sigmas),
            "products": rows,
            "flow": self.flow,
            "runs": self.runs,
            "gains": list(self.gains) if self.gains else None,
        }

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Recording:
        """The inverse of `as_dict`.

        Raises:
            ValueError: what is given is no recording; says what is wrong.
        """
        given = named(given)
        sigmas, rows = numbers(given["sigmas"], least=0), [numbers(row) for row in listed(given["products"])]
        steps = len(sigmas) - 1
        if len(rows) != steps or steps > MOST_STEPS or any(len(row) != n + 1 for n, row in enumerate(rows)):
            raise ValueError("the table of products does not fit the number of steps")
        lower = np.zeros((steps, steps))
        lower[np.tril_indices(steps)] = [value for row in rows for value in row]
        gains = None if given["gains"] is None else numbers(given["gains"])
        products = lower + np.tril(lower, -1).T
        return Recording(sigmas, products, truth(given["flow"]), whole(given["runs"], least=1), gains)


def noise_shares(sigmas: Sequence[float], flow: bool) -> np.ndarray:
    """Noise in noise and picture together: sigma of a flow model, sigma / (1 + sigma) of others."""
    values = np.array(sigmas, dtype=float)
    return values if flow else values / (1 + values)


def same_schedule(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two lists of sigmas are equal but for rounding."""
    return len(first) == len(second) and all(
        abs(a - b) <= TOLERANCE * max(abs(a), TOLERANCE) for a, b in zip(first, second, strict=True)
    )


def falls(sigmas: Sequence[float]) -> bool:
    """Whether every sigma is below the one before, as recordings and plans need it."""
    return all(a > b for a, b in pairwise(sigmas))


class Sketch:
    """A fixed random choice of a tensor's elements, the same for all tensors of a size."""

    def __init__(self):
        self.chosen: Tensor | None = None
        self.elements = 0

    def __call__(self, value: Tensor) -> Tensor:
        """(SKETCH,) float32 on the device of `value`."""
        flat = value.detach().reshape(-1)
        if self.chosen is None or self.elements != flat.numel() or self.chosen.device != flat.device:
            self.elements = flat.numel()
            generator = torch.Generator().manual_seed(0)
            self.chosen = torch.randint(self.elements, (SKETCH,), generator=generator).to(flat.device)
        return flat[self.chosen].float()


class Recorder:
    """Sketches the output of every step of a run; nothing is read from the device before the end."""

    def __init__(self, sigmas: Sequence[float], flow: bool):
        self.sigmas, self.flow = tuple(sigmas), flow
        self.sketch = Sketch()
        self.kept: dict[int, Tensor] = {}

    def observe(self, step: Step, output: Tensor) -> None:
        """Take in dx / dsigma as computed at a step.

        Of several evaluations in a step that at its sigma counts, and of several there the last.
        """
        if step.position % 1 == 0 and step.position < step.total:
            self.kept[step.index] = self.sketch(output)

    def recording(self) -> Recording | None:
        """What was recorded, or None if a step is missing or an output was not finite."""
        steps = range(len(self.sigmas) - 1)
        if not steps or any(step not in self.kept for step in steps):
            return None
        sketches = torch.stack([self.kept[step] for step in steps]).cpu().double()  # (T, SKETCH)
        try:
            return Recording(self.sigmas, (sketches @ sketches.T / SKETCH).numpy(), self.flow)
        except ValueError:
            return None
