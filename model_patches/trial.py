"""A trial run: is a model's output the same when its blocks are skipped and their known result is put in their place?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap, zip_longest
from typing import Any

import comfy.model_management
import torch
from torch import Tensor, nn

from ..cache_core.types import Streams
from .intercept import BlockInterception
from .latent import Latent
from .observe import form
from .watch import copied

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
    latent: Latent,
    output: Tensor,
    forward: Callable[[], Tensor],
) -> bool:
    """Whether the model, run again with the blocks skipped and their known result put back, gives the same output."""
    replay: Any = Replay(residual or ())
    try:
        with repeatable(latent.x.device), undisturbed(blocks.model), blocks.active(replay, latent) as again:
            last, _ = blocks.places[again.last]
            with ending.put_back(last):
                repeated = forward()
    except comfy.model_management.InterruptProcessingException:  # an Exception in older ComfyUI
        raise
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


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Put back what a run leaves on the model for later ones: counters, own caches. Layers are ComfyUI's to keep books on."""
    plain = vars(nn.Module()).keys() - {"_buffers"}
    parts = [vars(module) for module in model.modules() if any(True for _ in module.children())]
    kept = [(part, name, part[name], contents_of(part[name])) for part in parts for name in part.keys() - plain]
    try:
        yield
    finally:
        for part, name, value, contents in kept:
            part[name] = value
            if type(value) is dict:
                value.clear()
                value.update(contents)
            elif type(value) is list:
                value[:] = contents


def contents_of(value: Any) -> Any:
    return type(value)(value) if type(value) in (dict, list) else None


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
