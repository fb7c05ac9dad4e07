"""The declarative types that describe a model to the cache. The table itself is in `architectures.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..cache_core.types import Streams

Arguments = Mapping[str, Any]
"""The arguments of a block call by name."""


@dataclass(frozen=True)
class Argument:
    """An argument of a block's forward: its name, and its place when it is passed by position."""

    name: str
    position: int

    def get(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs[self.name] if self.name in kwargs else args[self.position]


@dataclass(frozen=True)
class BlockStack:
    """A run of blocks that share one way of taking and returning token streams.

    Args:
        path: attribute path of the ModuleList (or ModuleDict) on the diffusion model.
        image: the argument with the image tokens, or with all tokens where `joint` is given; (B, N, D).
        text: the argument with the text tokens, if the block takes them separately.
        joint: how the two streams lie in a joint argument.
        returns: the order of the returned streams, where a block returns two.
    """

    path: str
    image: Argument
    text: Argument | None = None
    joint: Literal["text_first", "image_first"] | None = None
    returns: tuple[str, ...] = ("image",)

    def read(self, args: Sequence[Any], kwargs: Mapping[str, Any], image_tokens: int | None) -> Streams:
        """The streams that a block call was given, as (image, text)."""
        image = self.image.get(args, kwargs)
        if self.joint:
            return self._split(image, image_tokens)
        return (image, self.text.get(args, kwargs)) if self.text else (image,)

    def read_image(self, args: Sequence[Any], kwargs: Mapping[str, Any], image_tokens: int | None) -> Tensor:
        """The image tokens that a block call was given."""
        image = self.read(args, kwargs, image_tokens)[0]
        assert image is not None
        return image

    def returned(self, output: Any, image_tokens: int | None) -> Streams:
        """The streams in a block's return value, as (image, text)."""
        if self.joint:
            return self._split(output, image_tokens)
        if len(self.returns) == 1:
            return (output,)
        by_name = dict(zip(self.returns, output, strict=True))
        return by_name["image"], by_name["text"]

    def output(self, streams: Streams) -> Any:
        """The return value of a block that ends with `streams`."""
        if self.joint:
            image, text = streams
            assert image is not None and text is not None
            return torch.cat((text, image) if self.joint == "text_first" else (image, text), dim=1)
        if len(self.returns) == 1:
            return streams[0]
        image, text = streams
        return tuple(image if name == "image" else text for name in self.returns)

    def _split(self, joint: Tensor, image_tokens: int | None) -> Streams:
        assert image_tokens is not None
        if self.joint == "text_first":
            text_tokens = joint.shape[1] - image_tokens
            return joint[:, text_tokens:], joint[:, :text_tokens]  # (B, N, D), (B, T, D)
        return joint[:, :image_tokens], joint[:, image_tokens:]


ModulatedInputFunction = Callable[[nn.Module, Arguments], Tensor]
"""(block 0, its arguments by name) -> its modulated image input, (B, N, D)."""

ImageTokensFunction = Callable[[nn.Module, tuple[int, ...]], int]
"""(diffusion model, latent shape) -> the number of image tokens at the end of a joint stream."""

IdleModulesFunction = Callable[[nn.Module, int], list[nn.Module]]
"""(diffusion model, index of the last skippable block) -> modules that take a stream and return (addition, stream)."""


@dataclass(frozen=True)
class Architecture:
    """What the cache has to know of a model class.

    Args:
        name: for people.
        stacks: the block stacks in execution order.
        modulated_input: TeaCache's signal, computed from the arguments of block 0.
        time_embedding: path of the submodule that embeds the timestep, for models whose TeaCache figures are of that.
        image_tokens: needed only where the first stack already has a joint stream.
        idle_modules: modules beside the blocks that have nothing to do on a reused call.
    """

    name: str
    stacks: tuple[BlockStack, ...]
    modulated_input: ModulatedInputFunction
    time_embedding: str | None = None
    image_tokens: ImageTokensFunction | None = None
    idle_modules: IdleModulesFunction | None = None

    def blocks(self, model: nn.Module) -> Iterator[tuple[nn.Module, BlockStack]]:
        """Every block of the model in execution order, with the stack that it belongs to."""
        for stack in self.stacks:
            modules = model.get_submodule(stack.path)
            for block in modules.values() if isinstance(modules, nn.ModuleDict) else modules.children():
                yield block, stack


def unwrapped(model: nn.Module) -> nn.Module:
    """The module behind torch.compile's wrapper, or the module itself."""
    return getattr(model, "_orig_mod", model)


def arguments_by_name(block: nn.Module, stack: BlockStack, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments of a block call by name. Blocks that take `*args` are read through the stack's entry.

    The names are those of the block's class: a compiled block's own `forward` has lost them.
    """
    named = {argument.name: argument.get(args, kwargs) for argument in (stack.image, stack.text) if argument}
    _self, *parameters = inspect.signature(type(unwrapped(block)).forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return named | dict(kwargs)
    return named | dict(zip((parameter.name for parameter in parameters), args, strict=False)) | dict(kwargs)
