"""PSNR and SSIM on pictures whose values can be worked out by hand."""

import math

import pytest
import torch

from stepcache.cache_core.quality import psnr, ssim


def flat(value: float, size: int = 16) -> torch.Tensor:
    return torch.full((3, size, size), value)


def test_identical_pictures():
    picture = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert psnr(picture, picture.clone()) == math.inf
    assert ssim(picture, picture.clone()) == 1.0


@pytest.mark.parametrize(("difference", "decibels"), [(1.0, 0.0), (0.1, 20.0), (0.01, 40.0)])
def test_psnr_of_a_constant_difference(difference, decibels):
    assert psnr(flat(0.0), flat(difference)) == pytest.approx(decibels, abs=1e-4)


def test_psnr_counts_against_the_peak():
    assert psnr(flat(0.0), flat(25.5), peak=255.0) == pytest.approx(20.0, abs=1e-4)


def test_psnr_of_one_wrong_pixel():
    picture = torch.zeros(1, 10, 10)
    wrong = picture.clone()
    wrong[0, 4, 4] = 1.0  # mean squared error 1/100
    assert psnr(picture, wrong) == pytest.approx(20.0)


def test_psnr_is_the_mean_over_pictures():
    reference = torch.zeros(2, 3, 16, 16)
    changed = torch.stack([flat(0.1), flat(0.01)])
    assert psnr(reference, changed) == pytest.approx(30.0, abs=1e-4)


def test_ssim_of_flat_pictures_is_the_luminance_term():
    a, b, c1 = 0.25, 0.75, 0.01**2
    assert ssim(flat(a), flat(b)) == pytest.approx((2 * a * b + c1) / (a * a + b * b + c1))


def test_ssim_of_a_negative_is_negative():
    picture = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
    assert ssim(picture, 1 - picture) < -0.5


def test_ssim_does_not_depend_on_the_scale():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 1, 3, 24, 24, generator=generator).unbind()
    assert ssim(255 * a, 255 * b, peak=255.0) == pytest.approx(ssim(a, b), abs=1e-6)


def test_ssim_falls_with_the_amount_of_noise():
    generator = torch.Generator().manual_seed(0)
    picture, noise = torch.rand(2, 1, 3, 32, 32, generator=generator).unbind()
    values = [ssim(picture, picture + amount * (noise - 0.5)) for amount in (0.0, 0.05, 0.1, 0.5)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1.0


def test_unequal_shapes_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        psnr(flat(0.0, 16), flat(0.0, 17))


def test_pictures_smaller_than_the_window_are_refused():
    with pytest.raises(ValueError, match="11x11"):
        ssim(flat(0.0, 10), flat(0.0, 10))
