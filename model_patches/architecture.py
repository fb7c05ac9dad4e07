"""What the cache has to know of a model class. The table itself is in `architectures.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .stacks import Args, BlockStack, Kwargs

Arguments = Mapping[str, Any]
"""The arguments of a block call by name."""

ModulatedInputFunction = Callable[[nn.Module, Arguments], Tensor]
"""(block 0, its arguments by name) -> its modulated image input, (B, N, D)."""

ImageTokensFunction = Callable[[nn.Module, tuple[int, ...], Arguments], int]
"""(diffusion model, latent shape, arguments of block 0) -> the number of image tokens in a joined stream."""

IdleModulesFunction = Callable[[nn.Module, int], list[nn.Module]]
"""(diffusion model, index of the last skippable block) -> modules whose results are not needed once blocks are skipped."""


@dataclass(frozen=True)
class Architecture:
    """What the cache has to know of a model class.

    Args:
        name: for people.
        stacks: the block stacks in execution order.
        modulated_input: TeaCache's signal, computed from the arguments of block 0.
        covers: the models of this class by the names people know, where `name` does not say it.
        time_embedding: path of the submodule that embeds the timestep, for models whose TeaCache figures are of that.
        image_tokens: needed only where the first stack already joins streams.
        idle_modules: modules beside the blocks that have nothing to do on a reused call. They pass on their first
            argument, or in a model with `idle_pairs` that twice.
        all_streams_end: whether the model goes on with every stream after the blocks, not with the image alone.
        long_skips: whether late blocks take what early ones returned, last in first out (U-shaped models).
        exchanges_rows: whether the model exchanges the halves of a batch inside; a stored result then belongs to the
            rows of the same batch only.
        always_run: how many of the first blocks run on every call, because something after the blocks needs what they
            leave behind.
        records: an argument that a block fills for later calls, where it is given one; such calls are computed.
        own_caches: attributes of the model that a reused call puts back, as it would fill them with nothing.
    """

    name: str
    stacks: tuple[BlockStack, ...]
    modulated_input: ModulatedInputFunction
    covers: str = ""
    time_embedding: str | None = None
    image_tokens: ImageTokensFunction | None = None
    idle_modules: IdleModulesFunction | None = None
    idle_pairs: bool = False
    all_streams_end: bool = False
    long_skips: bool = False
    exchanges_rows: bool = False
    always_run: int = 0
    records: str | None = None
    own_caches: tuple[str, ...] = ()

    def blocks(self, model: nn.Module) -> Iterator[tuple[nn.Module, BlockStack]]:
        """Every block of the model in execution order, with the stack that it belongs to."""
        for stack in self.stacks:
            modules = model.get_submodule(stack.path)
            for block in modules.values() if isinstance(modules, nn.ModuleDict) else modules.children():
                yield block, stack


def unwrapped(model: nn.Module) -> nn.Module:
    """The module behind torch.compile's wrapper, or the module itself."""
    return getattr(model, "_orig_mod", model)


def arguments_by_name(block: nn.Module, stack: BlockStack, args: Args, kwargs: Kwargs) -> Arguments:
    """The arguments of a block call by name. Blocks that take `*args` are read through the stack's entry.

    The names are those of the block's class: a compiled block's own `forward` has lost them.
    """
    named = {argument.name: argument.get(args, kwargs) for argument in stack.arguments}
    _self, *parameters = inspect.signature(type(unwrapped(block)).forward).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return named | dict(kwargs)
    return named | dict(zip((parameter.name for parameter in parameters), args, strict=False)) | dict(kwargs)
