"""EX-TS5 and whole runs of TaylorSeer and HiCache. The extrapolation itself is in test_predictors."""

import pytest

from stepcache.cache_core.methods import taylorseer
from stepcache.cache_core.predictors import Hermite, Newton, Taylor

from ..driving import computed_in, run_of, sample


@pytest.mark.parametrize(
    ("warmup", "interval", "steps", "expected"),
    [
        (3, 5, 20, (0, 1, 2, 7, 12, 17)),
        (3, 6, 50, (0, 1, 2, 8, 14, 20, 26, 32, 38, 44)),
        (1, 5, 20, (0, 5, 10, 15)),
    ],
)
def test_schedules(warmup, interval, steps, expected):
    """EX-TS5."""
    method = taylorseer(interval, warmup_steps=warmup, last_step=False)
    assert method.foretold(run_of(steps)) == expected
    assert tuple(computed_in(sample(method, steps).mask)) == expected


def test_the_last_step_is_computed_besides():
    assert taylorseer(5).foretold(run_of(20)) == (0, 1, 2, 7, 12, 17, 19)


def test_the_slope_serves_from_the_second_observation_in_every_run():
    """cache-dit needs four in the first run and three in the next, so its runs differ (I-5)."""
    method = taylorseer(interval=100, warmup_steps=2)
    first, second = sample(method), sample(method)
    assert first.mask == second.mask == "1100000001"
    assert all(len(state.predictor.differences) == 2 for state in first.states)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        assert all(x.equal(y) for x, y in zip(a, b, strict=True))


def error(**settings):
    exact, cached = (sample(taylorseer(interval, **settings), 40) for interval in (1, 4))
    return float((exact.outputs[-2][0] - cached.outputs[-2][0]).abs().max())


def test_a_slope_comes_closer_than_holding():
    held = error(order=0)
    assert error(order=1) < held / 2
    assert error(order=1, clock="sigma") < held / 2
    assert error(order=2, basis=Newton()) < held / 2
    assert error(order=1, basis=Hermite(0.5)) < held  # half the slope


def test_taylor_unless_told_otherwise():
    assert taylorseer().predictor.basis == Taylor()
