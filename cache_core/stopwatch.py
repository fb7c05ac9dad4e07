"""How long evaluations take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch


class Stopwatch:
    """Seconds between marks.

    An accelerator's work is only queued when Python goes on, so there the marks are events in its queue: they cost nothing
    and wait for nothing, but can be read only when the work is done. The host's clock stands in for them until then.
    """

    def __init__(self):
        self.marks: list[float] = []
        self.events: list[Any] = []

    def mark(self, device: torch.device) -> None:
        """Work that is started on `device` from now on belongs to the next lap."""
        self.marks.append(time.perf_counter())
        if device.type == "cpu" or len(self.events) + 1 < len(self.marks):
            return
        with suppress(AttributeError, RuntimeError):  # a device without such events
            event = getattr(torch, device.type).Event(enable_timing=True)
            event.record()
            self.events.append(event)

    def since(self) -> float:
        """Seconds since the last mark, by the host's clock."""
        return time.perf_counter() - self.marks[-1] if self.marks else 0.0

    def laps(self) -> Sequence[float]:
        """Seconds between the marks. Waits for the work that was started before the last one."""
        if self.events and len(self.events) == len(self.marks):
            with suppress(RuntimeError):  # the device failed
                self.events[-1].synchronize()
                return [earlier.elapsed_time(later) / 1000 for earlier, later in pairwise(self.events)]
        return [later - earlier for earlier, later in pairwise(self.marks)]
