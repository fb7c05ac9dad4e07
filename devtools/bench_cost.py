"""Cost of interception, of a reused call, of deciding, and of memory, on a Flux of 19 + 38 small blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from statistics import median

import comfy.model_management
import comfy.model_patcher
import comfy.samplers
import comfy.supported_models
import torch

from stepcache.cache_core.method import CacheMethod
from stepcache.cache_core.methods import (
    dbcache,
    dpcache,
    easycache,
    first_block_cache,
    meancache,
    seacache,
    spectrum,
    taylorseer,
    teacache,
)
from stepcache.cache_core.planning import general_steps
from stepcache.model_patches.install import apply_cache

HIDDEN, HEADS, TEXT_TOKENS = 256, 2, 32
BLOCKS = 19 + 38
NEVER, ALWAYS = 1e-12, 1e9
"""Thresholds at which nothing, or everything that may be, is reused."""

METHODS: dict[str, Callable[[float], CacheMethod]] = {
    "TeaCache": teacache,
    "First Block Cache": first_block_cache,
    "SeaCache": seacache,
    "EasyCache": easycache,
}
AS_MUCH_AS_MAY_BE: dict[str, tuple[CacheMethod, int, int]] = {
    "TeaCache": (teacache(ALWAYS), 2, 0),
    "First Block Cache": (first_block_cache(ALWAYS), 2, 0),
    "DBCache 8 + 0": (dbcache(ALWAYS, 8), 1, 0),
    "SeaCache": (seacache(ALWAYS), 2, 0),
    "EasyCache": (easycache(ALWAYS), 0, 4),
    "TaylorSeer order 0": (taylorseer(99, 0, 1), 1, 0),
    "TaylorSeer order 1": (taylorseer(99, 1, 2), 2, 0),
    "TaylorSeer order 2": (taylorseer(99, 2, 3), 3, 0),
    "DPCache order 1": (dpcache(partial(general_steps, computed=4), 1), 2, 0),
    "Spectrum": (spectrum(2, 99, 0), 5, 0),
    "MeanCache": (meancache(partial(general_steps, computed=4)), 0, 3),
}
"""Methods that reuse all they may, with what they keep of a branch: times its image tokens, and times its latent."""


def rows(quick: bool) -> Iterator[dict]:
    model = flux()
    size = 32  # latent pixels a side: 256 image tokens
    rounds = 3 if quick else 8
    timed_run(model, size)  # the first run pays for allocation
    for name, method in METHODS.items():
        yield overhead(model, size // 4, name, method, 4 * rounds)  # short calls, so that little is not lost in noise
    for name, (method, tokens, latents) in AS_MUCH_AS_MAY_BE.items():
        yield reuse(model, size, name, method, rounds)
        yield memory(model, size, name, method, tokens, latents)


def overhead(model, size, name, method, rounds) -> dict:
    """Computed calls with the cache on and nothing reused, against the plain model, in alternation."""
    cached = apply_cache(model, method(NEVER))
    plain_times, cached_times = [], []
    for _ in range(rounds):
        plain_times += timed_run(model, size)
        cached_times += timed_run(cached, size)
    plain, computed = min(plain_times), min(cached_times)
    return {
        "bench": "overhead",
        "method": name,
        "setting": f"{BLOCKS} blocks, nothing reused",
        "plain_ms": plain * 1e3,
        "computed_ms": computed * 1e3,
        "overhead_ms": (computed - plain) * 1e3,
        "overhead_ratio": computed / plain - 1,
        "median_ratio": median(cached_times) / median(plain_times) - 1,
    }


def reuse(model, size, name, method, rounds) -> dict:
    """A reused call against a computed one of the same runs, and device reads per evaluation under ComfyUI's Euler."""
    reports = []
    cached = apply_cache(model, method, reports.append)
    computed_times, reused_times = [], []
    for _ in range(rounds):
        times = timed_run(cached, size, steps=8)
        report = reports[-1]
        for seconds, evaluation in zip(times, report.trace, strict=True):
            (reused_times if evaluation.reused else computed_times).append(seconds)
    sample(cached, size, comfy.samplers.sampler_object("euler"), steps=8)
    return {
        "bench": "reused call",
        "method": name,
        "setting": f"{BLOCKS} blocks",
        "computed_ms": min(computed_times) * 1e3,
        "reused_ms": min(reused_times) * 1e3,
        "reused_ratio": min(reused_times) / min(computed_times),
        "one_block_ratio": 1 / BLOCKS,
        "device_reads_per_evaluation": reports[-1].device_reads / reports[-1].evaluations,
    }


def memory(model, size, name, method, tokens, latents) -> dict:
    """Bytes held per branch against the published formula: so many times its image tokens, and its latent."""
    reports = []
    timed_run(apply_cache(model, method, reports.append), size, steps=8)
    branches = 2
    formula = 4 * (tokens * (size // 2) ** 2 * HIDDEN + latents * size * size * 16)
    held = reports[-1].cache_bytes
    return {
        "bench": "memory",
        "method": name,
        "setting": "2 branches, fp32",
        "bytes_per_branch": held // branches,
        "formula_bytes": formula,
        "memory_ratio": held / branches / formula,
    }


def flux():
    """A real Flux of ComfyUI with 19 double and 38 single blocks, narrow, with random weights."""
    config = dict(
        image_model="flux",
        in_channels=16,
        out_channels=16,
        patch_size=2,
        vec_in_dim=16,
        context_in_dim=32,
        hidden_size=HIDDEN,
        mlp_ratio=4.0,
        num_heads=HEADS,
        depth=19,
        depth_single_blocks=38,
        axes_dim=[16, 56, 56],
        theta=10000,
        qkv_bias=True,
        guidance_embed=True,
        txt_ids_dims=[],
    )
    supported = comfy.supported_models.Flux(config)
    supported.set_inference_dtype(torch.float32, None)
    base = supported.get_model({}, "")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in base.diffusion_model.parameters():
            scale = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else 0.1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    load, offload = comfy.model_management.get_torch_device(), torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(base.eval(), load_device=load, offload_device=offload)


def timed_run(model, size: int, steps: int = 3) -> list[float]:
    """Seconds of each evaluation of an Euler run at CFG 3."""
    times: list[float] = []

    @torch.no_grad()
    def euler(denoiser, x, sigmas, extra_args=None, callback=None, disable=None):
        for high, low in pairwise(sigmas):
            synchronize()
            started = clock()
            denoised = denoiser(x, high * x.new_ones(x.shape[0]), **(extra_args or {}))
            synchronize()
            times.append(clock() - started)
            x = x + (low - high) * (x - denoised) / high
        return x

    sample(model, size, comfy.samplers.KSAMPLER(euler), steps)
    return times


def sample(model, size: int, sampler, steps: int) -> None:
    """A run from noise at CFG 3."""
    generator = torch.Generator().manual_seed(1)
    conds = [
        [
            [
                torch.randn(1, TEXT_TOKENS, 32, generator=generator),
                {"pooled_output": torch.randn(1, 16, generator=generator)},
            ]
        ]
        for _ in range(2)
    ]
    noise = torch.randn(1, 16, size, size, generator=generator)
    sigmas = torch.linspace(1, 0, steps + 1)
    device = model.load_device
    options = {"model_options": model.model_options, "latent_image": torch.zeros_like(noise), "disable_pbar": True}
    positive, negative = conds
    comfy.samplers.sample(model, noise, positive, negative, 3.0, device, sampler, sigmas, seed=1, **options)


def clock() -> float:
    """Seconds: of this process's CPU time without a GPU, so that other programs matter little; else wall time."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
