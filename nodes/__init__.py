"""The nodes that people see. Node ids, input names and their order are a public contract: workflows hold them."""

import logging

from comfy_api.latest import io

from .auto import StepCache
from .calibrate import Calibrate
from .compose import ComposeCache
from .planned_nodes import PLANNED_NODES
from .profiles import LoadProfile, SaveProfile
from .sampler_nodes import SAMPLER_NODES
from .threshold_nodes import THRESHOLD_NODES

log = logging.getLogger("stepcache")


def available_nodes() -> list[type[io.ComfyNode]]:
    """All nodes that this ComfyUI can show."""
    nodes = [StepCache, *THRESHOLD_NODES, *PLANNED_NODES, Calibrate, LoadProfile, SaveProfile]
    if hasattr(io, "DynamicCombo"):
        return [*nodes, ComposeCache, *SAMPLER_NODES]
    log.warning("StepCache: this ComfyUI has no inputs that depend on others, so %s is left out", ComposeCache.title)
    return [*nodes, *SAMPLER_NODES]


NODES = available_nodes()

__all__ = ["NODES"]
