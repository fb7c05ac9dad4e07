"""The shipped demo workflow and its variants."""

from __future__ import annotations

import json
from typing import Any

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
    workflow = shipped("tiny_demo")
    if method is None:
        workflow[SAMPLER_NODE]["inputs"]["model"] = workflow.pop(CACHE_NODE)["inputs"]["model"]
    else:
        workflow[CACHE_NODE]["class_type"] = method
        if threshold is not None:
            workflow[CACHE_NODE]["inputs"]["threshold"] = threshold
    return with_inputs(workflow, inputs)


def softcache_workflow(**inputs) -> Workflow:
    """The shipped workflow of the SoftCache sampler; `inputs` as for `demo_workflow`."""
    return with_inputs(shipped("tiny_softcache"), inputs)


def stepcache_workflow(**inputs) -> Workflow:
    """The shipped workflow of StepCache; `inputs` as for `demo_workflow`."""
    return with_inputs(shipped("tiny_stepcache"), inputs)


def shipped(name: str) -> Workflow:
    return json.loads((places.WORKFLOWS / "api" / f"{name}.json").read_text(encoding="utf-8"))


def with_inputs(workflow: Workflow, inputs: dict[str, Any]) -> Workflow:
    """The workflow, with these values for every input of their name."""
    for node in workflow.values():
        for name in inputs.keys() & node["inputs"].keys():
            if not (name == "text" and node["inputs"]["text"] == ""):  # the negative prompt stays empty
                node["inputs"][name] = inputs[name]
    return workflow
