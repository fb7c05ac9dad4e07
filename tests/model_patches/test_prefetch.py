"""Models that load the weights of all their blocks ahead: those of skipped blocks are not loaded."""

from __future__ import annotations

import comfy.model_management
import comfy.model_prefetch
import comfy.ops
import pytest
import torch

from ..caching import METHODS, PERMISSIVE, between, cached, cached_by
from ..sampling import main_layer, run
from ..tiny_models import blocks_of, shared

prefetching = pytest.mark.parametrize("name", ["ltx_av", "minimax_h3"])


class Loads:
    """Runs ComfyUI's own queue on the CPU, where it has none, and notes which weights it would load ahead."""

    def __init__(self, patcher):
        self.blocks = blocks_of(patcher)
        self.owner = {
            layer: index
            for index, block in enumerate(self.blocks)
            for layer in block.modules()
            if isinstance(layer, torch.nn.Linear)
        }
        self.calls: list[list[int]] = []  # of each model call: the blocks
        self.pop = comfy.model_prefetch.prefetch_queue_pop

    def make_queue(self, blocks, device, options):
        self.calls.append([])
        return [None, *blocks, None]

    def pop_streamed(self, queue, device, module):
        """With every layer marked as streamed while the queue looks, and not while the layers compute."""
        for layer in self.owner:
            layer.__dict__["_v"] = None
        try:
            self.pop(queue, device, module)
        finally:
            for layer in self.owner:
                del layer.__dict__["_v"]

    def load(self, layers, *args):
        self.calls[-1] += sorted({self.owner[layer] for layer in layers})


@pytest.fixture
def watched(monkeypatch):
    def watch(patcher) -> Loads:
        loads = Loads(patcher)
        monkeypatch.setattr(comfy.model_prefetch, "make_prefetch_queue", loads.make_queue)
        monkeypatch.setattr(comfy.model_prefetch, "prefetch_queue_pop", loads.pop_streamed)
        monkeypatch.setattr(comfy.ops, "cast_modules_with_vbar", loads.load)
        monkeypatch.setattr(comfy.model_management, "ensure_pin_registerable", lambda size: None)
        return loads

    return watch


@prefetching
@pytest.mark.parametrize(("head", "tail"), [(0, 0), (1, 0), (1, 1), (2, 1)])
def test_weights_of_skipped_blocks_are_not_loaded(watched, name, head, tail):
    """The decision falls in the first block that can be skipped, whose weights have come before."""
    tiny = shared(name)
    loads = watched(tiny.patcher)
    run(cached_by(tiny.patcher, between(head, tail)).patcher, tiny, steps=4)
    everything, needed = [0, 1, 2, 3], [*range(head + 1), *range(4 - tail, 4)]
    assert loads.calls == [everything, needed, needed, everything]


@prefetching
@pytest.mark.parametrize("method", METHODS)
def test_no_block_is_left_without_its_modules(watched, name, method):
    tiny = shared(name)
    loads = watched(tiny.patcher)
    run(cached(tiny.patcher, method, PERMISSIVE).patcher, tiny, steps=4)
    assert all("modules" not in vars(block) for block in loads.blocks)


@prefetching
def test_no_block_is_left_without_its_modules_after_an_exception(watched, name):
    """Raised by a block behind the skipped ones, on a reused call."""
    tiny = shared(name)
    loads = watched(tiny.patcher)
    hidden = []

    def stop(*args):
        hidden.append(["modules" in vars(block) for block in loads.blocks])
        if any(hidden[-1]):
            raise RuntimeError("stop")

    handle = main_layer(loads.blocks[-1]).register_forward_pre_hook(stop)
    with pytest.raises(RuntimeError, match="stop"):
        run(cached_by(tiny.patcher, between(1, 1)).patcher, tiny, steps=4)
    handle.remove()
    assert hidden[-1] == [False, True, True, False]
    assert all("modules" not in vars(block) for block in loads.blocks)
