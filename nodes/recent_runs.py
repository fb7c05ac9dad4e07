"""The runs of the last prompts, as a page needs them that is loaded again, or after the run."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

from ..cache_core.report import VERSION, RunReport

KEPT = 64
"""Runs; one of 28 steps takes 16 KiB, as reports hold no tensors."""


@dataclass(frozen=True)
class Place:
    """Where a run belongs: the prompt, the node as the page numbers it, and the id of the workflow that the page sent."""

    prompt_id: str
    node: str
    workflow: str | None = None


@dataclass
class ShownRun:
    """One sampling run; `number` counts the runs of a node in a prompt, from 0."""

    place: Place
    number: int
    report: RunReport
    sent: int = 0  # evaluations that the page knows
    sent_at: float = 0.0

    def head(self) -> dict[str, Any]:
        """What every message about this run begins with."""
        return {"version": VERSION, **asdict(self.place), "run": self.number}

    def news(self) -> dict[str, Any]:
        """The evaluations that ended since the last call."""
        ended = self.report.trace[self.sent :]
        self.sent += len(ended)
        return self.head() | {
            "method": self.report.method,
            "steps": self.report.steps,
            "evaluations": [evaluation.as_short_dict() for evaluation in ended],
        }

    def whole(self) -> dict[str, Any]:
        return self.head() | self.report.as_dict()


@dataclass
class RecentRuns:
    """The last runs of all prompts that a client is waiting for. Found by their report, which is there once for each run."""

    runs: deque[ShownRun] = field(default_factory=lambda: deque(maxlen=KEPT))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, report: RunReport) -> ShownRun | None:
        with self.lock:
            return next((run for run in reversed(self.runs) if run.report is report), None)

    def begin(self, place: Place, report: RunReport) -> ShownRun:
        with self.lock:
            last = next((run.number for run in reversed(self.runs) if run.place == place), -1)
            run = ShownRun(place, last + 1, report)
            self.runs.append(run)
            return run

    def of_workflow(self, workflow: str) -> list[ShownRun]:
        """Of each node the runs in the last prompt that ran it, oldest first."""
        with self.lock:
            runs = [run for run in self.runs if run.place.workflow == workflow]
        newest = {run.place.node: run.place.prompt_id for run in runs}
        return [run for run in runs if newest[run.place.node] == run.place.prompt_id]


RECENT = RecentRuns()
"""Of this server. Only what is shown: no run reads anything of another run from here."""
