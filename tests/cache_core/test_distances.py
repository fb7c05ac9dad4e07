"""EX-C1, EX-C3 and EX-T1 of the published formulas, and the edges of the distance."""

import pytest
import torch

from stepcache.cache_core.distances import polynomial, relative_l1

FLUX = (498.651651, -283.781631, 55.8554382, -3.82021401, 0.264230861)
WAN_14B = (-5784.54975374, 5449.50911966, -1811.16591783, 256.27178429, -13.02252404)


def test_relative_l1_worked_example():
    current, reference = torch.tensor([1.1, -2.2, 3.0, 0.4]), torch.tensor([1.0, -2.0, 3.0, 0.5])
    assert relative_l1(current, reference).item() == pytest.approx(0.061538, rel=1e-4)


def test_uneven_parts_are_not_averaged():
    """EX-C3: over all of the signal, not 0.02, the mean over its parts."""
    previous = torch.tensor([1.0, 1.0, 1.0, 4.0])
    current = torch.tensor([1.3, 1.0, 1.0, 4.0])
    assert relative_l1(current[:3], previous[:3]).item() == pytest.approx(0.1, rel=1e-5)
    assert relative_l1(current, previous).item() == pytest.approx(0.042857, rel=1e-5)


def test_relative_l1_is_accumulated_in_float32():
    reference = torch.full((70000,), 1.0, dtype=torch.float16)  # its sum overflows float16
    assert relative_l1(reference * 2, reference).item() == pytest.approx(1.0)


def test_the_latent_that_changes_most_decides_for_its_batch():
    reference = torch.ones(3, 4, 2)
    current = reference * torch.tensor([1.0, 1.5, 1.1]).view(3, 1, 1)
    assert relative_l1(current, reference).item() == pytest.approx(0.5)


def test_relative_l1_of_zeros_is_finite_and_of_nan_is_not():
    zeros = torch.zeros(3)
    assert relative_l1(zeros, zeros).item() == 0
    assert relative_l1(torch.tensor([float("nan")]), torch.ones(1)).isnan()


@pytest.mark.parametrize(
    ("coefficients", "values"),
    [
        (FLUX, (0.207978, 0.180503, 0.206847, 0.261995)),
        (WAN_14B, (-8.578884, -4.091814, -0.635951, 0.125989)),
    ],
)
def test_quartic_worked_example(coefficients, values):
    for x, value in zip((0.02, 0.05, 0.1, 0.2), values, strict=True):
        assert polynomial(torch.tensor(x, dtype=torch.float64), coefficients).item() == pytest.approx(value, abs=2e-6)
