"""Likeness of latents and pictures."""

import json
import math

import pytest
import torch

from stepcache.cache_core.quality import psnr, ssim
from stepcache.nodes.likeness import as_frames, latent_likeness, picture_likeness


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_pictures_are_compared_with_their_channels_last():
    a, b = random(2, 16, 20, 3), random(2, 16, 20, 3, seed=1)
    found = picture_likeness(a, b)
    planes = [each.movedim(-1, 1) for each in (a, b)]
    assert found.psnr == pytest.approx(psnr(*planes)) and found.ssim == pytest.approx(ssim(*planes))


def test_the_same_is_told_and_json_has_no_infinity():
    a = random(1, 16, 16, 3)
    found = picture_likeness(a, a)
    assert str(found) == "the same"
    assert found.as_dict() == {"same": True, "psnr": None, "ssim": 1.0}


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("both", [True, False])
def test_what_is_not_finite_is_told_and_is_not_the_same(broken, both):
    a, b = random(2, 16, 16, 3), random(2, 16, 16, 3)
    b[1, 0, 0, 0] = broken
    if both:
        a[1, 0, 0, 0] = broken
    found = picture_likeness(a, b)
    assert "not finite" in str(found) and not found.same
    assert json.dumps(found.as_dict(), allow_nan=False) and found.as_dict()["psnr"] is None
    assert "not finite" in str(latent_likeness(a, b))


def test_frames_that_are_the_same_do_not_make_the_others_so():
    a, b = random(2, 16, 16, 3), random(2, 16, 16, 3)
    b[1] += 0.1
    assert math.isfinite(picture_likeness(a, b).psnr)
    assert picture_likeness(a, b).psnr == pytest.approx(20, abs=0.01)


def test_a_latent_counts_in_parts_of_its_range():
    """An error of a tenth of the range is 20 dB, whatever the latent's scale."""
    latent = random(1, 4, 12, 12)
    latent = (latent - latent.min()) / (latent.max() - latent.min())
    for scale in (1.0, 37.0):
        found = latent_likeness(scale * (latent - 0.5), scale * (latent - 0.4))
        assert found.psnr == pytest.approx(20, abs=0.01) and found.ssim < 1


@pytest.mark.parametrize(
    ("shape", "frames"), [((2, 4, 8, 9), (2, 4, 8, 9)), ((2, 4, 3, 8, 9), (6, 4, 8, 9)), ((2, 4, 50), (2, 1, 4, 50))]
)
def test_pictures_videos_and_sound_become_frames(shape, frames):
    assert as_frames(random(*shape)).shape == frames


def test_the_frames_of_a_video_stay_whole():
    video = random(1, 4, 3, 8, 9)
    assert (as_frames(video)[1] == video[0, :, 1]).all()


def test_a_small_or_constant_latent_has_no_ssim_or_no_scale():
    assert latent_likeness(random(1, 4, 8, 8), random(1, 4, 8, 8, seed=1)).ssim is None
    assert str(latent_likeness(torch.ones(1, 4, 12, 12), torch.ones(1, 4, 12, 12))) == "the same"
