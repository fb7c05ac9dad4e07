"""Train the decoder that turns a latent into a picture.

The layout and the parameter names are those of TAESD by Ollin Boer Bohan
(https://github.com/madebyollin/taesd, MIT), which ComfyUI loads as a VAE.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from .dataset import SceneData
from .latent import BLOCK, CHANNELS, LinearLatent

WIDTH = 64
INPUT_SCALE = 0.5  # TAESD squashes its input beyond +-3; halved latents stay clear of that
COLOURS = 3
PASSED_ON = COLOURS + 2 * CHANNELS  # feature channels that carry block colour and latent at the start
HELD_OUT = 40  # last pictures, for the reported quality only
CROP = 16  # side of a training crop in latent blocks


class Squash(nn.Module):
    def forward(self, latent: Tensor) -> Tensor:
        return torch.tanh(latent / 3) * 3


class ResidualBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(conv(), nn.ReLU(), conv(), nn.ReLU(), conv())

    def forward(self, features: Tensor) -> Tensor:
        return F.relu(self.conv(features) + features)


def conv(inputs: int = WIDTH, outputs: int = WIDTH, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)


def make_decoder(latent: LinearLatent) -> nn.Sequential:
    """Halved latents (B, 16, h, w) -> pictures (B, 3, 8 h, 8 w) in 0..1."""
    doubling = [[*(ResidualBlock() for _ in range(3)), nn.Upsample(scale_factor=2), conv(bias=False)] for _ in range(3)]
    decoder = nn.Sequential(
        Squash(), conv(CHANNELS), nn.ReLU(), *sum(doubling, []), ResidualBlock(), conv(outputs=COLOURS)
    )
    start_as_smooth_colours(decoder, latent)
    return decoder.to(memory_format=torch.channels_last)


@torch.no_grad()
def start_as_smooth_colours(decoder: nn.Sequential, latent: LinearLatent) -> None:
    """Initial weights that show each block's mean colour, smoothly enlarged; training adds the detail.

    The first channels carry the three colours and the positive and negative parts of the latent through
    all layers, which the ReLUs let pass unchanged. Saves most of the early training.
    """
    convs = [module for module in decoder if isinstance(module, nn.Conv2d)]
    for module in decoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    for block in decoder:
        if isinstance(block, ResidualBlock):
            nn.init.zeros_(block.conv[4].weight)
            nn.init.zeros_(block.conv[4].bias)
    first, *enlarging, last = convs
    colour, offset = latent.block_colour()
    first.weight.mul_(0.5)[:PASSED_ON] = 0
    first.bias.zero_()[:COLOURS] = offset
    first.weight[:COLOURS, :, 1, 1] = colour / INPUT_SCALE
    for channel in range(CHANNELS):
        first.weight[COLOURS + 2 * channel, channel, 1, 1] = 1
        first.weight[COLOURS + 2 * channel + 1, channel, 1, 1] = -1
    ramp = torch.tensor([1.0, 2.0, 1.0]) / 4
    for module in enlarging:
        module.weight.mul_(0.5)[:PASSED_ON] = 0
        for channel in range(PASSED_ON):
            module.weight[channel, channel] = ramp[:, None] * ramp
    nn.init.normal_(last.weight, std=0.002)[:, :COLOURS] = 0
    last.bias.zero_()
    for channel in range(COLOURS):
        last.weight[channel, channel, 1, 1] = 1


def picture_loss(output: Tensor, target: Tensor) -> Tensor:
    """Absolute and squared error, and the absolute error of the edges."""
    error = output - target
    edges = error.diff(dim=-1).abs().mean() + error.diff(dim=-2).abs().mean()
    return error.abs().mean() + 2 * error.square().mean() + 0.5 * edges


class DecoderTraining:
    """Crops first, whole pictures in the last third: the decoder must learn the picture's border too."""

    def __init__(self, data: SceneData, steps: int, seed: int, peak_rate: float = 1.5e-3):
        torch.manual_seed(seed)
        self.pictures, self.latent = data.pictures, data.latent
        self.steps, self.peak_rate, self.step = steps, peak_rate, 0
        self.model = make_decoder(data.latent)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.98))

    def rate(self) -> float:
        return self.peak_rate * min(1.0, (self.step + 1) / 30, (1 - self.step / self.steps) / 0.6)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Halved noisy latents (B, 16, h, w) and the pictures (B, 3, 8 h, 8 w) they came from."""
        whole = self.step > self.steps * 2 // 3
        chosen = torch.randint(len(self.pictures) - HELD_OUT, (1 if whole else 4,))
        pictures = self.pictures[chosen].float() / 255
        if not whole:
            rows = pictures.shape[-1] // BLOCK - CROP + 1
            top, left = (BLOCK * torch.randint(rows, (2,))).tolist()
            pictures = pictures[..., top : top + BLOCK * CROP, left : left + BLOCK * CROP]
        latents = self.latent.encode(pictures)
        strength = 0.12 * torch.rand(len(chosen), 1, 1, 1)  # the transformer is not exact either
        return (latents + strength * torch.randn_like(latents)) * INPUT_SCALE, pictures

    def visible(self, picture: Tensor) -> Tensor:
        """Leave out one block at the sides, where a crop lacks its neighbours; whole pictures stay whole."""
        is_crop = picture.shape[-1] < self.pictures.shape[-1]
        return picture[..., BLOCK:-BLOCK, BLOCK:-BLOCK] if is_crop else picture

    def train_step(self) -> None:
        latents, pictures = self.batch()
        with torch.autocast("cpu", torch.bfloat16):
            output = self.model(latents.contiguous(memory_format=torch.channels_last))
        loss = picture_loss(self.visible(output.float()), self.visible(pictures))
        self.optimiser.param_groups[0]["lr"] = self.rate()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.step += 1
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 0.01)

    @torch.no_grad()
    def quality(self) -> float:
        """Peak signal-to-noise ratio in dB on pictures that training never saw."""
        pictures = self.pictures[-HELD_OUT:].float() / 255
        latents = self.latent.encode(pictures) * INPUT_SCALE
        with torch.autocast("cpu", torch.bfloat16):
            output = self.average(latents.contiguous(memory_format=torch.channels_last))
        error = output.float().clamp(0, 1) - pictures
        return -10 * error.square().mean().log10().item()

    def state(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": torch.get_rng_state(),
            "step": self.step,
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
        self.optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["random"])
        self.step = state["step"]

    def run(self, checkpoint: Path, save_every: int = 200) -> None:
        with tqdm(total=self.steps, initial=self.step, desc="decoder", unit="step") as bar:
            while self.step < self.steps:
                self.train_step()
                bar.update()
                if self.step % save_every == 0 or self.step == self.steps:
                    self.save(checkpoint)
                    bar.set_postfix(quality=f"{self.quality():.1f} dB")
