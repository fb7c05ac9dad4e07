"""What the training of the video model reads: short pans over painted scenes, encoded frame by frame."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy
import torch
from torch import Tensor
from tqdm import tqdm

from .dataset import CANVAS, CHUNK
from .latent import LinearLatent
from .scenes import WORDS, paint_scene, token_ids
from .transformer import Batch, rate_share

SIDE, VIEW = 168, 96  # px: side of a scene, and of the window that a frame shows of it
FRAMES = 5  # latent frames of a clip
SPEED = 16  # px that the window moves from one frame to the next: one token, so that small models can follow it
PANS = {"right": (0, 1), "left": (0, -1), "down": (1, 0), "up": (-1, 0), "still": (0, 0)}  # word: (rows, columns)
ONE_WAY = {"left": "right", "up": "down"}
VIDEO_WORDS = (*WORDS, *PANS)


@dataclass(frozen=True)
class ClipData:
    """`pictures` (scenes, 3, SIDE, SIDE) uint8, `tokens` (scenes, PROMPT_TOKENS) without a word for the pan."""

    latent: LinearLatent
    pictures: Tensor
    tokens: Tensor


def render(number: int) -> tuple[numpy.ndarray, list[int]]:
    painter, words = paint_scene(number, CANVAS)
    return numpy.asarray(painter.picture(SIDE)).transpose(2, 0, 1), token_ids(words)


def make_clip_data(latent: LinearLatent, first_scene: int, scenes: int) -> ClipData:
    """Paint `scenes` scenes numbered from `first_scene` on all processor cores."""
    numbers = range(first_scene, first_scene + scenes)
    pictures, tokens = torch.empty(scenes, 3, SIDE, SIDE, dtype=torch.uint8), []
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        painted = tqdm(pool.imap(render, numbers, CHUNK), total=scenes, desc="painting", unit="scene")
        for index, (picture, ids) in enumerate(painted):
            pictures[index] = torch.from_numpy(picture.copy())
            tokens.append(ids)
    return ClipData(latent, pictures, torch.tensor(tokens))


def save_clip_data(data: ClipData, path: Path) -> None:
    torch.save({"latent": data.latent.state(), "pictures": data.pictures, "tokens": data.tokens}, path)


def load_clip_data(path: Path) -> ClipData:
    stored = torch.load(path, mmap=True)
    return ClipData(LinearLatent(**stored["latent"]), stored["pictures"], stored["tokens"])


def pan(picture: Tensor, direction: tuple[int, int]) -> Tensor:
    """A window that moves over `picture` (3, SIDE, SIDE) from a random start: (FRAMES, 3, VIEW, VIEW)."""
    starts = []
    for along in direction:
        way = SPEED * (FRAMES - 1) * abs(along)
        start = int(torch.randint(SIDE - VIEW - way + 1, ()))
        starts.append(start + way if along < 0 else start)
    corners = [[start + SPEED * along * frame for start, along in zip(starts, direction)] for frame in range(FRAMES)]
    return torch.stack([picture[:, top : top + VIEW, left : left + VIEW] for top, left in corners])


@dataclass(frozen=True)
class ClipSchedule:
    """All pans at first, then a while without left and up, then all again.

    With pans both ways the model finds their axis and then looks both ways at once: what a rotary position adds to a
    score it adds for each axis apart, so one head cannot look right in the next frame and left in the one before. Once it
    has learned one way, words turn it round. The rate is flat and falls to zero over the last steps.
    """

    steps: int
    decay_steps: int
    one_way_from: int = 1200
    one_way_to: int = 1800
    batch: int = 16
    peak_rate: float = 2e-3
    warmup_steps: int = 40

    def is_one_way(self, step: int) -> bool:
        return self.one_way_from <= step < self.one_way_to

    def rate(self, step: int) -> float:
        return self.peak_rate * rate_share(step, self.steps, self.warmup_steps, self.decay_steps)


@dataclass(frozen=True)
class ClipBatches:
    data: ClipData
    schedule: ClipSchedule

    def draw(self, step: int) -> Batch:
        """Latents (B, C, FRAMES, VIEW / 8, VIEW / 8); the last token, which no scene uses, is the word of the pan."""
        count = self.schedule.batch
        scenes = torch.randint(len(self.data.tokens), (count,))
        mirrored, pans = torch.randint(2, (count,)), torch.randint(len(PANS), (count,))
        if self.schedule.is_one_way(step):
            words = list(PANS)
            pans = torch.tensor([words.index(ONE_WAY.get(word, word)) for word in words])[pans]
        pictures = self.data.pictures[scenes]
        pictures = torch.where(mirrored.view(-1, 1, 1, 1).bool(), pictures.flip(-1), pictures)
        directions = list(PANS.values())
        frames = torch.cat([pan(picture, directions[chosen]) for picture, chosen in zip(pictures, pans)])
        latents = self.data.latent.encode(frames.float() / 255).unflatten(0, (count, FRAMES)).transpose(1, 2)
        tokens = self.data.tokens[scenes]
        tokens[:, -1] = len(WORDS) + pans
        return Batch("clips", latents, tokens, 0.3)
