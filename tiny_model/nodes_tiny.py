"""The ComfyUI node of the tiny model."""

from __future__ import annotations

from pathlib import Path

import folder_paths
from comfy_api.latest import ComfyExtension, io

from .tiny_clip import make_clip
from .vocabulary import Vocabulary

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
TRANSFORMER_FILE = WEIGHTS_FOLDER / "stepcache_tiny_flux_fp16.safetensors"


def register_weights_folder() -> None:
    """Let the stock "Load Diffusion Model" and "Load VAE" nodes list the files of this pack."""
    for kind in ("diffusion_models", "vae"):
        folder_paths.add_model_folder_path(kind, str(WEIGHTS_FOLDER))


class LoadTinyCLIP(io.ComfyNode):
    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheTinyCLIP",
            display_name="Load Tiny CLIP (StepCache demo)",
            category="StepCache/demo",
            description="Text encoder of the tiny StepCache demo model. It knows a few words, such as "
            "'sunset sea boat sun clouds'; see the README of the tiny model for all of them.",
            inputs=[],
            outputs=[io.Clip.Output()],
        )

    @classmethod
    def execute(cls) -> io.NodeOutput:
        return io.NodeOutput(make_clip(Vocabulary.of_weights(TRANSFORMER_FILE)))


class TinyModelExtension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return [LoadTinyCLIP]
