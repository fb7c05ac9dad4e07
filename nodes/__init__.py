"""The nodes that people see. Node ids, input names and their order are a public contract: workflows hold them."""

import logging

from comfy_api.latest import io

from .auto import StepCache
from .calibrate import Calibrate
from .compare import CacheCompare
from .compose import ComposeCache
from .planned_nodes import PLANNED_NODES
from .profiles import LoadProfile, SaveProfile
from .report import CacheReport
from .sampler_nodes import SAMPLER_NODES
from .threshold_nodes import THRESHOLD_NODES

log = logging.getLogger("stepcache")


def available_nodes() -> list[type[io.ComfyNode]]:
    """All nodes that this ComfyUI can show."""
    cached = [StepCache, *THRESHOLD_NODES, *PLANNED_NODES]
    others = [*SAMPLER_NODES, Calibrate, LoadProfile, SaveProfile, CacheReport, CacheCompare]
    if hasattr(io, "DynamicCombo"):
        return [*cached, ComposeCache, *others]
    log.warning("StepCache: this ComfyUI has no inputs that depend on others, so %s is left out", ComposeCache.title)
    return [*cached, *others]


NODES = available_nodes()

__all__ = ["NODES"]
