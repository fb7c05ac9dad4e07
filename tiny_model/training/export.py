"""Write the files that ComfyUI loads, with their origin in the metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .clips import VIDEO_WORDS
from .decoder import INPUT_SCALE, DecoderTraining
from .network import VOCABULARY_SLOTS
from .scenes import WORDS
from .transformer import TransformerTraining

DECODER_FILE = "stepcache_tiny_vae_fp16.safetensors"
FLUX_LATENT_SCALE, FLUX_LATENT_SHIFT = 0.3611, 0.1159  # ComfyUI applies these to every Flux latent
ORIGIN = {
    "license": "Apache-2.0",
    "data": "procedurally painted landscapes (tiny_model/training/scenes.py)",
    "code": "tiny_model/train.py of StepCache",
}


def half(state: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: value.half().contiguous() for name, value in state.items()}


@dataclass(frozen=True)
class TransformerFile:
    """`config` tells ComfyUI what it cannot read off the tensors."""

    name: str
    title: str
    words: tuple[str, ...]
    config: Mapping[str, Any] = field(default_factory=dict)


PICTURES = TransformerFile("stepcache_tiny_flux_fp16.safetensors", "StepCache tiny Flux", WORDS)
VIDEO = TransformerFile(
    "stepcache_tiny_wan_fp16.safetensors", "StepCache tiny Wan", VIDEO_WORDS, {"text_dim": VOCABULARY_SLOTS}
)


def export_transformer(
    file: TransformerFile, training: TransformerTraining, scenes: int, folder: Path, seed: int
) -> Path:
    """The averaged weights under the names of their layout, with the word list that `vocabulary.py` reads."""
    metadata = ORIGIN | {
        "title": file.title,
        "words": json.dumps(file.words),
        "seed": str(seed),
        "steps": str(training.step),
        "schedule": json.dumps(training.state()["schedule"]),
        "scenes": str(scenes),
        "velocity_loss": json.dumps({kind: round(loss, 4) for kind, loss in training.losses.items()}),
    }
    if file.config:
        metadata["config"] = json.dumps({"transformer": file.config})
    path = folder / file.name
    save_file(half(training.average.state_dict()), path, metadata)
    return path


def export_decoder(training: DecoderTraining, folder: Path, seed: int) -> Path:
    """The decoder in TAESD layout; `vae_scale` and `vae_shift` undo ComfyUI's Flux latent format."""
    tensors = half(training.average.state_dict(), "taesd_decoder.")
    tensors["vae_scale"] = torch.tensor(FLUX_LATENT_SCALE * INPUT_SCALE)
    tensors["vae_shift"] = torch.tensor(FLUX_LATENT_SHIFT)
    metadata = ORIGIN | {
        "title": "StepCache tiny VAE (decoder only)",
        "seed": str(seed),
        "steps": str(training.step),
        "quality": f"{training.quality():.2f} dB PSNR on held-out scenes",
    }
    path = folder / DECODER_FILE
    save_file(tensors, path, metadata)
    return path
