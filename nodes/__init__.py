"""The nodes that people see. Node ids, input names and their order are a public contract: workflows hold them."""

import logging

from comfy_api.latest import io

from .compare import CacheCompare
from .compose import ComposeCache
from .planned_nodes import PLANNED_NODES
from .report import CacheReport
from .threshold_nodes import THRESHOLD_NODES

log = logging.getLogger("stepcache")


def available_nodes() -> list[type[io.ComfyNode]]:
    """All nodes that this ComfyUI can show."""
    nodes, after_sampling = [*THRESHOLD_NODES, *PLANNED_NODES], [CacheReport, CacheCompare]
    if hasattr(io, "DynamicCombo"):
        return [*nodes, ComposeCache, *after_sampling]
    log.warning("StepCache: this ComfyUI has no inputs that depend on others, so %s is left out", ComposeCache.title)
    return [*nodes, *after_sampling]


NODES = available_nodes()

__all__ = ["NODES"]
