"""Extrapolation in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..types import Step, Streams
from .predictor import TensorMap, combined, moved


class Basis(Protocol):
    """How differences of observations are formed and weighed. `times` are those of the observations, the newest last."""

    def gap(self, times: Sequence[float], order: int) -> float:
        """What the difference of two differences of order - 1 is divided by."""
        ...

    def weight(self, times: Sequence[float], time: float, order: int) -> float:
        """The factor of the difference of this order at `time`."""
        ...


@dataclass(frozen=True)
class Taylor:
    """Powers of the time since the last observation, with each difference over the last gap.

    Exact for linear values at any spacing, not for curved ones. Source: TaylorSeer, arXiv 2503.06923.
    """

    def gap(self, times: Sequence[float], order: int) -> float:
        return times[-1] - times[-2]

    def weight(self, times: Sequence[float], time: float, order: int) -> float:
        return (time - times[-1]) ** order / math.factorial(order)


@dataclass(frozen=True)
class Newton:
    """The polynomial through the last observations (Newton's divided differences), exact at any spacing. Ours."""

    def gap(self, times: Sequence[float], order: int) -> float:
        return times[-1] - times[-1 - order]

    def weight(self, times: Sequence[float], time: float, order: int) -> float:
        return math.prod(time - times[-1 - i] for i in range(order))


@dataclass(frozen=True)
class Hermite(Taylor):
    """Taylor's differences on scaled Hermite polynomials c^n H_n(c k), which dampen the slope for c < sqrt(1/2).

    Source: HiCache, arXiv 2508.16984 (contraction 0.5 of hicache-pp).
    """

    contraction: float = 0.5

    def weight(self, times: Sequence[float], time: float, order: int) -> float:
        c = self.contraction
        x, before, now = c * (time - times[-1]), 0.0, 1.0
        for n in range(order):
            before, now = now, 2 * x * now - 2 * n * before
        return c**order * now / math.factorial(order)


@dataclass(frozen=True)
class Damped(Taylor):
    """Taylor's differences with each order scaled by another power of `factor` (SoftCache's beta)."""

    factor: float = 0.5

    def weight(self, times: Sequence[float], time: float, order: int) -> float:
        return self.factor**order * super().weight(times, time, order)


BASES: Mapping[str, Callable[[], Basis]] = {"taylor": Taylor, "newton": Newton, "hermite": Hermite}


@dataclass
class Extrapolation:
    """The last observation plus its differences against earlier ones, continued in time.

    Orders become available one at a time: order m needs m + 1 observations, until then the highest there is serves.

    Args:
        order: 0 to 3; memory is order + 1 times that of `Hold`.
        basis: see above.
        clock: "step" counts steps of the schedule, "sigma" takes sigma itself.
    """

    order: int = 1
    basis: Basis = Taylor()
    clock: Literal["step", "sigma"] = "step"
    times: tuple[float, ...] = ()
    differences: list[Streams] = field(default_factory=list, repr=False)

    @property
    def ready(self) -> bool:
        return bool(self.differences)

    def enter(self, step: Step, entry: Streams) -> None:
        pass

    def update(self, step: Step, value: Streams) -> None:
        now = self._time(step)
        if self.times and now == self.times[-1]:
            self._replace_newest(value)
            return
        if self.times and now < self.times[-1]:  # time runs back: begin anew
            self.times, self.differences = (), []
        self.times = (*self.times, now)[-self.order - 1 :]
        fresh = [value]
        for order, old in zip(range(1, self.order + 1), self.differences, strict=False):
            gap = self.basis.gap(self.times, order)
            fresh.append(combined((fresh[-1], old), (1 / gap, -1 / gap)))
        self.differences = fresh

    def _replace_newest(self, value: Streams) -> None:
        """The same time again, as samplers with several evaluations a step have it: no slope lies between the two."""
        before, fresh, scale = self.differences[0], [value], 1.0
        for order, old in enumerate(self.differences[1:], 1):
            scale /= self.basis.gap(self.times, order)
            fresh.append(combined((old, value, before), (1.0, scale, -scale)))
        self.differences = fresh

    def predict(self, step: Step) -> Streams:
        now = self._time(step)
        weights = [1.0, *(self.basis.weight(self.times, now, order) for order in range(1, len(self.differences)))]
        return combined(self.differences, weights)

    def map_tensors(self, move: TensorMap) -> None:
        self.differences = [moved(streams, move) for streams in self.differences]

    def _time(self, step: Step) -> float:
        return step.position if self.clock == "step" else -step.sigma
