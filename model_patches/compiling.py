"""Keeping the cache's own code out of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable)


def uncompiled(function: Function) -> Function:
    """Kept out of compiled graphs, with everything it calls."""
    return cast(Function, torch.compiler.disable(function))


def around_compiled(function: Function) -> Function:
    """Kept out of compiled graphs, while what it calls may be compiled."""
    return cast(Function, torch.compiler.disable(function, recursive=False))
