"""Write the two files that ComfyUI loads, with their origin in the metadata."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from .decoder import INPUT_SCALE, DecoderTraining
from .scenes import WORDS
from .transformer import TransformerTraining

TRANSFORMER_FILE = "stepcache_tiny_flux_fp16.safetensors"
DECODER_FILE = "stepcache_tiny_vae_fp16.safetensors"
FLUX_LATENT_SCALE, FLUX_LATENT_SHIFT = 0.3611, 0.1159  # ComfyUI applies these to every Flux latent
ORIGIN = {
    "license": "Apache-2.0",
    "data": "procedurally painted landscapes (tiny_model/training/scenes.py)",
    "code": "tiny_model/train.py of StepCache",
}


def half(state: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: value.half().contiguous() for name, value in state.items()}


def export_transformer(training: TransformerTraining, folder: Path, seed: int) -> Path:
    """The averaged weights under their Flux names, with the word list that `vocabulary.py` reads."""
    losses = {f"{size} px": round(loss, 4) for size, loss in training.losses.items()}
    metadata = ORIGIN | {
        "title": "StepCache tiny Flux",
        "words": json.dumps(WORDS),
        "seed": str(seed),
        "steps": str(training.step),
        "schedule": json.dumps(training.state()["schedule"]),
        "scenes": str(len(training.data.tokens)),
        "velocity_loss": json.dumps(losses),
    }
    path = folder / TRANSFORMER_FILE
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
