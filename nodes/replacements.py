"""Nodes of other packs that open as ours where those packs are not installed, so that old workflows keep running.

Widgets are those of the packs' newest versions, in their order. Inputs are taken over where they mean the same; model types
are dropped, as the model is recognised. Nodes that compile models or move their blocks are not replaced: they are no
caches, and ComfyUI has nodes of its own for that.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfy_api.latest import ComfyAPI, io

log = logging.getLogger("stepcache")

SHARED = {"start_percent": 0.0, "end_percent": 1.0, "max_consecutive": 0, "cache_device": "auto"}
AUTOMATIC = {"threshold": -1.0}

NodeEntry = dict[str, Any]
"""A node of an API prompt: `class_type`, `inputs`, and mostly `_meta`."""


@dataclass(frozen=True)
class Replacement:
    """How a node of another pack becomes one of ours.

    Args:
        old, pack: its id and where it is from.
        widgets: its widgets in order, with their defaults.
        new: id of our node.
        taken: our inputs whose value is that of an old one, by our name.
        fixed: our inputs with a value that nothing in the old node tells.
        switch: its widget that switches it off, if it has one.
        off: values of ours that do that.
    """

    old: str
    pack: str
    widgets: Mapping[str, Any]
    new: str
    taken: Mapping[str, str]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    switch: str | None = None
    off: Mapping[str, Any] = field(default_factory=dict)

    @property
    def renamed(self) -> dict[str, str]:
        """Our inputs by the names of the old ones that they come from."""
        return {"model": "model", **self.taken}

    @property
    def values(self) -> dict[str, Any]:
        """Our inputs that do not come from the old node."""
        return {name: value for name, value in (SHARED | dict(self.fixed)).items() if name not in self.taken}

    def declared(self) -> io.NodeReplace:
        """As ComfyUI and its page take it. They know no switch."""
        taken = [{"new_id": new, "old_id": old} for new, old in self.renamed.items()]
        values = [{"new_id": name, "set_value": value} for name, value in self.values.items()]
        return io.NodeReplace(
            new_node_id=self.new,
            old_node_id=self.old,
            old_widget_ids=list(self.widgets),
            input_mapping=[*taken, *values],  # pyright: ignore[reportArgumentType]
            output_mapping=[{"new_idx": 0, "old_idx": 0}],
        )

    def ours(self, node: NodeEntry) -> NodeEntry:
        """Our node for an old one of an API prompt. Widgets that are left out have their defaults."""
        inputs = {**self.widgets, **node["inputs"]}
        taken = {name: inputs[old] for name, old in self.renamed.items() if old in inputs}
        off = self.off if self.switch and inputs[self.switch] is False else {}
        return {**node, "class_type": self.new, "inputs": {**taken, **self.values, **off}}


REPLACEMENTS = (
    Replacement(
        "TeaCache",
        "ComfyUI-TeaCache",
        {"model_type": "flux", "rel_l1_thresh": 0.4, "start_percent": 0.0, "end_percent": 1.0, "cache_device": "cuda"},
        "StepCacheTeaCache",
        {"threshold": "rel_l1_thresh", "start_percent": "start_percent", "end_percent": "end_percent"},
    ),
    Replacement(
        "WanVideoTeaCacheKJ",
        "ComfyUI-KJNodes",
        {"rel_l1_thresh": 0.275, "start_percent": 0.1, "end_percent": 1.0, "cache_device": "offload_device",
         "coefficients": "i2v_480"},
        "StepCacheTeaCache",
        {"threshold": "rel_l1_thresh", "start_percent": "start_percent", "end_percent": "end_percent"},
    ),
    Replacement(
        "MagCache",
        "ComfyUI-MagCache",
        {"model_type": "wan2.1_t2v_1.3B", "magcache_thresh": 0.06, "retention_ratio": 0.2, "magcache_K": 2,
         "start_step": 0, "end_step": -1},
        "StepCacheMagCache",
        {"threshold": "magcache_thresh", "max_skip_steps": "magcache_K", "retention": "retention_ratio"},
        {"profile_file": ""},
    ),
    Replacement(
        "ApplyFBCacheOnModel",
        "Comfy-WaveSpeed",
        {"object_to_patch": "diffusion_model", "residual_diff_threshold": 0.0, "start": 0.0, "end": 1.0,
         "max_consecutive_cache_hits": -1},
        "StepCacheFirstBlockCache",
        {"start_percent": "start", "end_percent": "end"},
        AUTOMATIC,  # on Flux its threshold was of the block's output, not of the residual
    ),
    Replacement(
        "TaylorSeer",
        "ComfyUI-TaylorSeer",
        {"model_type": "flux", "fresh_threshold": 6, "max_order": 2, "first_enhance": 3, "last_enhance": 50},
        "StepCacheTaylorSeer",
        {"interval": "fresh_threshold", "order": "max_order", "warmup_steps": "first_enhance"},
        {"basis": "hermite", "time": "step"},
    ),
    Replacement(
        "TaylorSeerLite",
        "ComfyUI-TaylorSeer",
        {"model_type": "flux", "fresh_threshold": 6, "max_order": 2, "first_enhance": 3, "last_enhance": 50},
        "StepCacheTaylorSeer",
        {"interval": "fresh_threshold", "order": "max_order", "warmup_steps": "first_enhance"},
        {"basis": "hermite", "time": "step"},
    ),
    Replacement(
        "CacheDiT_Model_Optimizer",
        "ComfyUI-CacheDiT",
        {"enable": True, "model_type": "Auto", "warmup_steps": 0, "skip_interval": 0, "print_summary": True},
        "StepCacheFirstBlockCache",
        {},
        AUTOMATIC,  # its interval counted calls that are reused, and 0 stood for a table of its own
        "enable",
        {"threshold": 0.0},
    ),
    Replacement(
        "CacheDiT_LTX2_Optimizer",
        "ComfyUI-CacheDiT",
        {"enable": True, "warmup_steps": 10, "skip_interval": 5, "noise_scale": 0.001, "print_summary": True},
        "StepCacheTaylorSeer",
        {"interval": "skip_interval", "warmup_steps": "warmup_steps"},
        {"order": 0, "basis": "taylor", "time": "step"},
        "enable",
        {"interval": 1},
    ),
    Replacement(
        "WanCacheOptimizer",
        "ComfyUI-CacheDiT",
        {"enable": True, "warmup_steps": 4, "skip_interval": 2, "print_summary": True},
        "StepCacheTaylorSeer",
        {"interval": "skip_interval", "warmup_steps": "warmup_steps"},
        {"order": 0, "basis": "taylor", "time": "step"},
        "enable",
        {"interval": 1},
    ),
)  # fmt: skip

BY_OLD_ID = {replacement.old: replacement for replacement in REPLACEMENTS}


async def register_replacements() -> None:
    """Tell ComfyUI of the replacements. It uses one only while no installed pack has a node of the old id."""
    from server import PromptServer

    server = getattr(PromptServer, "instance", None)  # there is none where nodes are loaded without a server
    interface = getattr(ComfyAPI(), "node_replacement", None)
    if server is None or interface is None or not hasattr(io, "NodeReplace"):
        log.info("StepCache: this ComfyUI cannot replace nodes of other packs: change old workflows by hand")
        return
    for replacement in REPLACEMENTS:
        await interface.register(replacement.declared())
    server.add_on_prompt_handler(replace_in_prompt)


def replace_in_prompt(posted: dict[str, Any]) -> dict[str, Any]:
    """What is posted to `/prompt`, with our nodes for old ones.

    ComfyUI would do it by what was registered, but fails where a node leaves out an input or has no `_meta`, which only
    the page writes.
    """
    import nodes  # ComfyUI's

    prompt, installed = posted.get("prompt"), nodes.NODE_CLASS_MAPPINGS  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(prompt, dict):
        posted["prompt"] = {name: replaced(node, installed) for name, node in prompt.items()}
    return posted


def replaced(node: Any, installed: Collection[str]) -> Any:
    """Our node, if this is an old one that no installed pack has. Nothing is known of a posted node yet."""
    if not (isinstance(node, dict) and isinstance(node.get("inputs"), dict)):
        return node
    kind = node.get("class_type")
    found = BY_OLD_ID.get(kind) if isinstance(kind, str) and kind not in installed else None
    return found.ours(node) if found else node
