"""Speed and likeness of each method on the shipped tiny Flux, beside plain sampling with fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import mean
from typing import Any

import comfy.latent_formats
import comfy.sample
import comfy.samplers
import comfy.sd
import comfy.utils
import torch
from comfy.model_patcher import ModelPatcher
from torch import Tensor

from stepcache.cache_core.method import CacheMethod
from stepcache.cache_core.methods import (
    dbcache,
    dpcache,
    easycache,
    first_block_cache,
    magcache,
    meancache,
    seacache,
    spectrum,
    taylorseer,
    teacache,
)
from stepcache.cache_core.planning import general_steps
from stepcache.cache_core.policies import StepPlan
from stepcache.cache_core.predictors import BASES, Extrapolation
from stepcache.cache_core.quality import psnr, ssim
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.step_masks import POLICIES
from stepcache.model_patches.install import apply_cache
from stepcache.nodes.planned_nodes import FLAT

from .bench_cost import clock
from .pack import ROOT, load_package

STEPS, GUIDANCE, SIZE = 28, 3.0, 256

Sampler = str | comfy.samplers.Sampler


def general(computed: int, forced: int = 2) -> StepPlan:
    return partial(general_steps, computed=computed, forced=forced)


SETTINGS: list[tuple[str, str, CacheMethod]] = [
    *(("TeaCache", f"threshold {value:g}", teacache(value)) for value in (0.05, 0.06, 0.08, 0.1, 0.12)),
    *(
        ("First Block Cache", f"threshold {value:g}", first_block_cache(value))
        for value in (0.08, 0.1, 0.12, 0.15, 0.2)
    ),
    *(("DBCache", f"2 + 1 blocks, {value:g}", dbcache(value, 2, 1, warmup=4)) for value in (0.1, 0.15, 0.2)),
    *(("DBCache", f"linear, {value:g}", dbcache(value, 1, 0, Extrapolation(), warmup=4)) for value in (0.15, 0.25)),
    *(("DBCache", f"mask {name}", dbcache(1.0, 1, 0, mask=name, reuse_others=True)) for name in POLICIES),
    *(("SeaCache", f"threshold {value:g}", seacache(value)) for value in (0.1, 0.15, 0.2, 0.3, 0.4)),
    *(("EasyCache", f"threshold {value:g}", easycache(value, warmup=3)) for value in (0.02, 0.03, 0.05, 0.08, 0.12)),
    *(
        (name, f"speedup {value:g}", make(speedup=value))
        for name, make in (
            ("TeaCache", partial(teacache, 0.08)),
            ("First Block Cache", partial(first_block_cache, 0.1)),
            ("DBCache", partial(dbcache, 0.15, 1, 0, Extrapolation(), warmup=4)),
            ("SeaCache", partial(seacache, 0.15)),
            ("EasyCache", partial(easycache, 0.05, warmup=3)),
        )
        for value in (2.0, 2.5)
    ),
    *(("MagCache", f"general curve, {value:g}", magcache(FLAT, value, 3, 0.2)) for value in (0.02, 0.04, 0.06, 0.12)),
    *(("TaylorSeer", f"every {n}, order {m}", taylorseer(n, m)) for n in (2, 3, 4) for m in (0, 1, 2)),
    *(("TaylorSeer", f"every {n}, {name}", taylorseer(n, 2, basis=BASES[name]())) for n in (2, 3, 4) for name in BASES),
    *(("Spectrum", f"window {w:g} + {g:g}", spectrum(5, w, g)) for w, g in ((2.0, 0.0), (2.0, 0.25), (2.0, 0.75))),
    *(("DPCache", f"general plan, {k}, order {m}", dpcache(general(k, 3), m)) for k in (10, 11, 14) for m in (1, 2)),
    *(
        ("MeanCache", f"general plan, {k}, lookback {n}", meancache(general(k), n))
        for k in (8, 10, 14)
        for n in (1, 2, 4)
    ),
]
FEWER_STEPS = (20, 18, 16, 14, 12, 10, 8)
PROMPTS = (
    "sunset clouds mountains sea boat",
    "day mountains trees house sun",
    "night stars moon hills snow",
    "day desert cactus sun",
    "night sea boat moon stars",
    "sunset hills trees house",
    "day snow mountains trees clouds",
    "sunset desert cactus clouds",
)


def rows(quick: bool) -> Iterator[dict]:
    scenes = Scenes()
    prompts = PROMPTS[:2] if quick else PROMPTS
    scenes.picture(scenes.model, prompts[0], steps=2)  # pays for loading
    references = [scenes.picture(scenes.model, prompt) for prompt in prompts]
    for name, setting, method in SETTINGS:
        yield watched(
            name, setting, scenes.model, [method], references, lambda cached, n: scenes.picture(cached, prompts[n])
        )
    for steps in FEWER_STEPS:
        pictures = [scenes.picture(scenes.model, prompt, steps=steps) for prompt in prompts]
        yield row("plain", f"{steps} steps", float(steps), references, pictures)


def watched(
    name: str,
    setting: str,
    model,
    methods: Sequence[CacheMethod],
    references: list,
    picture: Callable[[ModelPatcher, int], Any],
) -> dict:
    """The row of a method, with the evaluations that its runs computed in the mean.

    Args:
        methods: taken in turn, one for each picture.
        picture: makes the n-th with a model.
    """
    reports: list[RunReport] = []
    cached = [apply_cache(model, method, reports.append) for method in methods]
    made = [picture(cached[n % len(cached)], n) for n in range(len(references))]
    runs = {id(report): report for report in reports}.values()  # each was heard of once an evaluation
    return row(name, setting, mean(run.computed for run in runs), references, made)


def row(method: str, setting: str, computed: float, references: list, pictures: list) -> dict:
    pairs = list(zip(references, pictures, strict=True))
    likeness = [psnr(a, b) for (a, _), (b, _) in pairs]
    return {
        "bench": "quality",
        "method": method,
        "setting": setting,
        "prompts": len(pairs),
        "computed": float(computed),
        "speedup": sum(seconds for _, seconds in references) / sum(seconds for _, seconds in pictures),
        "psnr": mean(likeness),
        "psnr_worst": min(likeness),
        "ssim": mean(ssim(a, b) for (a, _), (b, _) in pairs),
    }


class Scenes:
    """The tiny Flux with its decoder and its words, loaded by ComfyUI's own loaders."""

    transformer = "stepcache_tiny_flux_fp16.safetensors"
    size = SIZE

    def __init__(self):
        load_package("stepcache_tiny_model", ROOT / "tiny_model")
        from stepcache_tiny_model.tiny_clip import make_clip
        from stepcache_tiny_model.vocabulary import Vocabulary

        weights = ROOT / "tiny_model" / "weights"
        transformer = weights / self.transformer
        self.model = comfy.sd.load_diffusion_model(str(transformer))
        self.clip = make_clip(Vocabulary.of_weights(transformer))
        self.vae = comfy.sd.VAE(sd=comfy.utils.load_torch_file(str(weights / "stepcache_tiny_vae_fp16.safetensors")))

    def conditioning(self, text: str) -> list:
        return [[self.clip.encode_from_tokens(self.clip.tokenize(text)), {}]]

    def latent(self, size: int) -> Tensor:
        return torch.zeros(1, 16, size // 8, size // 8)

    def shown(self, latent: Tensor) -> Tensor:
        """(3, H, W) in [0, 1] of a sampled latent."""
        return self.vae.decode(latent)[0].detach().movedim(-1, 0).clamp(0, 1)

    def sampled(
        self,
        model,
        prompt: str,
        steps: int = STEPS,
        seed: int = 100,
        size: int | None = None,
        guidance: float = GUIDANCE,
        sampler: Sampler = "euler",
        scheduler: str = "simple",
    ) -> tuple[Tensor, float]:
        """The final latent, and the seconds that it took; `sampler` is a name or a SAMPLER."""
        positive, negative = self.conditioning(prompt), self.conditioning("")
        latent = self.latent(size or self.size)
        noise = comfy.sample.prepare_noise(latent, seed)
        sigmas = comfy.samplers.calculate_sigmas(model.get_model_object("model_sampling"), scheduler, steps)
        used = comfy.samplers.sampler_object(sampler) if isinstance(sampler, str) else sampler
        started = clock()
        sampled = comfy.sample.sample_custom(
            model, noise, guidance, used, sigmas, positive, negative, latent, disable_pbar=True, seed=seed
        )
        return sampled, clock() - started

    def picture(self, model, prompt: str, *args: Any, **settings: Any) -> tuple[Tensor, float]:
        """What is `shown` of a latent that is `sampled`, and the seconds that sampling took."""
        latent, seconds = self.sampled(model, prompt, *args, **settings)
        return self.shown(latent), seconds


class Videos(Scenes):
    """The tiny Wan: clips, shown as one picture with their frames one below the other."""

    transformer = "stepcache_tiny_wan_fp16.safetensors"
    size = 96
    frames = 5

    def latent(self, size: int) -> Tensor:
        return torch.zeros(1, 16, self.frames, size // 8, size // 8)

    def shown(self, latent: Tensor) -> Tensor:
        """(3, frames * H, W) in [0, 1]; the decoder is for single frames in Flux's latent format."""
        clip = comfy.latent_formats.Wan21().process_in(latent)  # as the model had it
        frames = comfy.latent_formats.Flux().process_out(clip[0].transpose(0, 1))  # (frames, 16, h, w)
        decoded = self.vae.decode(frames).detach()  # (frames, H, W, 3)
        return decoded.flatten(0, 1).movedim(-1, 0).clamp(0, 1)
