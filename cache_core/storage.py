"""Where cached tensors live between evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

CacheDevice = Literal["auto", "gpu", "cpu"]
CACHE_DEVICES: tuple[CacheDevice, ...] = ("auto", "gpu", "cpu")


@dataclass
class Storage:
    """Puts tensors on the device chosen by the user.

    Args:
        device: "gpu" keeps tensors where they were computed, "cpu" moves them to main memory, "auto" keeps them on the
            compute device as long as `spare_memory` bytes are left there.
        spare_memory: bytes that could still be used on a device without disturbing the host program.
    """

    device: CacheDevice = "auto"
    spare_memory: Callable[[torch.device], float] = lambda device: float("inf")

    def keep(self, tensor: Tensor) -> Tensor:
        """The tensor where it shall stay until it is needed; the same object if it is there already."""
        if tensor.device.type == "cpu" or self.device == "gpu":
            return tensor
        if self.device == "auto" and self.spare_memory(tensor.device) > 0:
            return tensor
        return tensor.to("cpu")
