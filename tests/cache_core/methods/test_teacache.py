"""EX-T2 and EX-T3: the published accumulation, on distances as given."""

import pytest
import torch

from stepcache.cache_core.methods import teacache
from stepcache.cache_core.types import Run, Step

FLUX = (498.651651, -283.781631, 55.8554382, -3.82021401, 0.264230861)
WAN_14B = (-5784.54975374, 5449.50911966, -1811.16591783, 256.27178429, -13.02252404)
FLUX_CHANGES = (0.30, 0.12, 0.08, 0.05, 0.04, 0.05, 0.08, 0.12, 0.25)


def decisions(method, changes):
    """Mask and sums of a run of len(changes) + 1 evaluations whose signal changes as given."""
    policy = method.new_policy()
    total = len(changes) + 1
    policy.begin(Run(tuple(1 - i / total for i in range(total + 1)), 1.0, 0.0), 0)
    value, mask, sums = 1.0, "", []
    for index, change in enumerate((0.0, *changes)):
        value *= 1 + change
        score = float(policy.observe(torch.tensor([value], dtype=torch.float64)))
        step = Step(index, total, 1 - index / total)
        reuse = policy.decide(step, score).reuse
        policy.reused(step) if reuse else policy.computed(step, ())
        mask += "01"[not reuse]
        sums.append(score if reuse else 0.0)
    return mask, sums


def test_flux_worked_example():
    mask, sums = decisions(teacache(0.4, FLUX, (0.0, 0.5)), FLUX_CHANGES)
    assert mask == "1101001011"
    assert sums == pytest.approx([0, 0, 0.223149, 0, 0.180503, 0.364408, 0, 0.191217, 0, 0], abs=2e-5)
    assert decisions(teacache(0.25, FLUX, (0.0, 0.5)), FLUX_CHANGES)[0] == "1101010101"


def test_wan_worked_example_inside_the_fitted_range():
    mask, sums = decisions(teacache(0.2, WAN_14B, (0.14, 0.34)), (0.30, 0.20, 0.22, 0.23, 0.22, 0.20, 0.30))
    assert mask == "11011011"
    assert (sums[2], sums[5]) == pytest.approx((0.125989, 0.172556), abs=2e-5)


def test_without_coefficients_the_change_itself_is_counted():
    assert decisions(teacache(0.1), (0.04, 0.04, 0.04, 0.04, 0.5))[0] == "100101"
