"""How much of an error is left at the end."""

import numpy as np
import pytest

from stepcache.cache_core.gains import INJECTED, gains_at, general_gains, measured_gains

from .recordings import recorded, smooth


def test_the_estimate_grows_with_the_picture_that_is_in_the_latent():
    assert general_gains((1.0, 0.75, 0.5, 0.25, 0.0), flow=True) == pytest.approx(
        (1 / 0.05, 1 / 0.3, 1 / 0.55, 1 / 0.8)
    )
    assert general_gains((1.4, 0.0), flow=True) == pytest.approx((20,))
    assert general_gains((9.0, 3.0, 0.0), flow=False) == (1, 1)


@pytest.mark.parametrize("steps", [2, 3, 9, 28])
def test_gains_are_measured_at_some_steps(steps):
    outputs, asked = smooth(steps), []
    gains = np.geomspace(8, 0.5, steps)

    def left(step: int) -> float:
        asked.append(step)
        return gains[step] * float(np.sqrt(np.square(outputs[step] - outputs[step - 1]).mean())) / steps

    measured = measured_gains(recorded(outputs), left)
    assert len(asked) == min(INJECTED, steps - 1) and asked[0] == 1 and asked[-1] == steps - 1
    assert measured == pytest.approx((gains[1], *gains[1:]))  # of the first step nothing can be held


def test_gains_between_those_measured_are_geometric_means():
    assert gains_at([(1, 8.0), (3, 2.0)], 6) == pytest.approx((8, 8, 4, 2, 2, 2))
    assert gains_at([(2, 3.0)], 4) == pytest.approx((3,) * 4)
