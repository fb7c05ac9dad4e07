"""Record what StepCache plans by for a model of which nothing is known: the small model's runs, written into the pack."""

from __future__ import annotations

import json
from functools import reduce
from itertools import product

import comfy.patcher_extension
import comfy.sample
import torch
from torch import Tensor

from stepcache.cache_core.recording import Recording

from .bench_quality import Scenes
from .pack import ROOT

PROMPTS = ("day mountains sun trees", "night sea moon stars", "sunset desert cactus", "day hills clouds snow")
GUIDANCES, SIZES = (1.0, 3.0), (16, 32)
"""Scales of guidance, and sizes in latent cells."""

STEPS = 40
FILE = ROOT / "model_patches" / "calibrations" / "stepcache.json"


def record() -> None:
    """Write `FILE` anew."""
    scenes, flow, noise = Scenes(), [], []
    for n, (prompt, guidance, size) in enumerate(product(PROMPTS, GUIDANCES, SIZES)):
        sigmas, latents, outputs = trajectory(scenes, prompt, guidance, size, seed=1000 + n)
        flow.append(recording(sigmas, outputs, True))
        # The same run as a model sees it whose latent is picture + sigma noise, from its second step on: it cannot begin
        # at noise alone. dx / dsigma is then the noise that it finds.
        found = latents + (1 - sigmas[:-1, None]) * outputs
        noise.append(recording((sigmas / (1 - sigmas))[1:], found[1:], False))
    recordings = [reduce(Recording.merged, each).as_dict() for each in (flow, noise)]
    FILE.write_text(json.dumps({"recordings": recordings}) + "\n", encoding="utf-8")
    print(f"{len(flow)} runs of {STEPS} steps -> {FILE.relative_to(ROOT)}")


def trajectory(scenes: Scenes, prompt: str, guidance: float, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sigmas (T + 1), latents (T, N) and outputs (T, N), dx / dsigma, of a run whose sigmas fall evenly."""
    latents, outputs = [], []

    def keep(executor, x, sigma, *args, **kwargs):
        denoised = executor(x, sigma, *args, **kwargs)
        latents.append(x.flatten())
        outputs.append(((x - denoised) / sigma).flatten())
        return denoised

    model = scenes.model.clone()
    model.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREDICT_NOISE, "bench", keep)
    sigmas = torch.linspace(1, 0, STEPS + 1)
    noise = torch.randn(1, 16, size, size, generator=torch.Generator().manual_seed(seed))
    positive, negative = scenes.conditioning(prompt), scenes.conditioning("")
    latent = torch.zeros_like(noise)
    comfy.sample.sample(
        model, noise, STEPS, guidance, "euler", "simple", positive, negative, latent, sigmas=sigmas, disable_pbar=True
    )
    return sigmas.double(), torch.stack(latents).double(), torch.stack(outputs).double()


def recording(sigmas: Tensor, outputs: Tensor, flow: bool) -> Recording:
    products = (outputs @ outputs.T / outputs.shape[1]).numpy()
    return Recording(tuple(sigmas.tolist()), products, flow)
