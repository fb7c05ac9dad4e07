"""Paint a grid of sample pictures with the trained weights, without ComfyUI.

The sampler is plain Euler on evenly spaced noise levels with classifier-free guidance: what ComfyUI does
for "euler", "simple" at shift 1.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from tqdm import tqdm

from .decoder import INPUT_SCALE
from .latent import BLOCK, CHANNELS
from .network import VOCABULARY_SLOTS
from .scenes import token_ids

PROMPTS = (
    "day mountains sun trees house",
    "sunset sea boat sun clouds",
    "night mountains moon stars snow trees",
    "day desert cactus sun clouds",
    "night sea moon stars boat",
    "sunset hills house trees",
    "day hills snow house trees clouds",
    "sunset desert cactus sun",
    "night hills house moon stars",
    "day sea boat clouds",
    "sunset mountains sun trees",
    "night desert cactus moon stars",
)


def encode(prompts: list[str]) -> Tensor:
    """Prompts -> one-hot text tokens (B, T, V)."""
    return F.one_hot(torch.tensor([token_ids(prompt.split()) for prompt in prompts]), VOCABULARY_SLOTS).float()


@torch.no_grad()
def sample(
    model: nn.Module, prompts: list[str], pixels: int, seed: int, steps: int = 28, guidance: float = 3.0
) -> Tensor:
    """Latents (B, 16, pixels / 8, pixels / 8) for `prompts`."""
    side = pixels // BLOCK
    latents = torch.randn(len(prompts), CHANNELS, side, side, generator=torch.Generator().manual_seed(seed))
    text = torch.cat((encode(prompts), encode([""] * len(prompts))))  # (2 B, T, V)
    times = torch.linspace(1, 0, steps + 1)
    for time, following in tqdm(zip(times[:-1], times[1:]), total=steps, desc="sampling", unit="step"):
        velocity = model(latents.repeat(2, 1, 1, 1), time.expand(2 * len(prompts)), text)
        wanted, neutral = velocity.chunk(2)
        latents = latents + (following - time) * (neutral + guidance * (wanted - neutral))
    return latents


@torch.no_grad()
def to_pictures(decoder: nn.Module, latents: Tensor) -> list[Image.Image]:
    pictures = decoder(latents * INPUT_SCALE).clamp(0, 1)  # (B, 3, H, W)
    return [Image.fromarray((picture * 255).round().byte().permute(1, 2, 0).numpy()) for picture in pictures]


def grid(pictures: list[Image.Image], columns: int = 4) -> Image.Image:
    """Pictures of one size side by side, with a narrow white gap."""
    gap, side = 4, pictures[0].width
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (side + gap) - gap, rows * (side + gap) - gap), "white")
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (index % columns * (side + gap), index // columns * (side + gap)))
    return sheet
