"""From sigma to position in the schedule."""

from __future__ import annotations

from collections.abc import Sequence

from .types import Step

TOLERANCE = 1e-4
"""Relative: sigmas closer than this are the same node of the schedule (fp16 schedules round this much)."""


class StepClock:
    """Finds the position of a sigma in a schedule, without counting calls.

    A sigma between two nodes gets a fractional position, linear in sigma. Of several equal nodes the last is meant,
    so that an evaluation which may be the final one is always seen as such. Sigmas outside the schedule are clamped.

    >>> clock = StepClock((1.0, 0.5, 0.25, 0.0))
    >>> clock.step(0.75).position, clock.step(0.25).position
    (0.5, 2.0)
    """

    def __init__(self, sigmas: Sequence[float]):
        self.sigmas = tuple(sigmas)
        self.total = max(len(self.sigmas) - 1, 0)

    def step(self, sigma: float) -> Step:
        return Step(self._position(sigma), self.total, sigma)

    def _position(self, sigma: float) -> float:
        nodes = self.sigmas
        at = [i for i, node in enumerate(nodes) if abs(node - sigma) <= TOLERANCE * max(abs(node), TOLERANCE)]
        if at:
            return float(at[-1])
        for i in range(self.total):
            high, low = nodes[i], nodes[i + 1]
            if high > sigma > low:
                return i + (high - sigma) / (high - low)
        return 0.0 if not nodes or sigma > nodes[0] else float(self.total)
