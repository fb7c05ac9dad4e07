"""One model call under a cache: for its length, each block's `forward` is shadowed on the instance.

`nn.Module.__call__` looks up `self.forward`, so an instance attribute wins over the class's method. No module moves and
no parameter changes: LoRA, weight streaming, ControlNet indices and `state_dict` see the same model as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import starmap, zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from ..cache_core.method import CacheMethod
from ..cache_core.session import ModelCall
from ..cache_core.types import Streams
from .architecture import Architecture, Arguments, BlockStack, arguments_by_name, unwrapped

MISSING = object()


class BlockInterception:
    """Shadows the blocks of one diffusion model; made once per run and model, active during each call.

    The shadow functions are the same objects for the whole run, so that a compiled model does not recompile.
    """

    def __init__(self, model: nn.Module, architecture: Architecture, method: CacheMethod):
        self.model = unwrapped(model)
        self.architecture = architecture
        self.method = method
        self.places: list[tuple[nn.Module, BlockStack]] = []
        self.shadows: list[Callable] = []
        self.forwards: list[Callable] = []
        self.watch: CallWatch | None = None
        wanted = architecture.time_embedding if not method.probe.needs_head_residual else None
        self.embedding = EmbeddingTap(self.model, wanted)

    @contextmanager
    def active(self, call: ModelCall, latent_shape: tuple[int, ...]) -> Iterator[CallWatch]:
        """Shadow the blocks while the caller runs the model once; restore them whatever happens.

        The block list is read anew for each call, as other nodes may exchange blocks between calls.
        """
        places = list(self.architecture.blocks(self.model))
        if [block for block, _ in places] != [block for block, _ in self.places]:
            self.places = places
            self.shadows = [self._shadow(index) for index in range(len(places))]
        self.watch = CallWatch(self, call, latent_shape)
        saved = [block.__dict__.get("forward", MISSING) for block, _ in places]
        self.forwards = [block.forward for block, _ in places]
        try:
            with self.embedding:
                for (block, _), shadow in zip(places, self.shadows, strict=True):
                    block.__dict__["forward"] = shadow
                yield self.watch
        finally:
            for (block, _), previous in zip(places, saved, strict=True):
                if previous is MISSING:
                    block.__dict__.pop("forward", None)
                else:
                    block.__dict__["forward"] = previous
            self.watch, self.forwards = None, []

    def _shadow(self, index: int) -> Callable:
        def forward(*args, **kwargs):
            assert self.watch is not None
            return self.watch.block(index, self.forwards[index], args, kwargs)

        if "torch._dynamo" in sys.modules:
            return torch.compiler.disable(forward, recursive=False)
        return forward


class CallWatch:
    """Follows one model call block by block: reads the signal, decides, stores or replaces the residual.

    Blocks [first, last] are those that a reused call skips. On a reused call the result is known at the first of them;
    those in between pass on what they are given (the content does not matter), and the last one returns the result, so
    that whatever the model adds between skipped blocks is not counted twice.
    """

    def __init__(self, interception: BlockInterception, call: ModelCall, latent_shape: tuple[int, ...]):
        self.interception = interception
        self.architecture = interception.architecture
        self.method = interception.method
        self.call = call
        boundary = interception.method.boundary
        self.first = boundary.head
        self.last = len(interception.places) - 1 - boundary.tail
        function = self.architecture.image_tokens
        self.image_tokens = function(interception.model, latent_shape) if function else None
        self.noted = False  # block 0 was called: another node may have put something else in its place
        self.reuse = False
        self.ran = 0  # skippable blocks that really ran
        self.entry: Streams = ()
        self.result: Streams = ()
        self.residual: Streams | None = None
        self.replaced = False
        self._first_input: tuple[nn.Module, BlockStack, Arguments] | None = None
        self._head_start: Tensor | None = None
        self._current: Streams = ()

    @property
    def needs_signal(self) -> bool:
        return not self.method.probe.needs_head_residual

    @property
    def complete(self) -> bool:
        """Whether the call went as foreseen: all skippable blocks ran, or the result took the place of the last."""
        if self.reuse:
            return self.replaced
        return self.residual is not None and self.ran == self.last - self.first + 1

    # -- called by the shadows ----------------------------------------------------------------------------------------

    def block(self, index: int, forward: Callable, args: tuple, kwargs: dict) -> Any:
        block, stack = self.interception.places[index]
        if index == 0:
            self._note_first_input(forward, block, stack, args, kwargs)
        if not self.noted or not self.first <= index <= self.last:
            return forward(*args, **kwargs)
        if index == self.first:
            self._enter(stack.read(args, kwargs, self.image_tokens))
        if self.reuse:
            return self._pass_over(index, stack, args, kwargs)
        self.ran += 1
        output = forward(*args, **kwargs)
        if index == self.last:
            self._leave(stack.returned(output, self.image_tokens))
        return output

    def _note_first_input(
        self, forward: Callable, block: nn.Module, stack: BlockStack, args: tuple, kwargs: dict
    ) -> None:
        self.noted = True
        image = stack.read_image(args, kwargs, self.image_tokens)
        if self.image_tokens is None and image.ndim == 3:
            self.image_tokens = image.shape[1]
        if self.needs_signal:
            arguments = dict(arguments_by_name(forward, stack, args, kwargs))
            self._first_input = block, stack, arguments | {stack.image.name: image}
        else:
            self._head_start = image.clone()  # many blocks write into their input

    def _enter(self, streams: Streams) -> None:
        self._current = streams
        self.reuse = self.call.decide(self.method.probe.signal(self))
        if self.reuse:
            self.result = tuple(starmap(added, zip_longest(streams, self.call.predict())))
        else:
            self.entry = tuple(None if stream is None else stream.clone() for stream in self._lasting(streams))
        self._current, self._first_input, self._head_start = (), None, None

    def _pass_over(self, index: int, stack: BlockStack, args: tuple, kwargs: dict) -> Any:
        if index == self.last:
            self.replaced = True
            return stack.output(self.result)
        if len(stack.returns) == 1:
            return stack.image.get(args, kwargs)
        return stack.output(stack.read(args, kwargs, self.image_tokens))

    def _leave(self, streams: Streams) -> None:
        if self.entry:
            ends = zip(self._lasting(streams), self.entry, strict=True)
            self.residual = tuple(None if end is None or start is None else end - start for end, start in ends)
            self.entry = ()

    def _lasting(self, streams: Streams) -> Streams:
        """The streams that still matter after the skippable blocks: text does only if a block or the model reads it."""
        text_matters = self.architecture.text_is_used_after_stacks or self.method.boundary.tail > 0
        return streams if text_matters else streams[:1]

    # -- what probes see ----------------------------------------------------------------------------------------------

    def modulated_input(self) -> Tensor:
        assert self._first_input is not None
        embedding = self.interception.embedding.output
        if embedding is not None:
            return embedding
        block, _, arguments = self._first_input
        return self.architecture.modulated_input(block, arguments)

    def head_residual(self) -> Tensor:
        image = self._current[0]
        assert image is not None and self._head_start is not None
        return image - self._head_start


class EmbeddingTap:
    """Notes the output of one submodule during a call, through a forward hook."""

    def __init__(self, model: nn.Module, path: str | None):
        self.module = model.get_submodule(path) if path else None
        self.output: Tensor | None = None

    def __enter__(self) -> EmbeddingTap:
        self.output = None
        self.handle = self.module.register_forward_hook(self._note) if self.module else None
        return self

    def __exit__(self, *exception) -> None:
        self.output = None
        if self.handle:
            self.handle.remove()

    def _note(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.output = output


def added(stream: Tensor | None, residual: Tensor | None) -> Tensor | None:
    """`stream` + `residual` as a new tensor, in the stream's dtype and on its device."""
    if stream is None or residual is None:
        return stream
    return stream + residual.to(stream.device, stream.dtype, non_blocking=True)
