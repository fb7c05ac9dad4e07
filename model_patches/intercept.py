"""One model call under a cache: for its length, each block's `forward` is shadowed on the instance.

`nn.Module.__call__` looks up `self.forward`, so an instance attribute wins over the class's method. No module moves and
no parameter changes: LoRA, weight streaming, ControlNet indices and `state_dict` see the same model as before.

The code around the blocks is kept out of compiled graphs; the blocks themselves are compiled as without a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from ..cache_core.method import CacheMethod
from ..cache_core.model_call import ModelCall
from ..cache_core.probes import TimeEmbedding
from .architecture import Architecture, unwrapped
from .compiling import around_compiled, uncompiled
from .latent import Latent
from .stacks import BlockStack
from .watch import CallWatch

MISSING = object()


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
        self.misfit = False  # the entry reads something that this model does not have: of no more use
        tapped = architecture.time_embedding if isinstance(method.probe, TimeEmbedding) else None
        self.embedding = EmbeddingTap(self.model, tapped)

    def run(self, call: ModelCall, latent: Latent, forward: Callable[[], Tensor]) -> Tensor:
        """One model call; `forward` runs the model."""
        with self.active(call, latent) as watch:
            output = forward()
        if watch.reuse and watch.complete:
            call.reused()
            return output
        if watch.reuse:  # a block that should have returned the result was never called: the output is worthless
            output = forward()
        if self.misfit:
            call.computed_unseen()
        else:
            call.computed(watch.value if watch.complete else None)
        return output

    @contextmanager
    def active(self, call: ModelCall, latent: Latent) -> Iterator[CallWatch]:
        """Shadow the blocks while the caller runs the model once; restore them whatever happens.

        The block list is read anew for each call, as other nodes may exchange blocks between calls.
        """
        self.places = list(self.architecture.blocks(self.model))
        self.watch = CallWatch(self, call, latent)
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
