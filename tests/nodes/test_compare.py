"""Cache Compare on a tiny model: what it samples is what a KSampler samples."""

import math
from pathlib import Path

import comfy.model_management
import comfy.sd
import comfy.utils
import folder_paths
import pytest
import torch

import stepcache
from stepcache.model_patches.install import without_cache
from stepcache.nodes.compare import NO_CACHE, CacheCompare
from stepcache.nodes.sampling import parts_of
from stepcache.nodes.side_by_side import GAP
from stepcache.nodes.threshold_nodes import TeaCache

from ..sampling import count_block_runs, run
from ..tiny_models import build, shared

CACHE = dict(start_percent=0.0, end_percent=1.0, max_consecutive=2, cache_device="auto")
SAMPLING = dict(seed=1, steps=8, cfg=3.0, sampler_name="euler", scheduler="simple", denoise=1.0)
NEVER = 1e-6
VAE_FILE = Path(stepcache.__file__).parent / "tiny_model" / "weights" / "stepcache_tiny_vae_fp16.safetensors"


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path):
    before = folder_paths.get_temp_directory()
    folder_paths.set_temp_directory(str(tmp_path))
    yield tmp_path
    folder_paths.set_temp_directory(before)


@pytest.fixture(scope="module")
def vae():
    """That of the demo's model."""
    return comfy.sd.VAE(sd=comfy.utils.load_torch_file(str(VAE_FILE)))


def cached(tiny, threshold=5.0):
    return TeaCache.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, threshold=threshold, **CACHE).result[0]


@torch.inference_mode()  # as ComfyUI executes nodes
def compared(model, tiny, latent=None, **changed):
    inputs = SAMPLING | {"positive": tiny.positive, "negative": tiny.negative} | changed
    node = CacheCompare.PREPARE_CLASS_CLONE(None)
    return node.execute(model=model, latent_image=latent or {"samples": tiny.latent}, **inputs)


def figures(output):
    return output.ui["stepcache_comparison"][0]


def test_the_inputs_and_outputs_are_a_contract():
    schema = CacheCompare.define_schema()
    sampling = ["seed", "steps", "cfg", "sampler_name", "scheduler", "positive", "negative", "latent_image", "denoise"]
    assert [entry.id for entry in schema.inputs] == ["model", *sampling, "vae"]
    assert [entry.id for entry in schema.outputs] == ["plain", "cached", "image", "report"]
    assert all(entry.tooltip for entry in [*schema.inputs, *schema.outputs])


@pytest.mark.parametrize("denoise", [1.0, 0.5])
def test_both_latents_are_those_of_the_sampler_with_and_without_the_cache(denoise):
    tiny = shared("flux_dev")
    model = cached(tiny)
    plain, with_cache, image, report = compared(model, tiny, denoise=denoise).result
    assert (plain["samples"] == run(tiny.patcher, tiny, cfg=3.0, denoise=denoise)).all()
    assert (with_cache["samples"] == run(model, tiny, cfg=3.0, denoise=denoise)).all()
    assert (plain["samples"] != with_cache["samples"]).any()
    assert report.startswith("TeaCache on Flux: ") and "PSNR" in report and image.shape[2] == 1024


def test_figures_are_of_the_two_runs(vae):
    tiny = shared("flux_dev")
    output = compared(cached(tiny), tiny, vae=vae)
    found = figures(output)
    assert found["speedup"] == pytest.approx(found["plain_seconds"] / found["cached_seconds"], abs=0.001)
    assert found["run"]["evaluations"] == 8 and found["run"]["reused"] > 0
    assert not found["latent"]["same"] and 0 < found["picture"]["psnr"] < 100
    assert output.result[2].shape[2] == 3 * 8 * tiny.latent.shape[-1] + 2 * GAP


def test_a_cache_that_reuses_nothing_gives_the_same(vae):
    tiny = shared("flux_dev")
    output = compared(cached(tiny, NEVER), tiny, vae=vae)
    assert figures(output)["latent"]["same"] and figures(output)["picture"]["same"]
    assert "latent: the same" in output.result[3]


def test_the_plain_run_and_the_warm_up_compute_every_block():
    tiny = build("flux_dev")
    model = cached(tiny)
    with count_block_runs(tiny.patcher) as runs:
        output = compared(model, tiny, cfg=1.0)
    assert runs.count == 1 + 8 + figures(output)["run"]["computed"]


def test_the_plain_model_is_the_cached_one_but_for_the_cache():
    tiny = shared("flux_dev")
    model = cached(tiny)
    model.add_wrapper_with_key("another kind", "another", lambda: None)
    plain = without_cache(model)
    assert plain.get_wrappers("another kind", "another")
    assert without_cache(plain) is None and without_cache(model) is not None
    assert without_cache(tiny.patcher) is None


def test_a_model_without_a_cache_is_refused_with_the_cure():
    tiny = shared("flux_dev")
    for model in (tiny.patcher, cached(tiny, 0.0)):
        with pytest.raises(ValueError, match="Connect the MODEL output of a cache node"):
            compared(model, tiny)
    assert "nothing to compare" in NO_CACHE


@pytest.mark.parametrize("wrong", [dict(denoise=0.0), dict(denoise=math.nan), dict(steps=0), dict(steps=-3), dict(seed=-1),
    dict(cfg=math.nan), dict(cfg="3")], ids=str)  # fmt: skip
def test_a_linked_number_out_of_range_is_refused_with_the_cure(wrong):
    """ComfyUI checks the range of typed numbers only."""
    tiny = shared("flux_dev")
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} is .* Use a number"):
        compared(cached(tiny), tiny, **wrong)


def test_what_the_cache_had_to_say_is_told():
    tiny = shared("flux_dev")
    assert "the general rule is used" in compared(cached(tiny), tiny).result[3]


def test_a_mask_is_kept_and_used_by_both_runs():
    tiny = shared("flux_dev")
    start = torch.rand(tiny.latent.shape, generator=torch.Generator().manual_seed(3))
    mask = torch.zeros(1, 1, *tiny.latent.shape[-2:])
    plain, with_cache, *_ = compared(cached(tiny), tiny, {"samples": start, "noise_mask": mask}).result
    for latent in (plain, with_cache):
        assert torch.allclose(latent["samples"], start, atol=1e-5) and latent["noise_mask"] is mask


@pytest.mark.parametrize("name", ["wan_t2v", "ltx_av"])
def test_videos_are_compared_frame_by_frame_also_with_sound(name):
    tiny = shared(name)
    output = compared(cached(tiny), tiny)
    sampled = output.result[0]["samples"]
    assert sampled.is_nested is tiny.latent.is_nested and parts_of(sampled)[0].ndim == 5
    assert not figures(output)["latent"]["same"]


@pytest.mark.parametrize("stop", [1, 10], ids=["in the plain run", "in the cached run"])
def test_progress_runs_over_both_and_can_be_interrupted(monkeypatch, stop):
    tiny, seen = shared("flux_dev"), []

    def hook(value, total, preview, **more):
        seen.append((value, total))
        if value == stop:
            comfy.model_management.interrupt_current_processing()

    monkeypatch.setattr(comfy.utils, "PROGRESS_BAR_HOOK", hook)
    for limit in ("PROGRESS_THROTTLE_MIN_INTERVAL", "PROGRESS_THROTTLE_MIN_PERCENT"):
        monkeypatch.setattr(comfy.utils, limit, 0, raising=False)
    with pytest.raises(comfy.model_management.InterruptProcessingException):
        compared(cached(tiny), tiny)
    assert seen == [(value, 16) for value in range(1, stop + 1)]
