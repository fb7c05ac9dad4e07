"""Curves at another number of steps, by the worked examples."""

import math

import pytest

from stepcache.cache_core.profiles import MagnitudeProfile, drift_preserving, nearest

FLUX = (
    1.0, 1.21094, 1.11719, 1.07812, 1.0625, 1.03906, 1.03125, 1.03906, 1.02344, 1.03125, 1.02344, 0.98047, 1.01562, 1.00781,
    1.0, 1.00781, 1.0, 1.00781, 1.0, 1.0, 0.99609, 0.99609, 0.98047, 0.98828, 0.96484, 0.95703, 0.93359, 0.89062,
)  # fmt: skip


def profile(**changed):
    given = {"ratios": {"all": (1.0, 0.9)}, "steps": 2, "threshold": 0.1, "max_consecutive": 2, "retention": 0.2}
    return MagnitudeProfile(**({"name": "a model", "sampler": "Euler", "source": "a paper"} | given | changed))


def test_nearest_entries_for_20_of_28_steps():
    """EX-M2."""
    places = [0, 1, 3, 4, 6, 7, 9, 10, 11, 13, 14, 16, 17, 18, 20, 21, 23, 24, 26, 27]
    assert nearest(range(28), 20) == tuple(places)
    assert math.prod(FLUX) == pytest.approx(1.402239, abs=1e-6)
    assert math.prod(nearest(FLUX, 20)) == pytest.approx(1.228916, abs=1e-6)


def test_the_drift_of_the_whole_curve_can_be_kept():
    """EX-M2."""
    fitted = drift_preserving(FLUX, 20)
    assert fitted[:5] == pytest.approx([1.0, 1.268781, 1.135984, 1.086090, 1.050522], abs=1e-6)
    assert math.prod(fitted) == pytest.approx(1.402239, abs=1e-6)


@pytest.mark.parametrize("fit", [nearest, drift_preserving])
def test_the_same_number_of_steps_changes_nothing(fit):
    assert fit(FLUX, 28) == pytest.approx(FLUX)


@pytest.mark.parametrize("steps", [1, 2, 3, 27, 29, 100])
def test_any_number_of_steps(steps):
    assert len(nearest(FLUX, steps)) == len(drift_preserving(FLUX, steps)) == steps
    assert nearest(FLUX, steps)[-1] == FLUX[-1]


def test_every_branch_has_its_list_or_shares_one():
    two = profile(ratios={"cond": (1.0, 0.9), "uncond": (1.0, 0.8)})
    assert [two.for_branch(order, 2)[1] for order in (0, 1, 2)] == [0.9, 0.8, 0.9]
    three = profile(ratios={"cond": (1.0, 0.9), "uncond": (1.0, 0.8), "ref": (1.0, 0.7)})
    assert three.for_branch(2, 2) == (1.0, 0.7)
    assert {profile().for_branch(order, 2) for order in (0, 1, 2)} == {(1.0, 0.9)}


@pytest.mark.parametrize("ratios", [(1.0, 0.9, 0.8), (0.9, 0.9), (1.0, 0.0), (1.0, float("nan"))])
def test_a_list_that_cannot_be_right_is_refused(ratios):
    with pytest.raises(ValueError, match="a model, all: "):
        profile(ratios={"all": ratios})
