"""Small models that run their blocks in ways a cache cannot foresee, inside a real ComfyUI BaseModel."""

from __future__ import annotations

import torch
from torch import nn

from .tiny_models import TinyModel, build, fill

WIDTH = 16
COUNT = 5


class Block(nn.Module):
    """(B, N, D) -> (B, N, D), steered by the timestep."""

    def __init__(self, hidden: int = 2 * WIDTH):
        super().__init__()
        self.inside = nn.Linear(WIDTH, hidden)
        self.outside = nn.Linear(hidden, WIDTH)

    def forward(self, x, emb):
        return x + self.outside(torch.tanh(self.inside(x + emb)))


class Plain(nn.Module):
    """The model that the others depart from; its blocks can be found and skipped."""

    block: type[nn.Module] = Block

    def __init__(self):
        super().__init__()
        self.dtype = torch.float32
        self.entry, self.exit = nn.Linear(16, WIDTH), nn.Linear(WIDTH, 16)
        self.time, self.text = nn.Linear(1, WIDTH), nn.Linear(4096, WIDTH)
        self.layers = nn.ModuleList(self.block() for _ in range(COUNT))

    def forward(self, x, timestep, context=None, control=None, transformer_options=None, **kwargs):
        emb = self.time(timestep[:, None, None].sin().to(x.dtype))
        text = self.text(nn.functional.pad(context, (0, 4096 - context.shape[-1])))
        tokens = self.run(self.entry(x.flatten(2).mT) + text.mean(1, keepdim=True), text, emb)
        return self.exit(tokens).mT.reshape(x.shape)

    def run(self, x, text, emb):
        for layer in self.layers:
            x = layer(x, emb)
        return x


# -- what is found ----------------------------------------------------------------------------------------------------


class KeywordOnlyBlock(Block):
    def forward(self, *, tokens, emb):
        return super().forward(tokens, emb)


class KeywordOnly(Plain):
    block = KeywordOnlyBlock

    def run(self, x, text, emb):
        for layer in self.layers:
            x = layer(emb=emb, tokens=x)
        return x


class TwoStreamBlock(Block):
    def forward(self, x, text, emb):
        return super().forward(text, emb), super().forward(x, emb + text.mean(1, keepdim=True))


class TextFirst(Plain):
    """Blocks return the text first, which is also the larger stream, and the same at every step."""

    block = TwoStreamBlock

    def run(self, x, text, emb):
        text = text.repeat(1, 12, 1)
        for layer in self.layers:
            text, x = layer(x, text, emb)
        return x + text.mean(1, keepdim=True)


class InPlaceBlock(Block):
    def forward(self, x, emb):
        x += self.outside(torch.tanh(self.inside(x + emb)))
        return x


class InPlace(Plain):
    block = InPlaceBlock


# -- what must not be skipped by blocks -------------------------------------------------------------------------------


class Collecting(Plain):
    """Adds what every block returned at the end; in half precision little enough to be taken for rounding."""

    share = 1.0

    def run(self, x, text, emb):
        seen = []
        for layer in self.layers:
            x = layer(x, emb)
            seen.append(x)
        return x + self.share * torch.stack(seen[:-1]).mean(0)


class CollectingLittle(Collecting):
    share = 0.02


class ExtraBlock(Block):
    def forward(self, x, emb):
        x = super().forward(x, emb)
        return x, x.mean(1)


class ExtraReturned(Plain):
    block = ExtraBlock

    def run(self, x, text, emb):
        extra = 0
        for layer in self.layers:
            x, one = layer(x, emb)
            extra = extra + one
        return x + extra[:, None]


class OutOfOrder(Plain):
    def run(self, x, text, emb):
        for layer in reversed(self.layers):
            x = layer(x, emb)
        return x


class CalledTwice(Plain):
    def run(self, x, text, emb):
        for layer in (*self.layers, self.layers[-1]):
            x = layer(x, emb)
        return x


class Alternating(Plain):
    """Every other call runs the blocks in the other order."""

    calls = 0

    def run(self, x, text, emb):
        self.calls += 1
        for layer in self.layers if self.calls % 2 else reversed(self.layers):
            x = layer(x, emb)
        return x


class MergingBlock(Block):
    def forward(self, x, emb):
        return super().forward(x, emb)[:, :-1]


class MergingTokens(Plain):
    block = MergingBlock

    def run(self, x, text, emb):
        count = x.shape[1]
        for layer in self.layers:
            x = layer(x, emb)
        return nn.functional.pad(x, (0, 0, 0, count - x.shape[1]))


class LastBareBlock(Block):
    def forward(self, x, emb, last=False):
        x = super().forward(x, emb)
        return x if last else (x, emb)


class LastBare(Plain):
    """The last block returns something else than the others."""

    block = LastBareBlock

    def run(self, x, text, emb):
        for layer in self.layers[:-1]:
            x, emb = layer(x, emb)
        return self.layers[-1](x, emb, last=True)


class TwoListsInTurn(Plain):
    def __init__(self):
        super().__init__()
        self.others = nn.ModuleList(Block() for _ in range(COUNT))

    def run(self, x, text, emb):
        for layer, other in zip(self.layers, self.others, strict=True):
            x = torch.relu(other(layer(x, emb), emb))
        return x


class InChunks(Plain):
    """One latent of the batch after the other."""

    def run(self, x, text, emb):
        return torch.cat([super(InChunks, self).run(*parts) for parts in zip(*(v.split(1) for v in (x, text, emb)))])  # noqa: B905


class Counting(Plain):
    """Says something else at every call."""

    calls = 0

    def run(self, x, text, emb):
        self.calls += 1
        return super().run(x, text, emb) * (1 + 0.1 * self.calls)


class Remembering(Plain):
    """Keeps the entry of its blocks for the next call."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    def run(self, x, text, emb):
        x = x + 0.1 * self.kept.get(tuple(x.shape), 0)
        self.kept[tuple(x.shape)] = x
        return super().run(x, text, emb)


class Drawing(Plain):
    """Draws random numbers."""

    def run(self, x, text, emb):
        return super().run(x + 0.01 * torch.randn_like(x), text, emb)


class NestedLists(Plain):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList(Block() for _ in range(COUNT)) for _ in range(COUNT))

    def run(self, x, text, emb):
        for group in self.layers:
            for layer in group:
                x = layer(x, emb)
        return x


class TextRefiner(Plain):
    """Its only list works on the text, with the timestep, so that skipping it would be right at the same input alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block(64 * WIDTH) for _ in range(COUNT))
        self.main = Block()

    def run(self, x, text, emb):
        return self.main(x, emb + super().run(text, text, emb).mean(1, keepdim=True))


class BigTextRefiner(TextRefiner):
    """The same before a list on the picture with fewer weights."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(COUNT))

    def run(self, x, text, emb):
        emb = emb + super().run(text, text, emb).mean(1, keepdim=True)
        for block in self.blocks:
            x = block(x, emb)
        return x


class Tired(RuntimeError):
    pass


class FailsWhenSkipped(Plain):
    """Hands its blocks notes that it reads at the end."""

    def run(self, x, text, emb):
        notes = []
        handles = [layer.inside.register_forward_hook(lambda *_: notes.append(1)) for layer in self.layers]
        x = super().run(x, text, emb)
        for handle in handles:
            handle.remove()
        if len(notes) < COUNT:
            raise Tired
        return x


FOUND = (Plain, KeywordOnly, TextFirst, InPlace)
NOT_SKIPPED = (
    Collecting, CollectingLittle, ExtraReturned, OutOfOrder, CalledTwice, MergingTokens, LastBare,
    TwoListsInTurn, InChunks, NestedLists, TextRefiner, BigTextRefiner, FailsWhenSkipped,
)  # fmt: skip
CHANGEABLE = (Counting, Remembering, Drawing, Alternating)
"""Of which two calls on one input differ, or draw from the sampler's random numbers."""


def odd(kind: type[nn.Module], config: str = "flux_dev", dtype: torch.dtype = torch.float32) -> TinyModel:
    """A tiny model of that kind in place of the network of a ComfyUI model; flux_dev is flow."""
    tiny = build(config)
    network = kind()
    fill(network, seed=5)
    tiny.patcher.model.diffusion_model = network.to(dtype).eval().requires_grad_(False)
    network.dtype = dtype
    return tiny
