"""Train a transformer: rectified flow (arXiv 2209.03003) on the latents of painted scenes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from .network import VOCABULARY_SLOTS
from .scenes import PADDING, WORDS


@dataclass(frozen=True)
class Batch:
    kind: str  # losses are kept by it
    latents: Tensor  # (B, C, ...)
    tokens: Tensor  # (B, T) indices of words
    lift: float  # of the noise levels: the mean of their logits


class Batches(Protocol):
    def draw(self, step: int) -> Batch: ...


class Schedule(Protocol):
    """A dataclass; its fields are kept with the weights."""

    @property
    def steps(self) -> int: ...

    def rate(self, step: int) -> float: ...


def rate_share(step: int, steps: int, warmup: int, decay: int) -> float:
    """Share of the peak learning rate: it rises over `warmup` steps and falls to zero over the last `decay`."""
    return min(1.0, (step + 1) / warmup, (steps - step) / decay)


def make_optimisers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for everything else."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        inside = "blocks." in name and parameter.ndim == 2 and "mod" not in name
        (matrices if inside else others).append(parameter)
    return [
        torch.optim.Muon(matrices, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def random_times(count: int, lift: float) -> Tensor:
    """Noise levels (count,) in 0..1: logit-normal about `lift`, a fifth uniform."""
    times = torch.sigmoid(torch.randn(count) + lift)
    return torch.where(torch.rand(count) < 0.2, torch.rand(count), times)


def drop_words(tokens: Tensor) -> Tensor:
    """Blank whole prompts (for classifier-free guidance) and single words (for short prompts). (B, T) -> (B, T)."""
    dropped = (torch.rand(len(tokens), 1) < 0.12) | (torch.rand(tokens.shape) < 0.08)
    dropped[:, 0] = False  # the null word stays
    return tokens.masked_fill(dropped, WORDS.index(PADDING))


def velocity_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean squared error of the velocity; at time t the input is (1 - t) * latent + t * noise."""
    latents = batch.latents
    times = random_times(len(latents), batch.lift)
    noise = torch.randn_like(latents)
    noisy = torch.lerp(latents, noise, times.view(-1, *[1] * (latents.ndim - 1)))
    text = F.one_hot(drop_words(batch.tokens), VOCABULARY_SLOTS).float()
    with torch.autocast("cpu", torch.bfloat16):
        velocity = model(noisy, times, text)
    return F.mse_loss(velocity.float(), noise - latents)


class TransformerTraining:
    """Model, running average of its weights, optimisers and progress; `save` and `load` make it resumable."""

    def __init__(self, make_model: Callable[[], nn.Module], batches: Batches, schedule: Schedule, seed: int):
        torch.manual_seed(seed)
        self.batches, self.schedule = batches, schedule
        self.model = make_model()
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimisers = make_optimisers(self.model)
        self.step = 0
        self.losses: dict[str, float] = {}  # running mean by kind of batch

    def state(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "random": torch.get_rng_state(),
            "step": self.step,
            "losses": self.losses,
            "schedule": asdict(self.schedule),
        }

    def save(self, path: Path) -> None:
        """Write to a second file first, so that an interruption cannot spoil the checkpoint."""
        fresh = path.with_suffix(".new")
        torch.save(self.state(), fresh)
        fresh.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimiser, stored in zip(self.optimisers, state["optimisers"]):
            optimiser.load_state_dict(stored)
        torch.set_rng_state(state["random"])
        self.step, self.losses = state["step"], state["losses"]

    def train_step(self) -> None:
        batch = self.batches.draw(self.step)
        loss = velocity_loss(self.model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.schedule.rate(self.step)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self.update_average()
        self.losses[batch.kind] = 0.98 * self.losses.get(batch.kind, loss.item()) + 0.02 * loss.item()

    @torch.no_grad()
    def update_average(self) -> None:
        """Exponential moving average that remembers longer as training goes on."""
        decay = min(0.998, 1 - 1 / (1 + 0.12 * self.step))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    def run(self, checkpoint: Path, save_every: int = 100) -> None:
        """Train to the end of the schedule, with a checkpoint every `save_every` steps."""
        with tqdm(total=self.schedule.steps, initial=self.step, desc="transformer", unit="step") as bar:
            while self.step < self.schedule.steps:
                self.train_step()
                bar.update()
                bar.set_postfix({kind: f"{loss:.3f}" for kind, loss in self.losses.items()})
                if self.step % save_every == 0 or self.step == self.schedule.steps:
                    self.save(checkpoint)
