"""The finished runs of a cached model, for nodes that come after sampling."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from comfy.model_patcher import ModelPatcher
from comfy_execution.progress import get_progress_state
from comfy_execution.utils import get_executing_context

from ..cache_core.report import RunReport

ATTACHMENT = "stepcache.runs"
"""Name under which a cached model carries its `RunLog`; clones of the model share it."""

SAMPLER_ATTRIBUTE = "stepcache_runs"
"""Where a SAMPLER that brings a cache of its own carries it."""

KEPT = 64
"""Runs that a model remembers; one sampler may run many times in a prompt (tiles, lists)."""


@dataclass(frozen=True)
class LoggedRun:
    """A run and where it was made: the node as it is in the prompt, None outside of ComfyUI's execution."""

    report: RunReport
    sampler: str | None
    prompt: str | None
    started: float  # monotonic seconds; orders runs of several models


class RunLog:
    """Listener of one execution of a cache node: remembers the newest runs, then shows each report.

    It holds results only. Nothing that samples ever reads it, and it goes when the model goes.
    """

    def __init__(self, display: Callable[[RunReport], None]):
        self.display = display
        self.runs: deque[LoggedRun] = deque(maxlen=KEPT)

    def __call__(self, report: RunReport) -> None:
        if not any(run.report is report for run in self.runs):
            self.runs.append(LoggedRun(report, *executing(), time.monotonic()))
        self.display(report)


def executing() -> tuple[str | None, str | None]:
    """The node that runs now and its prompt; of a node that another one made at run time that other one."""
    here = get_executing_context()
    if here is None:
        return None, None
    return str(get_progress_state().dynprompt.get_real_node_id(here.node_id)), here.prompt_id


def log_of(carrier) -> RunLog | None:
    """The log that a cached model or a sampler carries, or None."""
    if isinstance(carrier, ModelPatcher):
        return carrier.get_attachment(ATTACHMENT)
    return getattr(carrier, SAMPLER_ATTRIBUTE, None)


def upstream(prompt: Mapping[str, Any], node: str, name: str) -> set[str]:
    """Ids of all nodes that an input of a node depends on; empty if the prompt does not have the node."""
    found: set[str] = set()
    waiting = linked([prompt.get(node, {}).get("inputs", {}).get(name)])
    while waiting:
        source = waiting.pop()
        if source not in found:
            found.add(source)
            waiting += linked(prompt.get(source, {}).get("inputs", {}).values())
    return found


def linked(values: Iterable[Any]) -> list[str]:
    """Ids of the nodes that these input values come from."""
    return [str(value[0]) for value in values if isinstance(value, (list, tuple)) and len(value) == 2]


def runs_behind(logs: Iterable[RunLog], nodes: Collection[str]) -> list[LoggedRun]:
    """The finished runs that made a value which depends on `nodes`, oldest first.

    Of each sampler among them its last prompt with a run: where ComfyUI did not sample again, that is an older one.
    Where that cannot be told, as no nodes are known or a node sampled in a thread of its own, the runs of the newest prompt.
    """
    different = {id(log): log for log in logs}.values()
    runs = sorted((run for log in different for run in log.runs if run.report.finished), key=lambda run: run.started)
    known = [run for run in runs if run.sampler in nodes]
    if not known:
        placeless = [run for run in runs if run.sampler is None or not nodes]
        return [run for run in placeless if run.prompt == placeless[-1].prompt]
    newest = {run.sampler: run.prompt for run in known}
    return [run for run in known if run.prompt == newest[run.sampler]]
