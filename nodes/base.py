"""What the cache nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from comfy_api.latest import io

from ..cache_core.method import Plan
from ..model_patches.install import apply_cache
from ..model_patches.variants import Facts
from .inputs import check_settings, out_of_range, shared_inputs
from .progress import NodeProgress
from .runs import ATTACHMENT, RunLog

CATEGORY = "StepCache"

Settings = Mapping[str, Any]
"""The values of a node's inputs by name, without the model."""


class CacheNode(io.ComfyNode):
    """Takes a model and returns it with a cache on it. A subclass says who it is, its own inputs, and its plan."""

    node_id: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    aliases: ClassVar[list[str]]

    @classmethod
    def own_inputs(cls) -> list[io.Input]:
        """The inputs before those that all nodes share. Add new ones to `later_inputs`."""
        raise NotImplementedError

    @classmethod
    def shared_inputs(cls) -> list[io.Input]:
        return shared_inputs()

    @classmethod
    def later_inputs(cls) -> list[io.Input]:
        """Optional inputs behind the shared ones; prompts made before they came do not have them."""
        return []

    @classmethod
    def plan(cls, model, settings: Settings, run_facts: Facts | None = None) -> Plan | None:
        """What to do with the model, with `run_facts` in the run that they are of; None to leave the model as it is."""
        raise NotImplementedError

    @classmethod
    def plan_of_run(cls, model, settings: Settings, run_facts: Facts) -> Plan:
        plan = cls.plan(model, settings, run_facts)
        assert plan is not None
        return plan

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id=cls.node_id,
            display_name=cls.title,
            category=CATEGORY,
            description=cls.description,
            search_aliases=[*cls.aliases, "cache", "step cache", "speed up", "faster"],
            inputs=[
                io.Model.Input("model", tooltip="The diffusion model to speed up."),
                *cls.own_inputs(),
                *cls.shared_inputs(),
                *cls.later_inputs(),
            ],
            outputs=[io.Model.Output(tooltip="The same model, with the cache on it. Connect it to the sampler.")],
            hidden=[io.Hidden.unique_id],
            # Else ComfyUI gives a node the output of another with the same inputs, and runs are shown on that one.
            not_idempotent=True,
        )

    @classmethod
    def validate_inputs(
        cls, threshold=None, start_percent=None, end_percent=None, max_consecutive=None, speedup=None
    ) -> bool | str:
        return check_settings(threshold, start_percent, end_percent, max_consecutive, speedup) or True

    @classmethod
    def execute(cls, model, **settings) -> io.NodeOutput:
        names = ("threshold", "start_percent", "end_percent", "max_consecutive", "speedup")
        problem = check_settings(**{name: settings[name] for name in names if name in settings})
        others = [entry for entry in (*cls.own_inputs(), *cls.later_inputs()) if entry.id not in names]
        problem = problem or out_of_range(others, settings)
        if problem:
            raise ValueError(problem)
        plan = cls.plan(model, settings)
        if plan is None:
            return io.NodeOutput(model)
        log = RunLog(NodeProgress(cls.hidden.unique_id))
        cached = apply_cache(
            model,
            plan.method,
            log,
            settings["cache_device"],
            settings=plan.settings,
            messages=plan.messages,
            at_start=partial(cls.plan_of_run, model, settings),
        )
        cached.set_attachments(ATTACHMENT, log)
        return io.NodeOutput(cached)
