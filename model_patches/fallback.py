"""Models that are not in the table: their blocks are found by watching one call, or else the output is cached.

A guess is only used after a check on the real thing: the model is run a second time on the same input with the blocks
skipped, and must give the same output.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from ..cache_core.method import CacheMethod
from ..cache_core.session import ModelCall
from ..cache_core.types import Streams
from .architecture import Architecture, unwrapped
from .intercept import BlockInterception
from .observe import ListObserver, candidates

LEARNING = "watching how an unlisted model works"

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
TOLERANCE_OF_HALF = 3e-2
"""Relative difference between a computed output and the same with the blocks skipped that rounding explains."""


class OutputInterception:
    """Caches what the model says of a latent: the derivative (x - denoised) / sigma, held until the next computed call.

    The signal, whatever the method's probe, is the model's input.
    """

    def run(self, call: ModelCall, base: Any, x: Tensor, t: Tensor, forward: Callable[[], Tensor]) -> Tensor:
        signal = base.model_sampling.calculate_input(t, x).clone()
        if call.decide(signal, (x.shape, x.dtype)):
            (derivative,) = call.predict()
            assert derivative is not None
            call.reused()
            return x - per_latent(t, x) * derivative.to(x.device)
        output = forward()
        self.store(call, x, t, output)
        return output

    def store(self, call: ModelCall, x: Tensor, t: Tensor, output: Tensor) -> None:
        call.computed(((x - output) / per_latent(t, x),) if output.shape == x.shape else None)


class LearningInterception:
    """Watches the first call, checks what it learned at the next, and then reuses by blocks or by output."""

    exchanges_rows = True  # for all that is known

    def __init__(self, model: nn.Module, method: CacheMethod, say: Callable[[str], None]):
        self.model = unwrapped(model)
        self.method = method
        self.say = say
        self.blocks: BlockInterception | None = None
        self.chosen: BlockInterception | OutputInterception | None = None

    def run(self, call: ModelCall, base: Any, x: Tensor, t: Tensor, forward: Callable[[], Tensor]) -> Tensor:
        if self.chosen:
            return self.chosen.run(call, base, x, t, forward)
        output = self._check(call, x, forward) if self.blocks else self._watch(call, x, forward)
        if isinstance(self.chosen, OutputInterception):
            self.chosen.store(call, x, t, output)
        return output

    def _watch(self, call: ModelCall, x: Tensor, forward: Callable[[], Tensor]) -> Tensor:
        call.decide(None, refusal=LEARNING)
        observers = [ListObserver(*candidate) for candidate in candidates(self.model)]
        with ExitStack() as watching:
            for observer in observers:
                watching.enter_context(observer)
            output = forward()
        architecture = found(self.model, observers, x.shape[0])
        if architecture and self._enough_blocks(architecture):
            self.blocks = BlockInterception(self.model, architecture, self.method)
            call.computed_unseen()
        else:
            self._give_up()
        return output

    def _check(self, call: ModelCall, x: Tensor, forward: Callable[[], Tensor]) -> Tensor:
        assert self.blocks
        shape = tuple(x.shape)
        with self.blocks.active(call, shape) as watch:
            output = forward()
        if watch.complete and watch.residual is not None:
            replay = Replay(watch.residual)
            with self.blocks.active(replay, shape) as again:  # type: ignore[arg-type]
                repeated = forward()
            if again.complete and same(repeated, output, watch.residual):
                self.chosen = self.blocks
                stack = self.blocks.architecture.stacks[0]
                self.say(
                    f"{type(self.model).__name__} is not in StepCache's list of models. Its {len(self.blocks.places)} "
                    f"blocks ({stack.path}) were found by watching it, and skipping them was checked once."
                )
                call.computed(watch.residual)
                return output
        self._give_up()
        return output

    def _enough_blocks(self, architecture: Architecture) -> bool:
        boundary = self.method.boundary
        return sum(1 for _ in architecture.blocks(self.model)) > boundary.head + boundary.tail

    def _give_up(self) -> None:
        self.blocks, self.chosen = None, OutputInterception()
        kind = "a U-Net" if hasattr(self.model, "input_blocks") else "not in StepCache's list of models"
        self.say(
            f"{type(self.model).__name__} is {kind} and has no plain run of blocks: whole outputs are reused "
            "instead, judged by the change of the latent."
        )


class Replay:
    """Stands in for a model call that reuses what was just computed."""

    def __init__(self, residual: Streams):
        self.residual = residual

    def decide(self, *_: Any) -> bool:
        return True

    def predict(self) -> Streams:
        return self.residual


def found(model: nn.Module, observers: list[ListObserver], rows: int) -> Architecture | None:
    """The watched list with the most weights whose blocks hand streams from one to the next."""

    def weights(observer: ListObserver) -> int:
        return sum(parameter.numel() for block in observer.blocks for parameter in block.parameters())

    for observer in sorted(observers, key=weights, reverse=True):
        stack = observer.stack(rows)
        if stack:
            return Architecture(type(model).__name__, (stack,), stack.first_stream, all_streams_end=True)
    return None


def same(repeated: Tensor, output: Tensor, residual: Streams) -> bool:
    """Whether two outputs differ by no more than rounding of the streams explains."""
    if repeated.shape != output.shape:
        return False
    difference = (repeated.float() - output.float()).abs().mean()
    tolerance = max(TOLERANCE.get(stream.dtype, TOLERANCE_OF_HALF) for stream in residual if stream is not None)
    return bool(difference <= tolerance * output.float().abs().mean())


def per_latent(t: Tensor, x: Tensor) -> Tensor:
    """(B,) -> (B, 1, ...), to go with x."""
    return t.view(-1, *[1] * (x.ndim - 1)).to(x)
