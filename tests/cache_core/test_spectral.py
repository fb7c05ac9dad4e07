"""EX-S1, EX-S2 and EX-S4: the gains of SeaCache's filter; and what a filter must do. EX-S3 is in methods/test_seacache."""

import pytest
import torch

from stepcache.cache_core import spectral
from stepcache.cache_core.distances import relative_l1
from stepcache.cache_core.spectral import axis_gain, filtered, separable_gain


def scalars(a, b=None):
    return torch.tensor(a), torch.tensor(1 - a if b is None else b)


@pytest.mark.parametrize(
    ("a", "b", "gains"),
    [
        (0.5, 0.5, (2, 1.882353, 1.6, 1.882353)),
        (0.1, 0.9, (10, 1.649485, 0.470588, 1.649485)),
        (0.9, 0.1, (1.111111, 1.110254, 1.107692, 1.110254)),
    ],
)
def test_gain_of_an_axis(a, b, gains):
    """EX-S1."""
    assert axis_gain(4, *scalars(a, b), 2.0).tolist() == pytest.approx(gains, rel=1e-5)


def test_separable_gain():
    """EX-S2. Its radial form is another filter, with other thresholds."""
    gain = separable_gain((4, 4), *scalars(0.5), 2.0)
    assert gain[0].tolist() == pytest.approx((1.179965, 1.110555, 0.943972, 1.110555), rel=1e-5)
    assert gain[1].tolist() == pytest.approx((1.110555, 1.045229, 0.888444, 1.045229), rel=1e-5)
    assert gain[2].tolist() == pytest.approx((0.943972, 0.888444, 0.755178, 0.888444), rel=1e-5)
    noisy = separable_gain((4, 4), *scalars(0.1), 2.0)
    assert [noisy[0, 0].item(), noisy[0, 1].item()] == pytest.approx((8.438787, 1.391965), rel=1e-5)
    assert noisy[2, 2].item() == pytest.approx(0.018688, rel=1e-4)  # printed to four digits


def test_separable_gain_of_a_video():
    """EX-S2."""
    gain = separable_gain((2, 2, 2), *scalars(0.5), 3.0)
    found = [gain[0, 0, 0].item(), gain[0, 0, 1].item(), gain[0, 1, 1].item(), gain[1, 1, 1].item()]
    assert found == pytest.approx((1.187055, 1.055160, 0.937920, 0.833706), rel=1e-5)


@pytest.mark.parametrize(
    ("a", "lowest", "highest"),
    [
        (0.05, 13.323737, 0.001600),
        (0.2, 3.305785, 0.132231),
        (0.5, 1.179965, 0.755178),
        (0.8, 1.011685, 0.980795),
        (0.95, 1.000519, 0.999135),
    ],
)
def test_the_filter_opens_as_noise_falls(a, lowest, highest):
    """EX-S4."""
    gain = separable_gain((4, 4), *scalars(a), 2.0)
    assert gain[0, 0].item() == pytest.approx(lowest, rel=1e-5)
    assert gain[2, 2].item() == pytest.approx(highest, rel=1e-5, abs=5e-7)


def full_spectrum(tokens, grid, gain):
    """The definition, with the whole spectrum."""
    values = tokens.double().reshape(tokens.shape[0], *grid, tokens.shape[-1])
    axes = tuple(range(1, 1 + len(grid)))
    spectrum = torch.fft.fftn(values, dim=axes) * gain.double().unsqueeze(-1)
    return torch.fft.ifftn(spectrum, dim=axes).real.reshape(tokens.shape)


@pytest.mark.parametrize("grid", [(4, 4), (5, 7), (1, 6), (3, 4, 5), (8,)])
def test_half_a_spectrum_is_enough(grid):
    tokens = torch.randn(2, torch.tensor(grid).prod().item(), 3)
    gain = separable_gain(grid, *scalars(0.3), 2.0)
    assert torch.allclose(filtered(tokens, grid, gain).double(), full_spectrum(tokens, grid, gain), atol=1e-6)


def test_channels_may_be_taken_a_part_at_a_time(monkeypatch):
    tokens, gain = torch.randn(1, 16, 5), separable_gain((4, 4), *scalars(0.3), 2.0)
    whole = filtered(tokens, (4, 4), gain)
    monkeypatch.setattr(spectral, "CHUNK_ELEMENTS", 33)
    assert torch.allclose(filtered(tokens, (4, 4), gain), whole, atol=1e-6)


def test_the_result_is_float32_in_the_shape_of_the_tokens():
    gain = separable_gain((4, 4), *scalars(0.3), 2.0)
    for shape in ((1, 16, 5), (1, 4, 4, 5)):
        result = filtered(torch.ones(shape, dtype=torch.bfloat16), (4, 4), gain)
        assert result.shape == shape and result.dtype == torch.float32


def test_batch_items_and_channels_do_not_mix():
    tokens = torch.randn(2, 16, 3)
    gain = separable_gain((4, 4), *scalars(0.3), 2.0)
    changed = tokens.clone()
    changed[0, :, 1] += torch.randn(16)
    difference = (filtered(changed, (4, 4), gain) - filtered(tokens, (4, 4), gain)).abs().sum(1)
    assert difference[0, 1] > 0.1 and difference.flatten()[[0, 2, 3, 4, 5]].max() < 1e-4


def test_size_is_no_shape():
    """I-21: scaling both signals leaves their distance as it is."""
    a, b = torch.randn(1, 16, 3), torch.randn(1, 16, 3)
    gain = separable_gain((4, 4), *scalars(0.3), 2.0)
    distances = [relative_l1(filtered(c * a, (4, 4), gain), filtered(c * b, (4, 4), gain)).item() for c in (1.0, 37.0)]
    assert distances[0] == pytest.approx(distances[1], rel=1e-5)
