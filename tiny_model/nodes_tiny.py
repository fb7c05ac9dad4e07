"""The ComfyUI node of the tiny models."""

from __future__ import annotations

from pathlib import Path

import folder_paths
from comfy_api.latest import ComfyExtension, io

from .tiny_clip import make_clip
from .vocabulary import Vocabulary

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
TRANSFORMER_FILES = {
    "picture": WEIGHTS_FOLDER / "stepcache_tiny_flux_fp16.safetensors",
    "video": WEIGHTS_FOLDER / "stepcache_tiny_wan_fp16.safetensors",
}


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
            description="Text encoder of the tiny StepCache demo models. It knows a few words, such as "
            "'sunset sea boat sun clouds'; see the README of the tiny models for all of them.",
            inputs=[
                io.Combo.Input(
                    "model",
                    options=list(TRANSFORMER_FILES),
                    default="picture",
                    optional=True,
                    tooltip="The transformer it is for. That for video also knows right, left, down, up and still.",
                )
            ],
            outputs=[io.Clip.Output()],
        )

    @classmethod
    def execute(cls, model: str = "picture") -> io.NodeOutput:
        return io.NodeOutput(make_clip(Vocabulary.of_weights(TRANSFORMER_FILES[model])))


class TinyModelExtension(ComfyExtension):
    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return [LoadTinyCLIP]
