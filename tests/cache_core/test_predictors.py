"""EX-C4, EX-C5, EX-TS1 to TS4, EX-TS6, EX-H1 to H3, EX-MC2, EX-SC2: what is returned instead of running the blocks."""

import math

import pytest
import torch

from stepcache.cache_core.predictors import (
    Chebyshev,
    Damped,
    Extrapolation,
    Hermite,
    Hold,
    MeanVelocity,
    Newton,
    Taylor,
)
from stepcache.cache_core.predictors.predictor import combined
from stepcache.cache_core.types import Step

SHIFTED = (1, 0.954545, 0.9, 0.833333, 0.75, 0.642857, 0.5, 0.3, 0)
"""Of a schedule of 8 steps with a shift of 3."""

HALF = Hermite(0.5)
ROOT = Hermite(math.sqrt(0.5))


def at(position, sigma=0.5, following=0.0):
    return Step(float(position), 100, sigma, following)


def fed(predictor, observations, dtype=torch.float64):
    for position, value in observations.items():
        predictor.update(at(position), (torch.tensor([value], dtype=dtype),))
    return predictor


def predicted(predictor, position):
    return predictor.predict(at(position))[0].item()


def factors(predictor):
    return [streams[0].item() for streams in predictor.differences]


def line(basis, order=1):
    return fed(Extrapolation(order, basis), {2: 10.0, 4: 14.0})


def parabola(basis, order=2, places=(0, 3, 6)):
    return fed(Extrapolation(order, basis), {s: float(s**2) for s in places})


def test_a_held_residual_keeps_the_fresh_input():
    """EX-C5."""
    hold = fed(Hold(), {0: 13.0 - 10.0})
    assert 11 + predicted(hold, 1) == 14


def test_a_line_by_taylor():
    """EX-TS1."""
    assert factors(line(Taylor())) == pytest.approx([14, 2])
    assert [predicted(line(Taylor()), s) for s in (5, 6)] == pytest.approx([16, 18])
    assert predicted(line(Taylor(), order=0), 6) == 14


def test_a_parabola_by_taylor_and_by_newton():
    """EX-TS2."""
    assert factors(parabola(Taylor())) == pytest.approx([36, 9, 2])
    assert [predicted(parabola(Taylor()), s) for s in (7, 8)] == pytest.approx([46, 58])
    assert predicted(parabola(Taylor(), 1), 8) == pytest.approx(54)
    assert predicted(parabola(Taylor(), 0), 8) == 36
    assert [predicted(parabola(Newton()), s) for s in (7, 8)] == pytest.approx([49, 64])


def test_uneven_steps():
    """EX-TS3."""
    uneven = parabola(Taylor(), places=(0, 1, 4))
    assert factors(uneven) == pytest.approx([16, 5, 1.333333], rel=1e-5)
    assert predicted(uneven, 6) == pytest.approx(28.666667, rel=1e-5)
    assert predicted(parabola(Newton(), places=(0, 1, 4)), 6) == pytest.approx(36)
    for order in (1, 2):
        straight = fed(Extrapolation(order), {s: 3.0 * s + 2 for s in (0, 1, 4)})
        assert predicted(straight, 6.5) == pytest.approx(21.5)
    assert factors(straight)[2] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("clock", "expected"), [("sigma", (5.714286, 6.000000)), ("step", (5.650000, 5.800000))])
def test_time_is_the_step_or_sigma(clock, expected):
    """EX-TS4: the value is linear in 1 - sigma."""
    predictor = Extrapolation(1, Taylor(), clock)
    for s in (2, 4):
        predictor.update(at(s, SHIFTED[s]), (torch.tensor([5 + 2 * (1 - SHIFTED[s])], dtype=torch.float64),))
    found = [predictor.predict(at(s, SHIFTED[s]))[0].item() for s in (5, 6)]
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("order", "gain"), [(0, 1.0), (1, 1.969772), (2, 2.582712), (3, 2.842353)])
def test_each_order_amplifies_noise(order, gain):
    """EX-TS6: the weights of observations 5 steps apart, 4 steps later."""
    predictor = Extrapolation(order)
    for i in range(order + 1):
        observation = torch.zeros(order + 1, dtype=torch.float64)
        observation[order - i] = 1
        predictor.update(at(5 * i), (observation,))
    weights = predictor.predict(at(5 * order + 4))[0]
    assert weights.norm().item() == pytest.approx(gain, rel=1e-5)
    if order == 2:
        assert weights.tolist() == pytest.approx([2.12, -1.44, 0.32])


@pytest.mark.parametrize(("k", "expected"), [(1, (0.5, -0.25, -0.625)), (2, (1, 0.5, -0.5)), (3, (1.5, 1.75, 1.125))])
def test_scaled_hermite_polynomials(k, expected):
    """EX-H1."""
    values = [HALF.weight((0.0,), float(k), n) * math.factorial(n) for n in range(4)]
    assert values == pytest.approx((1, *expected))


def test_a_line_by_hermite():
    """EX-H2. A basis evaluated at -k, as a port had it, would give 13 at k = 1."""
    assert [predicted(line(HALF), s) for s in (5, 6)] == pytest.approx([15, 16])
    assert [predicted(line(ROOT), s) for s in (5, 6)] == pytest.approx([16, 18])


def test_a_parabola_by_hermite():
    """EX-H3."""
    assert predicted(parabola(HALF), 8) == pytest.approx(45.5)
    assert predicted(parabola(ROOT), 8) == pytest.approx(57)


def test_differences_of_bfloat16_values_are_lost_and_those_of_float32_are_not():
    """EX-C4: what was rounded before it came cannot be found again, so nothing may be rounded on the way."""
    observations = {0: 100.0, 1: 100.3, 2: 100.6}
    assert predicted(fed(Extrapolation(1), observations, torch.float32), 6) == pytest.approx(101.8, rel=1e-5)
    rounded = fed(Extrapolation(1), observations, torch.bfloat16)
    assert rounded.predict(at(6))[0].dtype == torch.bfloat16 and predicted(rounded, 6) == 100.5


def test_sums_are_formed_in_float32():
    """In float16 the weighted observation of the line below would be infinite on the way."""
    predictor = fed(Extrapolation(2), {0: 30000.0, 1: 30000.0, 2: 30001.0}, torch.float16)
    assert predictor.predict(at(2.5))[0].isfinite().all()
    (total,) = combined(((torch.tensor([60000.0]).half(),), (torch.tensor([60000.0]).half(),)), (2.0, -1.5))
    assert total.dtype == torch.float16 and total.item() == 30000


@pytest.mark.parametrize("basis", [Taylor(), Newton(), HALF])
def test_orders_appear_one_at_a_time(basis):
    """The slope is there at the second observation: other codes need three or four (see cache-dit)."""
    predictor = Extrapolation(3, basis)
    for count in range(1, 7):
        fed(predictor, {count: float(count**3)})
        assert len(predictor.differences) == min(count, 4) and len(predictor.times) == min(count, 4)


def test_features_of_a_line_are_continued_in_the_first_run():
    """cache-dit: 1, 3, 5 at steps 0 to 2 give 5, 5 in a first run, and 7, 9 in a second."""
    predictor = fed(Extrapolation(1), {0: 1.0, 1: 3.0, 2: 5.0})
    assert [predicted(predictor, s) for s in (3, 4)] == [7, 9]


def test_a_prediction_is_not_taken_for_an_observation():
    predictor = parabola(Taylor())
    first = [predicted(predictor, s) for s in (7, 8)]
    assert [predicted(predictor, s) for s in (7, 8)] == first and factors(predictor) == pytest.approx([36, 9, 2])


@pytest.mark.parametrize("basis", [Taylor(), Newton(), ROOT])
def test_the_same_time_again_replaces_the_newest_observation(basis):
    """As Heun has it: a division by no time, or a lost slope, in other codes."""
    once, twice = Extrapolation(2, basis), Extrapolation(2, basis)
    fed(once, {0: 1.0, 1: 2.0, 4: 9.0})
    for position, value in ((0, 5.0), (0, 1.0), (1, 7.0), (1, 2.0), (4, 0.0), (4, 9.0)):
        fed(twice, {position: value})
    assert twice.times == once.times and factors(twice) == pytest.approx(factors(once))


def test_time_that_runs_back_begins_anew():
    predictor = parabola(Taylor())
    fed(predictor, {5: 7.0})
    assert factors(predictor) == [7.0] and predictor.times == (5.0,)
    assert predicted(fed(predictor, {6: 8.0}), 8) == 10


def test_a_stream_that_is_missing_stays_missing():
    predictor = Extrapolation(1)
    for position in (0, 1):
        predictor.update(at(position), (torch.tensor([float(position)]), None))
    image, text = predictor.predict(at(3))
    assert image.item() == 3 and text is None


# -- the mean over a step ---------------------------------------------------------------------------------------------------


def history(lookback):
    predictor = MeanVelocity(lookback)
    for index, (sigma, x, v) in enumerate(((1.0, 0.0, 3.0), (0.8, -0.6, 2.6))):
        predictor.enter(at(index, sigma), (torch.tensor([x], dtype=torch.float64),))
        predictor.update(at(index, sigma), (torch.tensor([v], dtype=torch.float64),))
    predictor.enter(at(2, 0.6), (torch.tensor([-1.12], dtype=torch.float64),))
    return predictor


@pytest.mark.parametrize(("lookback", "velocity"), [(2, 2.5), (1, 2.6), ({1: 2}, 2.5), ({1: 1, 5: 2}, 2.6), ({}, 2.6)])
def test_a_velocity_is_corrected_towards_its_mean(lookback, velocity):
    """EX-MC2: with two steps the mean is 2.8 and J -0.5; with one J is 0."""
    assert history(lookback).predict(at(2, 0.6, 0.4))[0].item() == pytest.approx(velocity, rel=1e-5)


def test_predicted_steps_count_as_steps():
    """And no more is kept than the longest look back needs."""
    predictor = history(2)
    predictor.predict(at(2, 0.6, 0.4))
    assert [passed.start_sigma for passed in predictor.passed] == [0.8, 0.6]
    assert predictor.passed[-1].velocity.item() == pytest.approx(2.5)


def test_steps_of_no_length_are_survived():
    predictor = MeanVelocity(2)
    for x, v in ((0.0, 3.0), (0.5, 2.0)):
        predictor.enter(at(0, 0.5), (torch.tensor([x]),))
        predictor.update(at(0, 0.5), (torch.tensor([v]),))
    predictor.enter(at(1, 0.5), (torch.tensor([1.0]),))
    assert predictor.predict(at(1, 0.5, 0.4))[0].item() == 2.0


# -- a fit over the run ---------------------------------------------------------------------------------------------------


def test_a_fit_is_that_of_all_observations():
    """With next to no ridge a parabola through six of its values is found again."""
    fit = fed(Chebyshev(2, ridge=1e-9), {s: 1.0 + 0.1 * s**2 for s in range(0, 60, 10)})
    assert predicted(fit, 70) == pytest.approx(1 + 0.1 * 70**2, rel=1e-5)
    assert len(fit.sums) == 3


@pytest.mark.parametrize(("factor", "expected"), [(1.0, 5.5), (0.5, 4.25), (0.0, 3.0)])
def test_a_damped_line_in_sigma(factor, expected):
    """EX-SC2."""
    line = Extrapolation(1, Damped(factor), clock="sigma")
    for t, value in ((0.3, 2.0), (0.4, 3.0)):
        line.update(at(0, 1 - t), (torch.tensor([value], dtype=torch.float64),))
    assert line.predict(at(0, 1 - 0.65))[0].item() == pytest.approx(expected)
