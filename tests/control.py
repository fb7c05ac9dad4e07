"""A ControlNet without a network: fixed residuals."""

from __future__ import annotations

from dataclasses import replace

import comfy.controlnet
import torch

from .tiny_models import TinyModel, drawer

SHAPES = {"flux_dev": (16, 64), "qwen_image": (16, 64), "sd3": (16, 256), "hunyuan_video": (32, 64)}
"""Image tokens and width at the recipe's size."""


class Residuals(comfy.controlnet.ControlBase):
    """Adds the same tensors wherever the model takes some."""

    def __init__(self, residuals: dict[str, list[torch.Tensor]]):
        super().__init__()
        self.residuals = residuals

    def get_control(self, x_noisy, t, cond, batched_number, transformer_options):
        return {place: list(tensors) for place, tensors in self.residuals.items()}


def with_control(tiny: TinyModel, seed: int = 5) -> TinyModel:
    """The same model, with residuals for two blocks of each kind on the positive conditioning."""
    draw = drawer(seed)
    residuals = {place: [draw(1, *SHAPES[tiny.name]) for _ in range(2)] for place in ("input", "output")}
    [[text, values]] = tiny.positive
    return replace(
        tiny, positive=[[text, values | {"control": Residuals(residuals), "control_apply_to_uncond": False}]]
    )
