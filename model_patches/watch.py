"""What happens at the blocks of one model call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import starmap, zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..cache_core.model_call import ModelCall
from ..cache_core.probes import HeadResidual
from ..cache_core.spectral import token_grid
from ..cache_core.types import Streams
from .architecture import Arguments, arguments_by_name
from .compiling import around_compiled, uncompiled
from .latent import Latent
from .stacks import BlockStack, Sizes

if TYPE_CHECKING:
    from .intercept import BlockInterception

RECORDING = "the blocks keep records for later frames"
UNFILTERED = "how the tokens lie in the latent is not known for this model: its input is judged unfiltered"
MISFITS = (AttributeError, LookupError, TypeError, ValueError, AssertionError, RuntimeError)

log = logging.getLogger("stepcache")


class CallWatch:
    """Follows one model call block by block: reads the signal, decides, stores or replaces the residual.

    Blocks [first, last] are those that a reused call skips. On a reused call the result is known at the first of them;
    those in between pass on what they are given (the content does not matter), and the last one returns the result, so
    that whatever the model adds between skipped blocks is not counted twice.
    """

    def __init__(self, interception: BlockInterception, call: ModelCall, latent: Latent):
        self.interception = interception
        self.architecture = interception.architecture
        self.method = interception.method
        self.call = call
        boundary = interception.method.boundary
        self.first = max(boundary.head, self.architecture.always_run)
        tail = min(boundary.tail, self.first) if self.architecture.long_skips else boundary.tail
        self.last = len(interception.places) - 1 - tail
        self.watched = {0, self.first, self.last}
        self.latent = latent
        self.sizes = Sizes(latent.shape[0])
        self.unforeseen = False  # another node runs the model in parts, or more than once
        self.noted = False  # block 0 was called: another node may have put something else in its place
        self.refusal: str | None = None
        self.reuse = False
        self.entry: Streams = ()
        self.result: Streams = ()
        self.value: Streams | None = None  # exit - entry, or the exit
        self.replaced = False
        self._first_input: Arguments = {}
        self._head_start: Tensor | None = None
        self._references = 0
        self._current: Streams = ()

    @property
    def ended(self) -> bool:
        """Whether the last skippable block was called."""
        return self.replaced or self.value is not None

    @property
    def complete(self) -> bool:
        """Whether the last skippable block left a value, or on a reused call was replaced by the result."""
        return not self.unforeseen and (self.replaced if self.reuse else self.value is not None)

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
        rows = self.latent.shape[0]
        if self.architecture.image_tokens:
            tokens = self.architecture.image_tokens(self.interception.model, self.latent.shape, arguments)
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
            start = streams if self.method.boundary.difference else ()
            self.result = tuple(starmap(added, zip_longest(streams, self.call.predict(), start)))
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
            difference = self.method.boundary.difference
            self.value = tuple(
                None if end is None or start is None else end - start if difference else end.clone()
                for end, start in ends
            )
        self.entry = ()

    def _lasting(self, streams: Streams) -> Streams:
        """The streams that still matter after the skippable blocks: text mostly does only if another block reads it."""
        needed = self.architecture.all_streams_end or self.last < len(self.interception.places) - 1
        return streams if needed else streams[:1]

    # -- what probes see ----------------------------------------------------------------------------------------------

    def modulated_input(self) -> Tensor:
        return self.architecture.modulated_input(self.interception.places[0][0], self._first_input)

    def time_embedding(self) -> Tensor:
        """Of a model without one (the second of a run, say) or with other rows, its modulated input instead."""
        embedding = self.interception.embedding.output
        if embedding is None or embedding.shape[0] != self.sizes.rows:
            return self.modulated_input()
        return embedding

    def head_residual(self) -> Tensor:
        image = self._current[0]
        assert image is not None and self._head_start is not None
        return self._target(image) - self._head_start

    def model_input(self) -> Tensor:
        return self.latent.model_input()

    def signal_and_noise(self) -> tuple[Tensor, Tensor]:
        return self.latent.signal_and_noise()

    def grid(self, tokens: Tensor) -> tuple[int, ...] | None:
        found = tuple(tokens.shape[1:-1]) if tokens.ndim > 3 else token_grid(self.latent.shape, tokens.shape[1])
        if found is None:
            self.call.session.report.message(UNFILTERED)
        return found


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


def added(stream: Tensor | None, value: Tensor | None, start: Tensor | None) -> Tensor | None:
    """`start` + `value` as a new tensor, or `value` alone, in the dtype of `stream` and on its device; else `stream`."""
    if stream is None or value is None:
        return stream
    value = value.to(stream.device, stream.dtype, non_blocking=True)
    return value.clone() if start is None else start + value
