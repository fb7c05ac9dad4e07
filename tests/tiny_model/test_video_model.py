"""The shipped tiny Wan: ComfyUI loads it, and its clips move as their words say."""

import logging

import comfy.sd
import pytest
import torch
from comfy_extras.nodes_hunyuan import EmptyHunyuanLatentVideo
from safetensors import safe_open
from safetensors.torch import load_file

from devtools.bench_stepcache import Case, planned, shifted
from stepcache.cache_core.methods import stepcache, teacache
from stepcache.model_patches.architectures import ARCHITECTURES, identify
from stepcache.model_patches.install import apply_cache
from stepcache_tiny_model.nodes_tiny import TRANSFORMER_FILES
from stepcache_tiny_model.training.clips import PANS, SPEED
from stepcache_tiny_model.training.video_network import TinyWan

FILE = TRANSFORMER_FILES["video"]
STEPS = 12
FOLLOWED = ("right", "left", "still")
"""In nearly every clip; down and up are in about half."""


def test_comfyui_takes_it_for_a_whole_wan(caplog):
    with caplog.at_level(logging.WARNING):
        patcher = comfy.sd.load_diffusion_model(str(FILE))
    assert not caplog.records  # it warns of missing and of unexpected tensors
    assert type(patcher.model.model_config).__name__ == "WAN21_T2V"
    assert identify(patcher.model.diffusion_model) is ARCHITECTURES["WanModel"]


def test_the_file_says_where_it_comes_from():
    with safe_open(FILE, framework="pt") as weights:
        metadata = weights.metadata()
    assert metadata["license"] == "Apache-2.0"
    assert {"title", "data", "code", "seed", "steps", "schedule", "velocity_loss", "words", "config"} <= set(metadata)


def test_comfyui_computes_what_was_trained(videos):
    trained = TinyWan()
    trained.load_state_dict({name: value.float() for name, value in load_file(FILE).items()})
    torch.manual_seed(0)
    latent, time, text = (
        torch.randn(2, 16, 5, 12, 8),
        torch.tensor([0.3, 0.8]),
        torch.eye(64)[None, :10].repeat(2, 1, 1),
    )
    with torch.no_grad():
        expected = trained(latent, time, text)
        computed = videos.model.model.diffusion_model(latent, 1000 * time, text)
    assert (computed - expected).abs().max() < 1e-2 * expected.std()


def test_a_stock_node_makes_its_empty_latent(videos):
    empty = EmptyHunyuanLatentVideo.execute(width=96, height=96, length=17).result[0]["samples"]
    assert empty.shape == videos.latent(96).shape == (1, 16, 5, 12, 12)


def frames(videos, prompt):
    """(F, 3, H, W)"""
    shown, _ = videos.picture(shifted(videos.model, 3.0), prompt, steps=STEPS)
    assert shown.shape == (3, 5 * 96, 96)
    return shown.unflatten(1, (5, 96)).transpose(0, 1)


@pytest.mark.parametrize("word", FOLLOWED)
def test_a_clip_moves_as_its_word_says(videos, word):
    clip = frames(videos, f"day mountains trees {word}")
    differences = {name: difference(clip, direction) for name, direction in PANS.items()}
    assert min(differences, key=differences.__getitem__) == word


def difference(clip, direction) -> float:
    """Between neighbouring frames, where one shows what the other did before it moved."""
    seen = clip[:, :, SPEED:-SPEED, SPEED:-SPEED]
    down, right = (SPEED * (1 + along) for along in direction)
    height, width = seen.shape[-2:]
    before = clip[:-1, :, down : down + height, right : right + width]
    return float((seen[1:] - before).abs().mean())


def test_caches_run_on_it():
    case = Case("28 euler, video", quick=True)
    plain, _ = case.picture(case.model, 0)
    for method in (teacache(0.15), stepcache(planned([case.recorded(0)], case.steps // 2))):
        reports = []
        cached, _ = case.picture(apply_cache(case.model, method, reports.append), 0)
        assert 0 < reports[-1].reused < case.steps
        assert 0 < (cached - plain).abs().mean() < 0.1
