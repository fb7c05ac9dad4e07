"""Paint scenes, fit the latent space on them and keep everything that training reads in one folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy
import torch
from torch import Tensor
from tqdm import tqdm

from .latent import LinearLatent
from .scenes import paint_scene, token_ids

SIZES = (128, 256)  # picture sizes in pixels
CANVAS = 512  # painted at twice the largest size for smooth edges
FIT_SCENES = 300  # scenes used for the principal components
DECODER_SCENES = 1200  # scenes kept as pictures for the decoder
CHUNK = 50


@dataclass
class SceneData:
    """`latents` by picture size, each (scenes, 2, 16, size / 8, size / 8) fp16: a scene and its mirror picture."""

    latent: LinearLatent
    latents: dict[int, Tensor]
    tokens: Tensor  # (scenes, PROMPT_TOKENS)
    pictures: Tensor  # (DECODER_SCENES, 3, 256, 256) uint8


def render(number: int) -> tuple[dict[int, numpy.ndarray], list[int]]:
    """Scene `number` in all SIZES as uint8 (3, size, size), and its token ids."""
    painter, words = paint_scene(number, CANVAS)
    pictures = {size: numpy.asarray(painter.picture(size)).transpose(2, 0, 1) for size in SIZES}
    return pictures, token_ids(words)


def as_floats(pictures: list[numpy.ndarray]) -> Tensor:
    return torch.from_numpy(numpy.stack(pictures)).float() / 255


def encode_with_mirror(latent: LinearLatent, pictures: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 2, 16, h, w) fp16."""
    return torch.stack((latent.encode(pictures), latent.encode(pictures.flip(-1))), dim=1).half()


def make_dataset(first_scene: int, scenes: int) -> SceneData:
    """Paint `scenes` scenes numbered from `first_scene` on all processor cores."""
    numbers = range(first_scene, first_scene + scenes)
    latent, waiting, latents, tokens, kept = None, [], {size: [] for size in SIZES}, [], []
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for pictures, ids in tqdm(pool.imap(render, numbers, CHUNK), total=scenes, desc="painting", unit="scene"):
            waiting.append(pictures)
            tokens.append(ids)
            if len(kept) < DECODER_SCENES:
                kept.append(pictures[max(SIZES)])
            if latent is None and len(waiting) == min(FIT_SCENES, scenes):
                latent = LinearLatent.fit(as_floats(kept), seed=first_scene)
            if latent is not None and (len(waiting) >= CHUNK or len(tokens) == scenes):
                for size in SIZES:
                    latents[size].append(encode_with_mirror(latent, as_floats([p[size] for p in waiting])))
                waiting = []
    return SceneData(
        latent,
        {size: torch.cat(parts) for size, parts in latents.items()},
        torch.tensor(tokens),
        torch.from_numpy(numpy.stack(kept)),
    )


def save_dataset(data: SceneData, path: Path) -> None:
    torch.save(
        {"latent": data.latent.state(), "latents": data.latents, "tokens": data.tokens, "pictures": data.pictures}, path
    )


def load_dataset(path: Path) -> SceneData:
    """Raises FileNotFoundError with the command that makes the file."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; make it with: python train.py data")
    stored = torch.load(path, mmap=True)
    return SceneData(LinearLatent(**stored["latent"]), stored["latents"], stored["tokens"], stored["pictures"])
