"""How the blocks of a model take and return their token streams: one small class per convention.

Inside the cache a stream always has the batch first. A convention turns a block's arguments and return value into
streams, and streams back into a return value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..cache_core.types import Streams

Args = Sequence[Any]
Kwargs = Mapping[str, Any]


@dataclass(frozen=True)
class Argument:
    """An argument of a block's forward: its name, and its place when it is passed by position."""

    name: str
    position: int

    def get(self, args: Args, kwargs: Kwargs) -> Any:
        return kwargs[self.name] if self.name in kwargs else args[self.position]


@dataclass(frozen=True)
class Sizes:
    """What a block's tensors alone do not tell.

    Args:
        rows: the latents in the batch.
        image_tokens: the tokens of the image stream, where one tensor holds two streams.
    """

    rows: int
    image_tokens: int = 0


@dataclass(frozen=True)
class BlockStack:
    """A run of blocks with one stream, which is also what they return.

    Args:
        path: attribute path of the ModuleList (or ModuleDict) on the diffusion model.
        image: the argument with the image (or video, audio, shape) tokens, (B, N, D) or (B, T, H, W, D).
    """

    path: str
    image: Argument = Argument("x", 0)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments that hold streams."""
        return (self.image,)

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        """The streams that a block call was given."""
        return (self.image.get(args, kwargs),)

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        """The streams in a block's return value."""
        return (output,)

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        """The return value of a block that was called with these arguments and ends with `streams`."""
        return streams[0]

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        """The return value of a block that does nothing."""
        return self.image.get(args, kwargs)


@dataclass(frozen=True)
class TwoStreams(BlockStack):
    """Image and text tokens in arguments of their own; `returns` is the order in which a block returns them."""

    text: Argument = Argument("txt", 1)
    returns: tuple[str, ...] = ("image", "text")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.image, self.text

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        return self.image.get(args, kwargs), self.text.get(args, kwargs)

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        by_name = dict(zip(self.returns, output, strict=True))
        return by_name["image"], by_name["text"]

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        by_name = {"image": streams[0], "text": streams[1]}
        return tuple(by_name[name] for name in self.returns)

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        return self.output((self.image.get(args, kwargs), self.text.get(args, kwargs)), args, kwargs)


@dataclass(frozen=True)
class JoinedStreams(BlockStack):
    """Image and other tokens in one tensor, (B, N + T, D)."""

    order: Literal["text_first", "image_first"] = "text_first"

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        return self.returned(self.image.get(args, kwargs), sizes)

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        if self.order == "text_first":
            text_tokens = output.shape[1] - sizes.image_tokens
            return output[:, text_tokens:], output[:, :text_tokens]  # (B, N, D), (B, T, D)
        return output[:, : sizes.image_tokens], output[:, sizes.image_tokens :]

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        image, text = streams
        assert image is not None and text is not None
        return torch.cat((text, image) if self.order == "text_first" else (image, text), dim=1)


@dataclass(frozen=True)
class StreamPair(BlockStack):
    """Two streams in one tuple, such as LTX-2's (video, audio): (B, N, D) and (B, M, E), M = 0 without audio."""

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        return tuple(self.image.get(args, kwargs))

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        return tuple(output)

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        return streams


@dataclass(frozen=True)
class BatchInside(BlockStack):
    """One stream whose batch is not the first dimension: at `batch_dim`, or nowhere if that is None (batch 1)."""

    batch_dim: int | None = None

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        return self.returned(self.image.get(args, kwargs), sizes)

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        return (output.unsqueeze(0) if self.batch_dim is None else output.movedim(self.batch_dim, 0),)

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        stream = streams[0]
        assert stream is not None
        return stream.squeeze(0) if self.batch_dim is None else stream.movedim(0, self.batch_dim)


@dataclass(frozen=True)
class PackedStreams(BlockStack):
    """SeedVR2: the tokens of all latents one after the other, video (B * N, D) and text (T, D); echoes `others`.

    Blocks return the arguments `image`, `text` and `others` in this order. Latents have texts of different lengths, so
    those stay in one piece; as the model exchanges rows, they only ever go back to the same batch.
    """

    text: Argument = Argument("txt", 1)
    others: tuple[Argument, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.image, self.text

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> Streams:
        return packed_rows(self.image.get(args, kwargs), sizes.rows), self.text.get(args, kwargs)

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        return packed_rows(output[0], sizes.rows), output[1]

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        video, text = streams
        assert video is not None
        return video.flatten(0, 1), text, *(other.get(args, kwargs) for other in self.others)

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        return tuple(argument.get(args, kwargs) for argument in (self.image, self.text, *self.others))


@dataclass(frozen=True)
class CachingStream(BlockStack):
    """A language model's layers: they return (tokens, (keys, values, length)), of which a skipped one has nothing."""

    def returned(self, output: Any, sizes: Sizes) -> Streams:
        return (output[0],)

    def output(self, streams: Streams, args: Args, kwargs: Kwargs) -> Any:
        assert streams[0] is not None
        nothing = streams[0].new_empty(1, 1, 0, 1)
        return streams[0], (nothing, nothing, 0)

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        return self.output((self.image.get(args, kwargs),), args, kwargs)


def packed_rows(tokens: Tensor, rows: int) -> Tensor:
    """(B * N, D) -> (B, N, D); (1, B * N, D) if the latents' tokens do not divide evenly."""
    return tokens.unflatten(0, (rows, -1)) if tokens.shape[0] % rows == 0 else tokens.unsqueeze(0)
