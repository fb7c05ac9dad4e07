"""Train the transformer: rectified flow (arXiv 2209.03003) on the latents of the painted scenes."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from .dataset import SceneData
from .network import VOCABULARY_SLOTS, TinyFlux
from .scenes import PADDING, WORDS


@dataclass(frozen=True)
class Schedule:
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
        rise = (step + 1) / self.warmup_steps
        fall = (self.steps - step) / self.decay_steps
        return peak * min(1.0, rise, fall)


def make_optimisers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for everything else."""
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        inside = "_blocks." in name and parameter.ndim == 2 and "mod" not in name
        (matrices if inside else others).append(parameter)
    return [
        torch.optim.Muon(matrices, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, betas=(0.9, 0.97), weight_decay=0.0),
    ]


def random_times(count: int, size: int) -> Tensor:
    """Noise levels (count,): logit-normal, a fifth uniform; large pictures need a little more noise."""
    lift = 0.3 if size > 128 else 0.0
    times = torch.sigmoid(torch.randn(count) + lift)
    return torch.where(torch.rand(count) < 0.2, torch.rand(count), times)


def drop_words(tokens: Tensor) -> Tensor:
    """Blank whole prompts (for classifier-free guidance) and single words (for short prompts). (B, T) -> (B, T)."""
    dropped = (torch.rand(len(tokens), 1) < 0.12) | (torch.rand(tokens.shape) < 0.08)
    dropped[:, 0] = False  # the null word stays
    return tokens.masked_fill(dropped, WORDS.index(PADDING))


def velocity_loss(model: nn.Module, latents: Tensor, tokens: Tensor, size: int) -> Tensor:
    """Mean squared error of the velocity; at time t the input is (1 - t) * latent + t * noise."""
    times = random_times(len(latents), size)
    noise = torch.randn_like(latents)
    noisy = torch.lerp(latents, noise, times.view(-1, 1, 1, 1))
    text = F.one_hot(drop_words(tokens), VOCABULARY_SLOTS).float()
    with torch.autocast("cpu", torch.bfloat16):
        velocity = model(noisy, times, text)
    return F.mse_loss(velocity.float(), noise - latents)


class TransformerTraining:
    """Model, running average of its weights, optimisers and progress; `save` and `load` make it resumable."""

    def __init__(self, data: SceneData, schedule: Schedule, seed: int):
        torch.manual_seed(seed)
        self.data, self.schedule = data, schedule
        self.model = TinyFlux()
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimisers = make_optimisers(self.model)
        self.step = 0
        self.losses: dict[int, float] = {}  # running mean by picture size

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

    def batch(self) -> tuple[Tensor, Tensor, int]:
        """Latents (B, C, H, W), token ids (B, T) and the picture size of the current step."""
        small, large = min(self.data.latents), max(self.data.latents)
        is_small = self.schedule.is_small(self.step)
        size = small if is_small else large
        count = self.schedule.small_batch if is_small else self.schedule.large_batch
        scenes = torch.randint(len(self.data.tokens), (count,))
        mirrored = torch.randint(2, (count,))
        return self.data.latents[size][scenes, mirrored].float(), self.data.tokens[scenes], size

    def train_step(self) -> None:
        latents, tokens, size = self.batch()
        loss = velocity_loss(self.model, latents, tokens, size)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = self.schedule.rate(self.step)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.step += 1
        self.update_average()
        self.losses[size] = 0.98 * self.losses.get(size, loss.item()) + 0.02 * loss.item()

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
                bar.set_postfix({f"{size}px": f"{loss:.3f}" for size, loss in self.losses.items()})
                if self.step % save_every == 0 or self.step == self.schedule.steps:
                    self.save(checkpoint)
