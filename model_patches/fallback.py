"""Models that are not in the table: their blocks are found by watching one call, or else the output is cached.

A guess is only used after a check on the real thing: the model is run a second time on the same input with the blocks
skipped, and must give the same output.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass

from torch import Tensor, nn

from ..cache_core.method import CacheMethod
from ..cache_core.model_call import ModelCall
from .architecture import Architecture, unwrapped
from .intercept import BlockInterception
from .latent import Latent
from .observe import Fingerprint, ListObserver, ObservedStack, candidates, fingerprint
from .outputs import OutputInterception
from .trial import Ending, skipping_is_exact

LEARNING = "watching how an unlisted model works"


class LearningInterception:
    """Watches the first call, checks what it learned at the next of the same conditioning, and then reuses."""

    exchanges_rows = True  # for all that is known

    def __init__(self, model: nn.Module, method: CacheMethod, say: Callable[[str], None]):
        self.model = unwrapped(model)
        self.method = method
        self.say = say
        self.first: FirstCall | None = None
        self.chosen: BlockInterception | OutputInterception | None = None

    def run(self, call: ModelCall, latent: Latent, forward: Callable[[], Tensor]) -> Tensor:
        if self.chosen:
            return self.chosen.run(call, latent, forward)
        if self.first is None:
            output = self._watch(call, latent, forward)
        elif self.first.shows_change(call, latent.x):
            output = self._check(self.first, call, latent, forward)
        else:
            output = self._wait(call, forward)
        if isinstance(self.chosen, OutputInterception):
            self.chosen.begin(call, latent, output, LEARNING)
        return output

    def _wait(self, call: ModelCall, forward: Callable[[], Tensor]) -> Tensor:
        call.decide(None, refusal=LEARNING)
        output = forward()
        call.computed_unseen()
        return output

    def _watch(self, call: ModelCall, latent: Latent, forward: Callable[[], Tensor]) -> Tensor:
        call.decide(None, refusal=LEARNING)
        observers = [ListObserver(*candidate) for candidate in candidates(self.model)]
        x_before = fingerprint(latent.x)
        with ExitStack() as watching:
            for observer in observers:
                watching.enter_context(observer)
            output = forward()
        best = most_work(observers, latent.shape[0])
        if best and len(best[0].blocks) > self.method.boundary.head + self.method.boundary.tail:
            self.first = FirstCall(*best, branches(call), x_before)
            call.computed_unseen()
        else:
            self._give_up()
        return output

    def _check(self, first: FirstCall, call: ModelCall, latent: Latent, forward: Callable[[], Tensor]) -> Tensor:
        """Run the model, and once more with the blocks skipped; their result is then known to the last bit."""
        blocks = self._interception(first.stack)
        observer, ending = ListObserver(first.stack.path, first.observer.blocks), Ending()
        with observer, blocks.active(call, latent) as watch, ending.noted(blocks.places[watch.last][0]):
            output = forward()
        alike = watch.complete and observer.stack(latent.shape[0]) == first.stack
        image = observer.image(first.observer) if alike else None
        if image is None or not skipping_is_exact(blocks, watch.value, ending, latent, output, forward):
            self._give_up()
            return output
        if image == first.stack.places[0]:
            self.chosen = blocks
            call.computed(watch.value)
        else:
            self.chosen = self._interception(first.stack.led_by(image))
            call.computed_unseen()
        self.first = None
        self.say(
            f"{type(self.model).__name__} is not in StepCache's list of models. Its {len(blocks.places)} "
            f"blocks ({first.stack.path}) were found by watching it, and skipping them was checked once."
        )
        return output

    def _interception(self, stack: ObservedStack) -> BlockInterception:
        architecture = Architecture(type(self.model).__name__, (stack,), stack.first_stream, all_streams_end=True)
        return BlockInterception(self.model, architecture, self.method)

    def _give_up(self) -> None:
        self.first, self.chosen = None, OutputInterception(self.method)
        kind = "a U-Net" if hasattr(self.model, "input_blocks") else "not in StepCache's list of models"
        self.say(
            f"{type(self.model).__name__} is {kind} and has no plain run of blocks: whole outputs are reused "
            "instead, judged by the change of the latent."
        )


@dataclass(frozen=True)
class FirstCall:
    """What was seen of the call that was watched."""

    observer: ListObserver
    stack: ObservedStack
    branches: tuple[Hashable, ...]
    x: Fingerprint

    def shows_change(self, call: ModelCall, x: Tensor) -> bool:
        """Whether a call differs from this one by its latent alone."""
        now = fingerprint(x)
        return branches(call) == self.branches and now.form == self.x.form and bool(now.norm != self.x.norm)


def most_work(observers: list[ListObserver], rows: int) -> tuple[ListObserver, ObservedStack] | None:
    """Of the lists whose blocks hand streams from one to the next, the one with the most work in it."""
    for observer in sorted(observers, key=lambda observer: observer.work, reverse=True):
        stack = observer.stack(rows)
        if stack:
            return observer, stack
    return None


def branches(call: ModelCall) -> tuple[Hashable, ...]:
    return tuple(branch.key for branch, _ in call.branches)
