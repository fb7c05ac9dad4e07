"""Find out how a model's blocks take and return their streams, by watching them during one call."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
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
    """Streams in `carried` arguments, the image first; a block returns them at `places` of a tuple, or the only one bare."""

    carried: tuple[Argument, ...] = ()
    places: tuple[int, ...] = (0,)
    in_tuple: bool = False

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.carried

    def read(self, args: Args, kwargs: Kwargs, sizes: Sizes) -> tuple[Tensor, ...]:
        return tuple(argument.get(args, kwargs) for argument in self.carried)

    def returned(self, output: Any, sizes: Sizes) -> tuple[Tensor, ...]:
        return tuple(output[place] for place in self.places) if self.in_tuple else (output,)

    def output(self, streams: Any, args: Args, kwargs: Kwargs) -> Any:
        by_place = dict(zip(self.places, streams, strict=True))
        return tuple(by_place[place] for place in sorted(by_place)) if self.in_tuple else streams[0]

    def echo(self, args: Args, kwargs: Kwargs) -> Any:
        return self.output(tuple(argument.get(args, kwargs) for argument in self.carried), args, kwargs)

    def first_stream(self, block: nn.Module, arguments: Arguments) -> Tensor:
        return arguments[self.image.name].clone()

    def led_by(self, place: int) -> ObservedStack:
        """The same with the stream returned at `place` as the image."""
        first = self.places.index(place)
        order = [first, *(other for other in range(len(self.places)) if other != first)]
        carried, places = tuple(self.carried[i] for i in order), tuple(self.places[i] for i in order)
        return replace(self, image=carried[0], carried=carried, places=places)


@dataclass
class ListObserver:
    """Watches the blocks of one list through hooks; holds no more than one block's output at a time."""

    path: str
    blocks: list[nn.Module]
    order: list[int] = field(default_factory=list)  # indices as called
    handed: list[tuple[Key | None, ...]] = field(default_factory=list)  # which argument each returned tensor became
    regular: bool = True  # whether only tensors were returned, and went on unchanged in shape
    forms: set[Hashable] = field(default_factory=set)  # of what was returned: in a tuple or not, shapes, dtypes
    entry: dict[Key, Fingerprint] = field(default_factory=dict)  # what the first block was given
    work: int = 0  # parameters times tokens
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
            arguments: dict[Key, Any] = {**dict(enumerate(args)), **kwargs}
            if not self.order:
                self.entry = {key: fingerprint(value) for key, value in arguments.items() if is_stream(value)}
            elif self._last is not None:
                self.handed.append(tuple(carrier(value, arguments) for value in self._last))
                self._check_shapes(arguments)
            self.order.append(index)
            self._last = None

        return note

    def _check_shapes(self, arguments: dict[Key, Any]) -> None:
        """Where a tensor was replaced on the way, its argument must still look like it."""
        known = next((keys for keys in self.handed if None not in keys), None)
        assert self._last is not None
        for key, value in zip(known or (), self._last, strict=False):
            given: Any = arguments.get(key) if key is not None else None
            self.regular &= is_stream(given) and is_stream(value) and form(given) == form(value)

    def _after(self, module: nn.Module, args: tuple, output: Any) -> None:
        in_tuple = type(output) is tuple  # a named tuple has more to it than its order
        values = output if in_tuple else (output,)
        self._last = values
        if not all(map(is_stream, values)):
            self.regular = False
            return
        self.forms.add((in_tuple, *map(form, values)))
        if values:
            self.work += (
                values[0].numel() // values[0].shape[-1] * sum(weight.numel() for weight in module.parameters())
            )

    def stack(self, rows: int) -> ObservedStack | None:
        """The stack as observed, led by its largest stream; None if it is no plain run of blocks over `rows` latents."""
        keys = {keys for keys in self.handed if None not in keys}
        if not self.regular or self.order != list(range(len(self.blocks))) or len(keys) != 1 or len(self.forms) != 1:
            return None
        (handed,), ((in_tuple, *forms),) = keys, self.forms  # type: ignore[misc]
        fits = all(key in self.entry and self.entry[key].form == form for key, form in zip(handed, forms, strict=True))
        if not fits or len(set(handed)) != len(handed) or any(shape[0] != rows for shape, _ in forms):
            return None
        carried = tuple(argument(self.blocks[0], key) for key in handed if key is not None)
        stack = ObservedStack(self.path, carried[0], carried, tuple(range(len(carried))), in_tuple)
        return stack.led_by(self._largest(handed))

    def image(self, before: ListObserver) -> int | None:
        """The place of the stream that is the picture: the largest whose entry has changed since an earlier call.

        None if none has: the blocks then work on the text alone, say, and tell nothing of how the picture changes.
        """
        handed = next(keys for keys in self.handed if None not in keys)
        changed = [key for key in handed if self.entry[key].norm != before.entry[key].norm]  # type: ignore[index]
        return handed.index(changed[self._largest(changed)]) if changed else None

    def _largest(self, keys: Sequence[Key | None]) -> int:
        return max(range(len(keys)), key=lambda index: self.entry[keys[index]].size)  # type: ignore[index]


@dataclass(frozen=True)
class Fingerprint:
    """Enough of a tensor to see whether another differs, without holding it."""

    form: tuple[torch.Size, torch.dtype]
    norm: Tensor  # 0-d; reading it waits for the device

    @property
    def size(self) -> int:
        return self.form[0].numel()


def fingerprint(tensor: Tensor) -> Fingerprint:
    return Fingerprint(form(tensor), torch.linalg.vector_norm(tensor, dtype=torch.float32))


def form(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def is_stream(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim >= 2 and value.is_floating_point() and value.numel() > 0


def carrier(value: Any, arguments: dict[Key, Any]) -> Key | None:
    """The argument that is this very tensor."""
    return next((key for key, given in arguments.items() if given is value), None)


def argument(block: nn.Module, key: Key) -> Argument:
    _self, *names = inspect.signature(type(unwrapped(block)).forward).parameters
    if isinstance(key, str):
        return Argument(key, names.index(key) if key in names else 0)
    return Argument(names[key] if key < len(names) else f"argument {key}", key)
