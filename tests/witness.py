"""A probe that notes what the cache knows of a model call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from stepcache.model_patches.stacks import Sizes


@dataclass
class Witness:
    """A probe that notes what the cache knows at the first block that can be skipped."""

    signals: list[torch.Tensor] = field(default_factory=list)
    sizes: list[Sizes] = field(default_factory=list)

    def signal(self, view: Any) -> torch.Tensor:
        self.signals.append(view.modulated_input())  # as a policy does: it must not be written into later
        self.sizes.append(view.sizes)
        return self.signals[-1]

    def __deepcopy__(self, memo) -> Witness:
        return self


def tensors(*values) -> list[torch.Tensor]:
    found = []
    for value in values:
        found += tensors(*value) if isinstance(value, tuple | list) else [value] if torch.is_tensor(value) else []
    return found
