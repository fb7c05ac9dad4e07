"""A node that shows what the caches of a workflow did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from comfy_api.latest import io, ui

from .base import CATEGORY
from .plot import runs_plot
from .runs import LoggedRun, RunLog, log_of, runs_behind, upstream
from .sheet import as_image, text_card

VERSION = 1
"""Of the JSON; rises when a field changes its meaning or goes away."""

MOST_DRAWN = 8
"""Runs in the picture; a sampler that works in tiles makes many more."""

NO_CACHE = (
    "No cache is on this model. Connect the MODEL output of the cache node, as the sampler has it. If it is connected, the "
    "node is bypassed or switched off (threshold 0)."
)
NO_RUN = (
    "What is connected to `after` was not sampled with this cached model. Give the sampler the model of the cache node, and "
    "connect what comes out of the sampler, or anything made of it, to `after`."
)


class CacheReport(io.ComfyNode):
    """Reads the runs from the model: what its cache node's execution has logged."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        template = io.MatchType.Template("after")
        return io.Schema(
            node_id="StepCacheReport",
            display_name="Cache Report",
            category=CATEGORY,
            description="Shows what the cache did while a picture was sampled: which evaluations were computed and reused, "
            "the signal against the threshold, time and memory; as a picture, as text and as JSON.",
            search_aliases=["report", "plot", "statistics", "cache", "step cache", "speedup"],
            inputs=[
                cached_input("model", "The cached model, as the sampler has it, or a sampler that brings a cache."),
                io.MatchType.Input(
                    "after",
                    template,
                    tooltip="What the sampler made, or anything made of it (latent, picture): the report is made after it, "
                    "of the runs behind it.",
                ),
                cached_input(
                    "model_2",
                    "A second one whose runs belong to the same result, such as the other expert of Wan 2.2.",
                    optional=True,
                ),
            ],
            outputs=[
                io.Image.Output(
                    "image", tooltip=f"A plot of each run, one below the other; of the last {MOST_DRAWN} at most."
                ),
                io.String.Output("summary", tooltip="The figures as text."),
                io.String.Output("json", tooltip="Everything as JSON, to be saved: every evaluation of every run."),
                io.MatchType.Output(template, "after", tooltip="What came in at `after`, unchanged."),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, model, after, model_2=None) -> io.NodeOutput:
        found = map(log_of, filter(None, (model, model_2)))
        logs = list(dict.fromkeys(log for log in found if log))  # once, if both inputs are of one cache
        runs = runs_behind(logs, upstream(cls.hidden.prompt or {}, str(cls.hidden.unique_id), "after"))
        reports = [as_dict(run) for run in runs]
        image, summary = as_image(picture_of(runs, logs)), summary_of(runs, logs)
        shown = ui.PreviewImage(image, cls=cls).as_dict() | {"text": (summary,), "stepcache_reports": reports}
        text = json.dumps({"version": VERSION, "runs": reports}, indent=1)
        return io.NodeOutput(image, summary, text, after, ui=shown)


def cached_input(name: str, tooltip: str, optional: bool = False) -> io.Input:
    return io.MultiType.Input(name, [io.Model, io.Sampler], tooltip=tooltip, optional=optional)


def as_dict(run: LoggedRun) -> dict[str, Any]:
    return {"sampler": run.sampler, "prompt_id": run.prompt, **run.report.as_dict()}


def titles(runs: Sequence[LoggedRun]) -> list[str]:
    """Method and model of each run; numbered, and with the node that sampled, where there are several."""
    named = [f"{run.report.method} on {run.report.model}" for run in runs]
    if len(runs) == 1:
        return named
    return [
        f"Run {number} (node {run.sampler}): {name}"
        for number, (run, name) in enumerate(zip(runs, named, strict=True), 1)
    ]


def problem(logs: Sequence[RunLog]) -> str:
    return NO_RUN if logs else NO_CACHE


def picture_of(runs: Sequence[LoggedRun], logs: Sequence[RunLog]):
    if not runs:
        return text_card("Nothing to report", [problem(logs)])
    titled = [(title, run.report) for title, run in zip(titles(runs), runs, strict=True)]
    return runs_plot(titled[-MOST_DRAWN:], max(len(titled) - MOST_DRAWN, 0))


def summary_of(runs: Sequence[LoggedRun], logs: Sequence[RunLog]) -> str:
    if not runs:
        return problem(logs)
    return "\n\n".join(f"{title}\n{run.report.summary()}" for title, run in zip(titles(runs), runs, strict=True))
