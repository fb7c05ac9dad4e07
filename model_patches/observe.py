"""Find out how a model's blocks take and return their streams, by watching them during one call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .architecture import Arguments, unwrapped
from .stacks import Args, Argument, BlockStack, Kwargs, Sizes

FEWEST_BLOCKS = 4

Key = int | str
"""Of an argument: its position, or its name where it was passed by name."""


def candidates(model: nn.Module) -> Iterator[tuple[str, list[nn.Module]]]:
    """(path, blocks) of each list of like modules that is not inside another such list."""
    taken: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, (nn.ModuleList, nn.ModuleDict)) or path.startswith(tuple(taken)):
            continue
        blocks = list(module.values() if isinstance(module, nn.ModuleDict) else module)
        if len(blocks) >= FEWEST_BLOCKS and len({type(unwrapped(block)) for block in blocks}) == 1:
            taken.append(path + ".")
            yield path, blocks


@dataclass(frozen=True)
class ObservedStack(BlockStack):
    """Streams in `carried` arguments, in the order in which the blocks return them (as a tuple, or the only one bare)."""

    carried: tuple[Argument, ...] = ()
    in_tuple: bool = False

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.carried

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> tuple[Tensor, ...]:
        return tuple(argument.get(args, kwargs) for argument in self.carried)

    def returned(self, output: Any, sizes: Sizes) -> tuple[Tensor, ...]:
        return tuple(output) if self.in_tuple else (output,)

    def output(self, streams: Any, args: Args, kwargs: Kwargs) -> Any:
        return streams if self.in_tuple else streams[0]

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        return self.output(tuple(argument.get(args, kwargs) for argument in self.carried), args, kwargs)

    def first_stream(self, block: nn.Module, arguments: Arguments) -> Tensor:
        return arguments[self.image.name].clone()


@dataclass
class ListObserver:
    """Watches the blocks of one list through hooks; holds no more than one block's output at a time."""

    path: str
    blocks: list[nn.Module]
    order: list[int] = field(default_factory=list)  # indices as called
    handed: list[tuple[Key | None, ...]] = field(default_factory=list)  # which argument each returned tensor became
    regular: bool = True  # whether all that was returned had the same form, and went on unchanged in shape
    in_tuple: bool = False
    rows: set[int] = field(default_factory=set)
    _last: tuple[Any, ...] | None = None

    def __enter__(self) -> ListObserver:
        self.handles = []
        for index, block in enumerate(self.blocks):
            self.handles.append(block.register_forward_pre_hook(self._before(index), with_kwargs=True))
            self.handles.append(block.register_forward_hook(self._after))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._last = None
        for handle in self.handles:
            handle.remove()

    def _before(self, index: int):
        def note(module: nn.Module, args: tuple, kwargs: dict) -> None:
            self.order.append(index)
            if self._last is not None and len(self.order) > 1:
                arguments: dict[Key, Any] = {**dict(enumerate(args)), **kwargs}
                self.handed.append(tuple(carrier(value, arguments) for value in self._last))
                self._check_shapes(arguments)
            self._last = None

        return note

    def _check_shapes(self, arguments: dict[Key, Any]) -> None:
        """Where a tensor was replaced on the way, its argument must still look like it."""
        known = next((keys for keys in self.handed if None not in keys), None)
        assert self._last is not None
        for key, value in zip(known or (), self._last, strict=False):
            given = arguments.get(key) if key is not None else None
            self.regular &= isinstance(given, Tensor) and given.shape == value.shape and given.dtype == value.dtype

    def _after(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.in_tuple = isinstance(output, tuple)
        values = output if isinstance(output, tuple) else (output,)
        self.regular &= all(isinstance(value, Tensor) and value.ndim >= 2 for value in values)
        self.rows |= {value.shape[0] for value in values if isinstance(value, Tensor) and value.ndim}
        self._last = values

    def stack(self, rows: int) -> ObservedStack | None:
        """The stack as observed; None if the blocks are no plain run of blocks over a batch of `rows`."""
        keys = {keys for keys in self.handed if None not in keys}
        plain = self.regular and self.order == list(range(len(self.blocks))) and self.rows == {rows}
        if not plain or len(keys) != 1:
            return None
        carried = tuple(argument(self.blocks[0], key) for key in keys.pop() if key is not None)
        return ObservedStack(self.path, carried[0], carried, self.in_tuple)


def carrier(value: Any, arguments: dict[Key, Any]) -> Key | None:
    """The argument that is this very tensor."""
    return next((key for key, given in arguments.items() if given is value), None)


def argument(block: nn.Module, key: Key) -> Argument:
    _self, *names = inspect.signature(type(unwrapped(block)).forward).parameters
    if isinstance(key, str):
        return Argument(key, names.index(key) if key in names else 0)
    return Argument(names[key] if key < len(names) else f"argument {key}", key)
