"""A trial run: is a model's output the same when its blocks are skipped and their known result is put in their place?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap, zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from ..cache_core.types import Streams
from .intercept import BlockInterception, copied
from .observe import form

EXACT = {torch.float32: 1e-5, torch.float64: 1e-5}
EXACT_OF_HALF = 1e-3
"""Difference of two runs of a model on the same numbers, relative to the largest: what a device may not repeat."""

ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-3}
ROUNDING_OF_HALF = 5e-2
"""Mean relative difference between a block's exit and its entry plus (exit - entry)."""


def skipping_is_exact(
    blocks: BlockInterception,
    residual: Streams | None,
    ending: Ending,
    x: Tensor,
    output: Tensor,
    forward: Callable[[], Tensor],
) -> bool:
    """Whether the model, run again with the blocks skipped and their known result put back, gives the same output."""
    replay: Any = Replay(residual or ())
    try:
        with repeatable(x.device), blocks.active(replay, tuple(x.shape)) as again:
            last, _ = blocks.places[again.last]
            with ending.put_back(last):
                repeated = forward()
    except Exception:  # the model cannot do with what the skipped blocks gave it; its output is here already
        return False
    return again.complete and ending.alike and same(repeated, output, ending.dtype)


class Replay:
    """Stands in for a model call that reuses what was just computed."""

    def __init__(self, residual: Streams):
        self.residual = residual

    def decide(self, *_: Any) -> bool:
        return True

    def predict(self) -> Streams:
        return self.residual


class Ending:
    """What the last skipped block returned; put back bit by bit, so that no difference is explained by rounding."""

    def __init__(self):
        self.kept: Any = None
        self.alike = False  # whether what was put in its place is the same but for rounding

    @property
    def dtype(self) -> torch.dtype:
        return tensors(self.kept)[0].dtype

    @contextmanager
    def noted(self, block: nn.Module) -> Iterator[None]:
        def note(module, args, output):
            self.kept = copied(output)

        with block.register_forward_hook(note):
            yield

    @contextmanager
    def put_back(self, block: nn.Module) -> Iterator[None]:
        def replace(module, args, output):
            self.alike = type(output) is type(self.kept) and all(
                starmap(near, zip_longest(*map(tensors, (output, self.kept))))
            )
            return self.kept

        with block.register_forward_hook(replace):
            yield


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Leave the random numbers as they were: a sampler may draw its own from the same generator."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        yield


def memory_of(model: nn.Module) -> list[Any]:
    """What the model remembers from call to call besides weights; one that does must not be run twice."""
    parts = [module for module in model.modules() if any(True for _ in module.children())]
    plain = vars(nn.Module()).keys()
    values = [vars(part)[name] for part in parts for name in vars(part).keys() - plain]
    return [
        remembered(value) for value in values + [buffer for part in parts for buffer in part.buffers(recurse=False)]
    ]


def remembered(value: Any, depth: int = 3) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), float(value.float().norm())
    if isinstance(value, (list, tuple, dict)) and depth:
        parts = value.items() if isinstance(value, dict) else value
        return [remembered(part, depth - 1) for part in parts]
    return value if isinstance(value, (int, float, str)) else id(value)


def same(repeated: Any, output: Any, dtype: torch.dtype) -> bool:
    """Whether two outputs of a model that computes in `dtype` are the same."""
    if not isinstance(repeated, Tensor) or not isinstance(output, Tensor) or repeated.shape != output.shape:
        return False
    difference = (repeated.float() - output.float()).abs().amax()
    return bool(difference <= EXACT.get(dtype, EXACT_OF_HALF) * output.float().abs().amax())


def near(predicted: Tensor | None, kept: Tensor | None) -> bool:
    """Whether two streams differ by no more than rounding."""
    if predicted is None or kept is None or form(predicted) != form(kept):
        return False
    difference = (predicted.float() - kept.float()).abs().mean()
    return bool(difference <= ROUNDING.get(kept.dtype, ROUNDING_OF_HALF) * kept.float().abs().mean())


def tensors(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)
