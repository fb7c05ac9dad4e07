"""SeedVR2, with packed sequences."""

import torch

from .recipe import Recipe


def small_prompts(network: torch.nn.Module) -> None:
    network.positive_conditioning, network.negative_conditioning = torch.empty(7, 32), torch.empty(7, 32)


RECIPES: dict[str, Recipe] = {
    "seedvr2": Recipe(
        "SeedVR2", "NaDiT", ("blocks",),
        dict(image_model="seedvr2", norm_eps=1e-5, num_layers=4, mlp_type="swiglu", vid_dim=64, txt_in_dim=32, heads=2,
             head_dim=32, mm_layers=[True, False, False, True],  # False: one set of weights for video and text
             expand_ratio=1, rope_dim=24, vid_out_norm=True),
        latent=(16, 2, 8, 8), shrink=small_prompts, constants=(".rope.freqs",),
        extra=lambda draw: {"condition": torch.linspace(-1, 1, 17 * 128).reshape(1, 17, 2, 8, 8)},  # as its node: the same
    ),
}  # fmt: skip
