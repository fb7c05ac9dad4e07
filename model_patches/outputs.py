"""Caches above the blocks: what a model says of a latent, or what guidance makes of all that the models say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..cache_core.method import CacheMethod, Level
from ..cache_core.model_call import ModelCall
from ..cache_core.probes import Nothing
from .latent import Latent


class OutputInterception:
    """Stores and reuses dx / dsigma of each branch, or with `difference` dx / dsigma minus the model's input.

    Where it stands in for a cache of blocks, dx / dsigma itself is held. The signal of any probe is the model's input.
    """

    exchanges_rows = False

    def __init__(self, method: CacheMethod):
        own = method.boundary.level is not Level.BLOCKS
        self.difference = own and method.boundary.difference
        self.probed = not isinstance(method.probe, Nothing)

    def run(self, call: ModelCall, latent: Latent, forward: Callable[[], Tensor], refusal: str | None = None) -> Tensor:
        """One evaluation; `forward` gives the denoised latent, and `refusal` is why it has to be computed, if it has to."""
        given = latent.model_input()
        if self._decide(call, latent, given, refusal):
            (value,) = call.predict()
            assert value is not None
            call.reused()
            return latent.denoised(value.to(given.device) + given if self.difference else value)
        output = forward()
        self._store(call, latent, given, output)
        return output

    def begin(self, call: ModelCall, latent: Latent, output: Tensor, reason: str) -> None:
        """Store the output of a call that was made before it was clear that outputs are to be stored."""
        given = latent.model_input()
        self._decide(call, latent, given, reason)
        self._store(call, latent, given, output)

    def _decide(self, call: ModelCall, latent: Latent, given: Tensor, refusal: str | None = None) -> bool:
        layout = (latent.shape, latent.x.dtype)
        return call.decide(given if self.probed else None, layout, refusal, entry=(latent.x,))

    def _store(self, call: ModelCall, latent: Latent, given: Tensor, output: Any) -> None:
        if isinstance(output, Tensor) and output.shape == latent.x.shape and call.step.sigma > 0:
            derivative = latent.derivative(output)
            call.computed((derivative - given if self.difference else derivative,))
        else:  # there is no derivative
            call.computed_unseen()
