"""A policy that predicts the change of the output from that of the input."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..types import Decision, Run, Step, Streams
from .policy import TensorMap, below


@dataclass
class PredictedChange:
    """Reuse while the predicted changes of the output since the last computed evaluation sum up to less than a threshold.

    Each evaluation adds k dx / |y|: the change of the latent since the evaluation before, times how much the output
    changed per change of the latent between the last two computed evaluations, over the last computed output. Latents of
    a batch have their own figures, and the one that is predicted to change most decides.

    Source: EasyCache, arXiv 2507.02860 (the incremental form of its code).
    """

    threshold: float
    latent: Tensor | None = field(default=None, repr=False)  # of the evaluation before
    computed_latent: Tensor | None = field(default=None, repr=False)
    computed_output: Tensor | None = field(default=None, repr=False)
    rate: Tensor | None = field(default=None, repr=False)  # k, (B,)
    error: Tensor | None = field(default=None, repr=False)  # (B,)
    proposed: Tensor | None = field(default=None, repr=False)

    def begin(self, run: Run, order: int) -> None:
        pass

    def observe(self, signal: Tensor | None) -> Tensor | None:
        before, self.latent, self.proposed = self.latent, signal, None
        if signal is None:
            return None
        rate, error, output = self.rate, self.error, self.computed_output
        if rate is None or error is None or output is None or before is None or before.shape != signal.shape:
            return signal.new_full((), float("inf"), dtype=torch.float32)
        self.proposed = error + rate * mean_change(signal, before) / mean_size(output, signal)
        return self.proposed.amax()

    def decide(self, step: Step, score: float | None) -> Decision:
        return below(score, self.threshold, "predicted change")

    def computed(self, step: Step, value: Streams) -> None:
        latent, difference = self.latent, value[0]
        if latent is None or difference is None or difference.shape != latent.shape:
            self.rate = None
            return
        output, self.rate = difference + latent, None
        if (
            self.computed_output is not None
            and self.computed_latent is not None
            and output.shape == self.computed_output.shape
        ):
            self.rate = mean_change(output, self.computed_output) / mean_change(latent, self.computed_latent)
        self.error = torch.zeros(latent.shape[0], device=latent.device)
        self.computed_latent, self.computed_output = latent, output

    def reused(self, step: Step) -> None:
        if self.proposed is not None:
            self.error = self.proposed

    def map_tensors(self, move: TensorMap) -> None:
        kept = ("latent", "computed_latent", "computed_output")
        for name in kept:
            tensor = getattr(self, name)
            setattr(self, name, None if tensor is None else move(tensor))


def mean_change(current: Tensor, reference: Tensor) -> Tensor:
    """Mean absolute difference of each latent of the batch, (B,), in float32."""
    return (current.float() - reference.to(current.device).float()).abs().flatten(1).mean(1)


def mean_size(values: Tensor, like: Tensor) -> Tensor:
    """Mean absolute value of each latent of the batch, (B,), in float32 on the device of `like`."""
    return values.to(like.device).float().abs().flatten(1).mean(1)
