"""Values of a file that others may have written: each is what it should be, or a ValueError says what it is instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LARGEST = 1e15
"""Of numbers; far above any that means something, and far below those that overflow."""


def number(value: Any, least: float = -LARGEST, most: float = LARGEST) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ValueError(f"{shown(value)} is no number from {least:g} to {most:g}")
    return float(value)


def whole(value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise ValueError(f"{shown(value)} is no whole number from {least}")
    return value


def truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def words(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text")
    return value


def listed(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{shown(value)} is no list")
    return value


def named(value: Any) -> dict[str, Any]:
    """Values by name, of which those that are asked for must be there."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{shown(value)} is no set of values by name")
    return Complete(value)


class Complete(dict[str, Any]):
    """A dict that tells which name is missing."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"{name} is missing")


def numbers(value: Any, least: float = -LARGEST, most: float = LARGEST) -> tuple[float, ...]:
    return tuple(number(each, least, most) for each in listed(value))


def steps_in_order(value: Any, steps: int) -> tuple[int, ...]:
    """Steps of a run of so many, each after the one before."""
    chosen = tuple(whole(each) for each in listed(value))
    if list(chosen) != sorted(set(chosen)) or (chosen and chosen[-1] >= steps):
        raise ValueError(f"{shown(value)} are no steps of {steps} in order")
    return chosen


def shown(value: Any) -> str:
    """A value in few letters."""
    text = f"{type(value).__name__} of {len(value)}" if isinstance(value, (list, dict, str)) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
