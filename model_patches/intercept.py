"""One model call under a cache: for its length, each block's `forward` is shadowed on the instance.

`nn.Module.__call__` looks up `self.forward`, so an instance attribute wins over the class's method. No module moves and
no parameter changes: LoRA, weight streaming, ControlNet indices and `state_dict` see the same model as before.

The code around the blocks is kept out of compiled graphs; the blocks themselves are compiled as without a cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap, zip_longest
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from ..cache_core.method import CacheMethod
from ..cache_core.probes import HeadResidual, TimeEmbedding
from ..cache_core.session import ModelCall
from ..cache_core.types import Streams
from .architecture import Architecture, Arguments, arguments_by_name, unwrapped
from .stacks import BlockStack, Sizes

MISSING = object()
RECORDING = "the blocks keep records for later frames"
MISFITS = (AttributeError, LookupError, TypeError, ValueError, AssertionError, RuntimeError)

log = logging.getLogger("stepcache")

Function = TypeVar("Function", bound=Callable)


def uncompiled(function: Function) -> Function:
    """Kept out of compiled graphs, with everything it calls."""
    return cast(Function, torch.compiler.disable(function))


def around_compiled(function: Function) -> Function:
    """Kept out of compiled graphs, while what it calls may be compiled."""
    return cast(Function, torch.compiler.disable(function, recursive=False))


class BlockInterception:
    """Shadows the blocks of one diffusion model; made once per run and model, active during each call.

    The shadow functions are the same objects for the whole run, so that a compiled model does not recompile.
    """

    def __init__(self, model: nn.Module, architecture: Architecture, method: CacheMethod):
        self.model = unwrapped(model)
        self.architecture = architecture
        self.exchanges_rows = architecture.exchanges_rows
        self.method = method
        self.places: list[tuple[nn.Module, BlockStack]] = []
        self.shadows: dict[int, Callable] = {}
        self.forwards: dict[int, Callable] = {}
        self.watch: CallWatch | None = None
        self.misfit = (
            False  # the entry reads something that this model does not have: no more use for this interception
        )
        tapped = architecture.time_embedding if isinstance(method.probe, TimeEmbedding) else None
        self.embedding = EmbeddingTap(self.model, tapped)

    def run(self, call: ModelCall, base: Any, x: Tensor, t: Tensor, forward: Callable[[], Tensor]) -> Tensor:
        """One model call; `forward` runs the model."""
        with self.active(call, tuple(x.shape)) as watch:
            output = forward()
        if watch.reuse and watch.complete:
            call.reused()
            return output
        if watch.reuse:  # a block that should have returned the result was never called: the output is worthless
            output = forward()
        if self.misfit:
            call.computed_unseen()
        else:
            call.computed(watch.residual if watch.complete else None)
        return output

    @contextmanager
    def active(self, call: ModelCall, latent_shape: tuple[int, ...]) -> Iterator[CallWatch]:
        """Shadow the blocks while the caller runs the model once; restore them whatever happens.

        The block list is read anew for each call, as other nodes may exchange blocks between calls.
        """
        self.places = list(self.architecture.blocks(self.model))
        self.watch = CallWatch(self, call, latent_shape)
        modules = [block for block, _ in self.places] + self._idle_modules()
        saved = [module.__dict__.get("forward", MISSING) for module in modules]
        self.forwards = dict(enumerate(module.forward for module in modules))
        own_caches = {name: getattr(self.model, name) for name in self.architecture.own_caches}
        try:
            with self.embedding:
                for index, module in enumerate(modules):
                    module.__dict__["forward"] = self._shadow(index)
                yield self.watch
        finally:
            for module, previous in zip(modules, saved, strict=True):
                module.__dict__.pop("modules", None)
                if previous is MISSING:
                    module.__dict__.pop("forward", None)
                else:
                    module.__dict__["forward"] = previous
            if self.watch.reuse:
                vars(self.model).update(own_caches)
            self.watch, self.forwards = None, {}

    def keep_weights_away(self, first: int, last: int) -> None:
        """For the rest of this call, hide the weights of skipped blocks from ComfyUI, which would load them ahead.

        Some models queue all their blocks for loading, and the queue asks each for its `modules()` when its turn comes.
        """
        for block, _ in self.places[first : last + 1]:
            block.__dict__["modules"] = no_modules

    def _idle_modules(self) -> list[nn.Module]:
        """Modules beside the blocks that have nothing to do on a reused call."""
        assert self.watch is not None
        return self.architecture.idle_modules(self.model, self.watch.last) if self.architecture.idle_modules else []

    def _shadow(self, index: int) -> Callable:
        if index not in self.shadows:

            @around_compiled
            def forward(*args, **kwargs):
                watch = self.watch
                assert watch is not None
                if not watch.reuse and index not in watch.watched:  # most blocks of a computed call: nothing to do
                    return self.forwards[index](*args, **kwargs)
                return watch.block(index, self.forwards[index], args, kwargs)

            self.shadows[index] = forward
        return self.shadows[index]


def no_modules() -> tuple[nn.Module, ...]:
    return ()


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
        self.first = max(boundary.head, self.architecture.always_run)
        tail = min(boundary.tail, self.first) if self.architecture.long_skips else boundary.tail
        self.last = len(interception.places) - 1 - tail
        self.watched = {0, self.first, self.last}
        self.latent_shape = latent_shape
        self.sizes = Sizes(latent_shape[0])
        self.unforeseen = False  # another node runs the model in parts, or more than once
        self.noted = False  # block 0 was called: another node may have put something else in its place
        self.refusal: str | None = None
        self.reuse = False
        self.entry: Streams = ()
        self.result: Streams = ()
        self.residual: Streams | None = None
        self.replaced = False
        self._first_input: Arguments = {}
        self._head_start: Tensor | None = None
        self._references = 0
        self._current: Streams = ()

    @property
    def ended(self) -> bool:
        """Whether the last skippable block was called."""
        return self.replaced or self.residual is not None

    @property
    def complete(self) -> bool:
        """Whether the last skippable block left a residual, or on a reused call was replaced by the result."""
        return not self.unforeseen and (self.replaced if self.reuse else self.residual is not None)

    # -- called by the shadows ----------------------------------------------------------------------------------------

    @around_compiled
    def block(self, index: int, forward: Callable, args: tuple, kwargs: dict) -> Any:
        if index >= len(self.interception.places):
            return self._idle(forward, args, kwargs)
        _, stack = self.interception.places[index]
        if index == 0:
            with self._judging_fit():
                self._note_first_input(args, kwargs)
        if self.unforeseen or not self.noted or not self.first <= index <= self.last:
            return forward(*args, **kwargs)
        if index == self.first:
            self._enter(stack, args, kwargs)
        if index == self.last and self.ended:
            self.unforeseen = True
        if self.reuse:
            return self._pass_over(index, stack, args, kwargs)
        output = forward(*args, **kwargs)
        if index == self.last and self.entry:
            with self._judging_fit():
                self._leave(stack.returned(output, self.sizes))
        return output

    @contextmanager
    def _judging_fit(self) -> Iterator[None]:
        """A class that ComfyUI changed may lack what its entry reads; that must not cost the picture."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except MISFITS:
            log.exception("StepCache: the entry of %s does not fit", type(self.interception.model).__name__)
            self.unforeseen = self.interception.misfit = True

    def _idle(self, forward: Callable, args: tuple, kwargs: dict) -> Any:
        if not self.reuse:
            return forward(*args, **kwargs)
        passed_on = args[0] if args else kwargs["x"]
        return (passed_on, passed_on) if self.architecture.idle_pairs else passed_on

    @uncompiled
    def _note_first_input(self, args: tuple, kwargs: dict) -> None:
        block, stack = self.interception.places[0]
        self.unforeseen, self.noted = self.noted, True
        arguments = arguments_by_name(block, stack, args, kwargs)
        self.sizes = self._measure(stack, args, kwargs, arguments)
        image = stack.read(args, kwargs, self.sizes)[0]
        assert image is not None
        if image.shape[0] != self.sizes.rows:
            self.unforeseen = True
        if self.unforeseen:
            return
        if self.architecture.records and arguments.get(self.architecture.records) is not None:
            self.refusal = RECORDING
        self._references = reference_tokens(kwargs, image)
        image = self._target(image)
        if isinstance(self.method.probe, HeadResidual):
            self._head_start = image.clone()  # many blocks write into their input
        else:
            self._first_input = {**arguments, stack.image.name: image}

    def _measure(self, stack: BlockStack, args: tuple, kwargs: dict, arguments: Arguments) -> Sizes:
        rows = self.latent_shape[0]
        if self.architecture.image_tokens:
            tokens = self.architecture.image_tokens(self.interception.model, self.latent_shape, arguments)
        else:
            image = stack.read(args, kwargs, Sizes(rows))[0]
            tokens = image.shape[1] if image is not None and image.ndim == 3 else 0
        return Sizes(rows, tokens)

    def _target(self, image: Tensor) -> Tensor:
        """The tokens of the picture itself: reference images follow them, are constant, and would dilute a change."""
        return image[:, : image.shape[1] - self._references] if self._references else image

    @uncompiled
    def _enter(self, stack: BlockStack, args: tuple, kwargs: dict) -> None:
        with self._judging_fit():
            streams = self._current = stack.read(args, kwargs, self.sizes)
            signal = self.method.probe.signal(self)
        if self.unforeseen:
            return
        layout = tuple(stream if stream is None else (stream.shape, stream.dtype) for stream in streams)
        self.reuse = self.call.decide(signal, layout, self.refusal)
        if self.reuse:
            self.result = tuple(starmap(added, zip_longest(streams, self.call.predict())))
            self.interception.keep_weights_away(self.first, self.last)
        else:
            self.entry = tuple(None if stream is None else stream.clone() for stream in self._lasting(streams))
        self._current, self._first_input, self._head_start = (), {}, None

    @uncompiled
    def _pass_over(self, index: int, stack: BlockStack, args: tuple, kwargs: dict) -> Any:
        if index == self.last:
            self.replaced = True
            return stack.output(self.result, args, kwargs)
        passed = stack.echo(args, kwargs)
        # The model may write into what it takes for a block's result, and still hold what it gave to the first.
        return copied(passed) if index == self.first else passed

    @uncompiled
    def _leave(self, streams: Streams) -> None:
        ends = list(zip(self._lasting(streams), self.entry, strict=True))
        if all(end is None or start is None or end.shape == start.shape for end, start in ends):
            self.residual = tuple(None if end is None or start is None else end - start for end, start in ends)
        self.entry = ()

    def _lasting(self, streams: Streams) -> Streams:
        """The streams that still matter after the skippable blocks: text mostly does only if another block reads it."""
        needed = self.architecture.all_streams_end or self.last < len(self.interception.places) - 1
        return streams if needed else streams[:1]

    # -- what probes see ----------------------------------------------------------------------------------------------

    def modulated_input(self) -> Tensor:
        return self.architecture.modulated_input(self.interception.places[0][0], self._first_input)

    def time_embedding(self) -> Tensor:
        """Of a model without one (the second of a run, say), its modulated input instead."""
        embedding = self.interception.embedding.output
        return self.modulated_input() if embedding is None else embedding

    def head_residual(self) -> Tensor:
        image = self._current[0]
        assert image is not None and self._head_start is not None
        return self._target(image) - self._head_start


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

    @uncompiled
    def _note(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.output = output


def reference_tokens(arguments: Mapping[str, Any], image: Tensor) -> int:
    """How many tokens at the end of the image stream belong to reference images, as far as the model tells."""
    options = arguments.get("transformer_options") or {}
    count = sum(options.get("reference_image_num_tokens") or ())
    return count if count < image.shape[1] else 0


def copied(value: Any) -> Any:
    """The value with its tensors copied."""
    if isinstance(value, Tensor):
        return value.clone()
    return tuple(copied(part) for part in value) if isinstance(value, tuple) else value


def added(stream: Tensor | None, residual: Tensor | None) -> Tensor | None:
    """`stream` + `residual` as a new tensor, in the stream's dtype and on its device."""
    if stream is None or residual is None:
        return stream
    return stream + residual.to(stream.device, stream.dtype, non_blocking=True)
