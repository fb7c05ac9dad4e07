"""A node that samples with and without the cache, and compares."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import comfy.samplers
import comfy.utils
from comfy.model_patcher import ModelPatcher
from comfy_api.latest import io, ui
from torch import Tensor

from ..cache_core.report import RunReport
from ..model_patches.install import without_cache
from .base import CATEGORY
from .inputs import refuse_out_of_range
from .likeness import Likeness, latent_likeness, picture_likeness
from .runs import log_of
from .sampling import RATIOS, parts_of, sampled
from .sheet import as_image, text_card
from .side_by_side import AMPLIFY, side_by_side

VERSION = 1
"""Of `Comparison.as_dict`; rises when a field changes its meaning or goes away."""

NO_CACHE = (
    "No cache is on this model, so there is nothing to compare. Connect the MODEL output of a cache node. If it is "
    "connected, the node is bypassed or switched off (threshold 0)."
)


@dataclass(frozen=True)
class Comparison:
    """Times are seconds of wall clock for all of sampling. `picture` is None without a VAE."""

    plain_seconds: float
    cached_seconds: float
    report: RunReport
    latent: Likeness
    picture: Likeness | None

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.cached_seconds

    def lines(self) -> list[str]:
        report = self.report
        return [
            f"{report.method} on {report.model}: {self.speedup:.2f}x",
            f"{self.plain_seconds:.2f} s without the cache, {self.cached_seconds:.2f} s with it",
            f"{report.computed} of {report.evaluations} evaluations computed, {report.reused} reused",
            f"latent: {self.latent}",
            *([f"picture: {self.picture}"] if self.picture else []),
            *report.messages,
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "speedup": round(self.speedup, 3),
            "plain_seconds": self.plain_seconds,
            "cached_seconds": self.cached_seconds,
            "latent": self.latent.as_dict(),
            "picture": self.picture and self.picture.as_dict(),
            "run": self.report.as_dict(),
        }


class CacheCompare(io.ComfyNode):
    """A KSampler that runs twice."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="StepCacheCompare",
            display_name="Cache Compare",
            category=CATEGORY,
            description="Samples with and without the cache from the same seed, and tells how much faster it was and how "
            "alike the results are. With a VAE it shows both pictures and what differs.",
            search_aliases=["compare", "benchmark", "psnr", "ssim", "quality", "cache", "step cache", "speedup"],
            inputs=sampling_inputs(),
            outputs=[
                io.Latent.Output("plain", tooltip="Sampled without the cache."),
                io.Latent.Output("cached", tooltip="Sampled with it."),
                io.Image.Output("image", tooltip="Both pictures and what differs; the figures alone without a VAE."),
                io.String.Output("report", tooltip="Speedup and likeness as text."),
            ],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt],
            is_output_node=True,
        )

    @classmethod
    def execute(cls, model, latent_image, vae=None, **settings) -> io.NodeOutput:
        log, plain = log_of(model), without_cache(model)
        if log is None or plain is None:
            raise ValueError(NO_CACHE)
        refuse_out_of_range(sampling_inputs(), settings)
        sampling = Sampling(latent_image, settings)
        sampling.warm_up(plain)
        exact, plain_seconds = sampling.timed(plain, 0)
        cached, cached_seconds = sampling.timed(model, 1)
        pictures = [decoded(vae, latent) for latent in (exact, cached)] if vae is not None else []
        comparison = Comparison(
            plain_seconds,
            cached_seconds,
            log.runs[-1].report,
            latent_likeness(parts_of(exact)[0], parts_of(cached)[0]),
            picture_likeness(*pictures) if pictures else None,
        )
        image, text = picture_of(comparison, pictures), "\n".join(comparison.lines())
        shown = ui.PreviewImage(image, cls=cls).as_dict()
        shown |= {"text": (text,), "stepcache_comparison": [comparison.as_dict()]}
        return io.NodeOutput(sampling.latent(exact), sampling.latent(cached), image, text, ui=shown)


def sampling_inputs() -> list[io.Input]:
    """Those of ComfyUI's KSampler, in its order, and a VAE."""
    kinds = comfy.samplers.KSampler
    return [
        io.Model.Input("model", tooltip="The cached model. The plain one is the same without our cache."),
        io.Int.Input(
            "seed",
            default=0,
            min=0,
            max=0xFFFFFFFFFFFFFFFF,
            control_after_generate=True,
            tooltip="Of the noise, the same for both runs.",
        ),
        io.Int.Input("steps", default=20, min=1, max=10000, tooltip="Steps of each of the two runs."),
        io.Float.Input("cfg", default=8.0, min=0.0, max=100.0, step=0.1, round=0.01, tooltip="Guidance scale."),
        io.Combo.Input("sampler_name", options=kinds.SAMPLERS, tooltip="The sampler of both runs."),
        io.Combo.Input("scheduler", options=kinds.SCHEDULERS, tooltip="How the steps are spaced."),
        io.Conditioning.Input("positive", tooltip="What shall be in the picture."),
        io.Conditioning.Input("negative", tooltip="What shall not be in it."),
        io.Latent.Input("latent_image", tooltip="What is denoised."),
        io.Float.Input(
            "denoise", default=1.0, min=0.01, max=1.0, step=0.01, tooltip="Less than 1 keeps a part of the latent."
        ),
        io.Vae.Input("vae", optional=True, tooltip="With it, pictures are compared as well."),
    ]


class Sampling:
    """What ComfyUI's KSampler does, twice under one progress bar."""

    def __init__(self, latent: Mapping[str, Any], settings: Mapping[str, Any]):
        self.given, self.settings, self.steps = latent, settings, settings["steps"]
        self.progress = comfy.utils.ProgressBar(2 * self.steps)

    def warm_up(self, model: ModelPatcher) -> None:
        """One step that nobody times, as it includes loading."""
        self.sample(model, steps=1, denoise=1.0, sampler="euler", scheduler="simple")

    def timed(self, model: ModelPatcher, number: int) -> tuple[Tensor, float]:
        """The sampled latent and the seconds it took; `number` of the two runs."""
        chosen, show, started = self.settings, self.callback(model, number), time.perf_counter()
        samples = self.sample(model, self.steps, chosen["denoise"], chosen["sampler_name"], chosen["scheduler"], show)
        return samples, time.perf_counter() - started

    def sample(self, model: ModelPatcher, steps: int, denoise: float, sampler: str, scheduler: str, callback=None):
        seed, cfg, positive, negative = (self.settings[name] for name in ("seed", "cfg", "positive", "negative"))
        samples = sampled(
            model, self.given, seed, steps, cfg, sampler, scheduler, positive, negative, denoise, callback
        )
        parts_of(samples)[0].flatten()[:1].tolist()  # waits for the device, so that all of it is timed
        return samples

    def callback(self, model: ModelPatcher, number: int):
        """Progress with ComfyUI's own previews."""
        import latent_preview

        previewer = latent_preview.get_previewer(model.load_device, model.model.latent_format)

        def show(step: int, x0: Tensor, x: Tensor, total: int) -> None:
            preview = previewer.decode_latent_to_preview_image("JPEG", parts_of(x0)[0]) if previewer else None
            done = number + (step + 1) / total
            self.progress.update_absolute(round(done * self.steps), 2 * self.steps, preview)

        return show

    def latent(self, samples: Tensor) -> dict[str, Any]:
        kept = {name: value for name, value in self.given.items() if name not in RATIOS}
        return kept | {"samples": samples}


def decoded(vae, latent: Tensor) -> Tensor:
    """Pictures (N, H, W, 3), without transparency and sound; the frames of videos one after the other."""
    pictures = vae.decode(parts_of(latent)[0])[..., :3]
    return pictures.reshape(-1, *pictures.shape[-3:]).float().cpu()


def picture_of(comparison: Comparison, pictures: list[Tensor]) -> Tensor:
    title, *figures = comparison.lines()
    if not pictures:
        return as_image(text_card(title, figures))
    cached = f"{comparison.report.method}, {comparison.speedup:.2f}x"
    return side_by_side(pictures[0], pictures[1], ["without the cache", cached, f"difference, {AMPLIFY}x brighter"])
