"""The nodes that people see. Node ids, input names and their order are a public contract: workflows hold them."""

from .planned_nodes import PLANNED_NODES
from .threshold_nodes import THRESHOLD_NODES

NODES = [*THRESHOLD_NODES, *PLANNED_NODES]

__all__ = ["NODES"]
