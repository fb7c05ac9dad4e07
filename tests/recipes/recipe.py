"""What it takes to build a tiny model of a real ComfyUI class."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Draw = Callable[..., torch.Tensor]  # draw(*shape): the next random tensor of a fixed sequence


@dataclass(frozen=True)
class Recipe:
    """How to build one tiny model."""

    config: str  # class in comfy.supported_models
    network: str  # class of `diffusion_model`
    stacks: tuple[str, ...]  # its block lists, in the order they run
    unet: dict  # keyword arguments of the network
    latent: tuple  # its shape without the batch dimension; a tuple of shapes for a nested latent
    text: int = 32  # width of a text token
    extra: Callable[[Draw], dict] = lambda draw: {}  # what else a conditioning carries
    tokens: int = 7  # text tokens; a fixed number where the model has one
    config_values: dict = field(default_factory=dict)  # attributes of the config class; some overrule `unet`
    shrink: Callable[[torch.nn.Module], None] = lambda network: None  # replaces parts whose size `unet` cannot set
    constants: tuple[str, ...] = ()  # ends of the names of buffers that keep their values
    outside: Callable[[Draw], dict] = lambda draw: {}  # weights its config wants besides those of the network
    since: str = "0"  # the first ComfyUI whose class can be sampled as the tests do
