"""What the training of the picture model reads: small pictures at first, then mostly large ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .dataset import SceneData
from .transformer import Batch, rate_share


@dataclass(frozen=True)
class PictureSchedule:
    """Small pictures first, then mostly large ones; the rate is flat and falls to zero over the last steps."""

    small_steps: int
    large_steps: int
    decay_steps: int
    small_every: int = 4  # in the second part every n-th step is still a small one
    small_batch: int = 32
    large_batch: int = 8
    peak_rate: float = 2e-3
    large_peak_rate: float = 1.4e-3
    warmup_steps: int = 40

    @property
    def steps(self) -> int:
        return self.small_steps + self.large_steps

    def is_small(self, step: int) -> bool:
        return step < self.small_steps or step % self.small_every == 0

    def rate(self, step: int) -> float:
        peak = self.peak_rate if step < self.small_steps else self.large_peak_rate
        return peak * rate_share(step, self.steps, self.warmup_steps, self.decay_steps)


@dataclass(frozen=True)
class PictureBatches:
    data: SceneData
    schedule: PictureSchedule

    def draw(self, step: int) -> Batch:
        """Latents (B, C, H, W), all of one size; large pictures need a little more noise."""
        small, large = min(self.data.latents), max(self.data.latents)
        is_small = self.schedule.is_small(step)
        size = small if is_small else large
        count = self.schedule.small_batch if is_small else self.schedule.large_batch
        scenes = torch.randint(len(self.data.tokens), (count,))
        mirrored = torch.randint(2, (count,))
        latents = self.data.latents[size][scenes, mirrored].float()
        return Batch(f"{size} px", latents, self.data.tokens[scenes], 0.0 if is_small else 0.3)
