"""Run ComfyUI's own sampler on a tiny model, and watch what it computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import comfy.sample
import comfy.samplers
import comfy.utils
import torch
from comfy.nested_tensor import NestedTensor

from .tiny_models import blocks_of


def run(patcher, tiny, steps=8, cfg=1.0, sampler="euler", scheduler="simple", seed=1, denoise=1.0, start=None, last=None,
        latent=None, no_noise=False, positive=None, negative=None, mask=None, callback=None, sigmas=None, batch=1,
        noise=None):  # fmt: skip
    """Sample like a KSampler node and return the latent, a nested one as `flat`.

    `sigmas` replaces the schedule and then `steps`, `scheduler`, `denoise`, `start` and `last` are unused.
    `sampler` is a name or a SAMPLER object.
    """
    latent = repeated(tiny.latent if latent is None else latent, batch)
    if noise is None:
        noise = latent * 0.0 if no_noise else comfy.sample.prepare_noise(latent, seed)
    positive, negative = positive or tiny.positive, negative or tiny.negative
    options = dict(noise_mask=mask, callback=callback, disable_pbar=True, seed=seed)
    if sigmas is None and isinstance(sampler, str):
        return flat(comfy.sample.sample(patcher, noise, steps, cfg, sampler, scheduler, positive, negative, latent,
            denoise=denoise, start_step=start, last_step=last, disable_noise=no_noise, **options))  # fmt: skip
    if sigmas is None:
        sigmas = comfy.samplers.calculate_sigmas(patcher.get_model_object("model_sampling"), scheduler, steps)
    if isinstance(sampler, str):
        sampler = comfy.samplers.sampler_object(sampler)
    return flat(
        comfy.sample.sample_custom(
            patcher, noise, cfg, sampler, torch.as_tensor(sigmas), positive, negative, latent, **options
        )
    )


def repeated(latent, batch: int):
    if latent.is_nested:
        return NestedTensor([repeated(part, batch) for part in latent.unbind()])
    return latent.repeat(batch, *[1] * (latent.ndim - 1))


def flat(latent) -> torch.Tensor:
    """A nested latent as the one tensor that samplers see; others as they are."""
    return comfy.utils.pack_latents(latent.unbind())[0] if latent.is_nested else latent


@torch.no_grad()
def evaluate_twice(model, x, sigmas, extra_args=None, callback=None, disable=None, pairs=None):
    """An Euler sampler that evaluates every sigma twice on the same x, and notes both results in `pairs`."""
    for sigma, following in zip(sigmas[:-1], sigmas[1:], strict=True):
        sigma_in = sigma * x.new_ones(x.shape[0])
        first, second = (model(x, sigma_in, **extra_args) for _ in range(2))
        pairs.append((first, second))
        x = x + (x - first) / sigma * (following - sigma)
    return x


MIDDLE = -2
"""Index of a block that every method skips, also one that always runs the last."""


@dataclass
class BlockRuns:
    count: int = 0


@contextmanager
def count_runs(layer: torch.nn.Module) -> Iterator[BlockRuns]:
    runs = BlockRuns()

    def count(*_):
        runs.count += 1

    handle = layer.register_forward_pre_hook(count)
    try:
        yield runs
    finally:
        handle.remove()


def count_block_runs(patcher, index: int = -1):
    """Count how often a block of the model, the last one, really computed.

    A hook on the block itself would also fire for a reused call, so the hook sits on a layer inside it.
    """
    return count_runs(main_layer(blocks_of(patcher)[index]))


def main_layer(block: torch.nn.Module) -> torch.nn.Linear:
    """The first linear layer that is not part of the modulation, which a probe may call on its own."""
    modulation = ("mod", "adaln", "norm")
    for name, module in block.named_modules():
        if isinstance(module, torch.nn.Linear) and not any(part in name.lower() for part in modulation):
            return module
    raise ValueError(f"no linear layer in {type(block).__name__}")
