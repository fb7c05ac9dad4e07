"""From sigma to position in the schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .types import Step

TOLERANCE = 2e-4
"""Relative: sigmas closer than this are the same node of the schedule.

fp16 schedules round half as much, and ComfyUI's SDE samplers begin flow models without a shift 1e-4 below the first sigma.
"""


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
        position = self._position(sigma)
        following = self.sigmas[min(int(position) + 1, self.total)] if self.sigmas else 0.0
        return Step(position, self.total, sigma, following)

    def at(self, position: float) -> Step:
        """The reverse of `step`, for a position below the number of steps.

        >>> StepClock((1.0, 0.5, 0.25, 0.0)).at(0.5).sigma
        0.75
        """
        high, low = self.sigmas[int(position) : int(position) + 2]
        return Step(position, self.total, high + position % 1 * (low - high), low)

    def coming(self, seen: Sequence[float]) -> list[Step]:
        """The evaluations that are still to come, if steps go on as the one before did.

        Samplers with several evaluations a step have them in the middle of it (dpm_2) or at its ends (heun). At a last step
        that ends at 0 those that have them in the middle leave them out.

        Args:
            seen: the positions of all evaluations so far, the present one the last.

        >>> [step.position for step in StepClock((1.0, 0.75, 0.5, 0.25, 0.0)).coming([0.0, 0.5, 1.0])]
        [1.5, 2.0, 2.5, 3.0]
        """
        now, last = int(seen[-1]), self.total - 1
        here, before = ([position - step for position in seen if int(position) == step] for step in (now, now - 1))
        usual = max(before, here, key=len)
        positions = [now + offset for offset in usual[len(here) :]]
        positions += [step + offset for step in range(now + 1, last + 1) for offset in usual]
        end = self.total if positions and self.sigmas[-1] > 0 else last
        return [self.at(position) for position in positions if position <= last or position < end]

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


def part_covered(sigmas: Sequence[float], percent_to_sigma: Callable[[float], float]) -> tuple[float, float]:
    """Where in the whole schedule a run begins and how much of it the run covers, both 0 to 1.

    A run is less than the whole for split sampling and for denoise < 1.

    Args:
        percent_to_sigma: ComfyUI's; falls from the largest sigma at 0 to 0 at 1. Percent is of time before the shift.

    >>> part_covered((0.5, 0.25, 0.0), lambda percent: 1 - percent)
    (0.5, 0.5)
    """
    if not sigmas:
        return 0.0, 1.0
    start = _percent_of(max(sigmas), percent_to_sigma)
    return start, _percent_of(min(sigmas), percent_to_sigma) - start


def _percent_of(sigma: float, percent_to_sigma: Callable[[float], float]) -> float:
    """The last percent whose sigma is not below the given one, by bisection."""
    if sigma <= percent_to_sigma(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if percent_to_sigma(middle) >= sigma else (low, middle)
    return low
