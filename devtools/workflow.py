"""The shipped demo workflow and its variants."""

from __future__ import annotations

import json

from . import places
from .client import Workflow

CACHE_NODE, SAMPLER_NODE = "2", "7"


def demo_workflow(method: str | None = "StepCacheTeaCache", threshold: float | None = None, **inputs) -> Workflow:
    """The demo workflow with another cache node, or with none.

    Args:
        method: node id of the cache node; None samples uncached.
        threshold: of the cache node; None leaves the workflow's.
        **inputs: values for every input of that name in the workflow (steps, seed, width, text is the prompt, ...).
    """
    workflow = json.loads((places.WORKFLOWS / "api" / "tiny_demo.json").read_text(encoding="utf-8"))
    if method is None:
        workflow[SAMPLER_NODE]["inputs"]["model"] = workflow.pop(CACHE_NODE)["inputs"]["model"]
    else:
        workflow[CACHE_NODE]["class_type"] = method
        if threshold is not None:
            workflow[CACHE_NODE]["inputs"]["threshold"] = threshold
    for node in workflow.values():
        for name in inputs.keys() & node["inputs"].keys():
            if not (name == "text" and node["inputs"]["text"] == ""):  # the negative prompt stays empty
                node["inputs"][name] = inputs[name]
    return workflow
