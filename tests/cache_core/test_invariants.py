"""Properties that hold for every method, or for every one of a kind, on drawn runs. The numbers are those of the formulas."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepcache.cache_core.distances import relative_l1
from stepcache.cache_core.methods import (
    dbcache,
    dpcache,
    easycache,
    first_block_cache,
    magcache,
    meancache,
    seacache,
    spectrum,
    taylorseer,
    teacache,
)
from stepcache.cache_core.planning import cheapest_path, general_steps, linear_costs
from stepcache.cache_core.policies import AccumulatedChange
from stepcache.cache_core.predictors import Extrapolation, Hermite, Hold, MeanVelocity, Newton, Predictor, Taylor
from stepcache.cache_core.probes import Nothing
from stepcache.cache_core.profiles import MagnitudeProfile
from stepcache.cache_core.spectral import filtered, separable_gain
from stepcache.cache_core.types import Step

from .driving import FLUX_RATIOS, mask_of, noise, run_of, run_stack, sample, steps_of
from .test_planning import approximate, brute_force, cost_of

few = settings(max_examples=30)

FLUX = MagnitudeProfile("a model", {"all": FLUX_RATIOS}, 28, 0.24, 5, 0.1, "", "")

DYNAMIC = {
    "teacache": teacache,
    "first_block": first_block_cache,
    "dbcache": partial(dbcache, head=2),
    "dbcache_taylor": partial(dbcache, head=1, predictor=Extrapolation(1)),
    "seacache": seacache,
    "easycache": easycache,
}
"""By threshold."""

PLANNED = {
    "magcache": partial(magcache, FLUX, 0.24, 5, 0.1),
    "taylorseer": partial(taylorseer, 3, 2, 2),
    "taylorseer_sigma": partial(taylorseer, 4, 1, 2, clock="sigma"),
    "hicache": partial(taylorseer, 3, 1, 2, Hermite()),
    "dpcache": partial(dpcache, partial(general_steps, computed=4), 2),
    "meancache": partial(meancache, partial(general_steps, computed=5), 3),
    "spectrum": partial(spectrum, 2),
    "static_mask": partial(dbcache, 0.1, 1, mask="ultra", reuse_others=True),
}

METHODS = {name: partial(make, 0.4) for name, make in DYNAMIC.items()} | PLANNED

dynamic = pytest.mark.parametrize("make", DYNAMIC.values(), ids=DYNAMIC)
planned = pytest.mark.parametrize("make", PLANNED.values(), ids=PLANNED)
all_methods = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)


def assert_equal_runs(a, b):
    assert a.mask == b.mask
    for ours, others in zip(a.outputs, b.outputs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(ours, others, strict=True))


UNCACHED = sample(dpcache(lambda run: frozenset(range(run.steps))))
assert set(UNCACHED.mask) == {"1"}


# -- decisions --------------------------------------------------------------------------------------------------------------


@dynamic
@pytest.mark.parametrize("threshold", [0.0, -1.0])
def test_no_threshold_is_uncached(make, threshold):
    """I-1."""
    assert_equal_runs(sample(make(threshold)), UNCACHED)


@dynamic
def test_no_change_is_below_no_threshold(make):
    """I-1, for a signal that stands still."""
    policy = make(0.0).new_policy()
    policy.begin(run_of(9), 0)
    for step in steps_of(run_of(9)):
        score = policy.observe(torch.ones(1, 4, 2))
        assert not policy.decide(step, float(score)).reuse
        policy.computed(step, (torch.ones(1, 4, 2),))


@all_methods
def test_every_branch_begins_computed(make):
    """I-2: also a branch that joins later."""

    def joins(session, index, latents):
        return [*latents, *noise(1, seed=9)] if index == 4 else None

    joined = sample(make(), between=joins)
    assert joined.mask[0] == "1" and joined.report.trace[0].reused_calls == 0
    assert joined.report.trace[4].computed_calls >= 1


@all_methods
def test_a_poisoned_branch_does_not_reach_another(make):
    """I-3."""

    def poisoned(session, index, latents):
        for branch, state in session.branches.items():
            if index >= 2 and branch[1] == 1:
                state.policy.map_tensors(lambda tensor: torch.full_like(tensor, float("nan")))
                state.predictor.map_tensors(lambda tensor: torch.full_like(tensor, float("nan")))

    clean, ill = sample(make()), sample(make(), between=poisoned)
    assert clean.mask == ill.mask and "0" in clean.mask
    for ours, others in zip(clean.outputs, ill.outputs, strict=True):
        assert torch.equal(ours[0], others[0])
    assert any(outputs[1].isnan().any() for outputs in ill.outputs)


@planned
def test_a_plan_knows_no_picture(make):
    """I-4: another seed, shape, number of branches."""
    mask = sample(make()).mask
    assert "0" in mask[1:]
    for branches, seed, shape in ((1, 3, (1, 6, 4)), (3, 4, (2, 8, 5))):
        assert sample(make(), latents=noise(branches, seed, shape)).mask == mask


@all_methods
def test_a_second_run_is_the_first(make):
    """I-5: the method keeps nothing of a run."""
    method = make()
    first = sample(method)
    sample(method, 7, noise(1, 5, (1, 8, 4)))
    assert_equal_runs(sample(method), first)


@dataclass
class Counted:
    """A predictor that counts its observations."""

    inner: Predictor
    observations: list[int] = field(default_factory=list)

    @property
    def ready(self):
        return self.inner.ready

    def enter(self, step, entry):
        self.inner.enter(step, entry)

    def update(self, step, value):
        self.observations.append(step.index)
        self.inner.update(step, value)

    def predict(self, step):
        return self.inner.predict(step)

    def map_tensors(self, move):
        self.inner.map_tensors(move)


@all_methods
def test_what_is_observed_is_what_was_computed(make):
    """I-9."""
    method = make()
    sampled = sample(replace(method, predictor=Counted(method.predictor)))
    for state in sampled.states:
        assert state.predictor.observations == [index for index, flag in enumerate(sampled.mask) if flag == "1"]


increments = st.lists(st.floats(0.001, 0.5), min_size=2, max_size=20)


@few
@given(increments, st.floats(0.01, 1.0), st.floats(1.0, 5.0))
def test_a_higher_threshold_computes_no_more(changes, threshold, factor):
    """I-11."""

    def count(limit):
        policy, value, computed = AccumulatedChange(limit), torch.ones(1, dtype=torch.float64), 0
        policy.begin(run_of(99), 0)
        for index, change in enumerate([0.0, *changes]):
            value, step = value * (1 + change), Step(index, 99, 0.5)
            if policy.decide(step, float(policy.observe(value))).reuse:
                policy.reused(step)
            else:
                policy.computed(step, ())
                computed += 1
        return computed

    assert count(threshold * factor) <= count(threshold)


@dynamic
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_computes(make, bad):
    """I-12: while it lasts, and at the evaluation after, which has nothing to compare with."""
    policy = make(0.99).new_policy()
    policy.begin(run_of(20), 0)
    reused = []
    for step in steps_of(run_of(20))[:12]:
        signal = torch.ones(1, 4, 2) * (1 + 0.01 * step.index)
        if step.index in (6, 7):
            signal[0, 1, 1] = bad
        reuse = policy.decide(step, float(policy.observe(signal))).reuse
        policy.reused(step) if reuse else policy.computed(step, (0.5 * signal,))
        reused.append(reuse)
    assert reused[5] and not any(reused[6:9]) and reused[11]


@dynamic
def test_change_from_nothing_computes(make):
    """I-12: a reference of zeros."""
    policy = make(0.9).new_policy()
    policy.begin(run_of(20), 0)
    for step in steps_of(run_of(20))[:3]:
        policy.observe(torch.zeros(1, 4, 2))
        policy.computed(step, (torch.zeros(1, 4, 2),))
    score = float(policy.observe(torch.full((1, 4, 2), 0.01)))
    assert not policy.decide(steps_of(run_of(20))[3], score).reuse


@few
@given(
    st.sampled_from(sorted(METHODS)),
    st.integers(1, 24),
    st.integers(0, 4),
    st.integers(1, 4),
    st.integers(0, 6),
    st.integers(0, 99),
)
def test_limits_hold(name, steps, longest, warmup, most, seed):
    """I-2, I-13, I-14: run length, first and last steps, and how much in all."""
    limits = {"max_consecutive": longest, "warmup": warmup, "max_reused": most}
    mask = sample(METHODS[name](**limits), steps, noise(2, seed)).mask
    assert len(mask) == steps and mask[-1] == "1" and "0" not in mask[:warmup]
    assert not longest or "0" * (longest + 1) not in mask
    assert not most or mask.count("0") <= most


@all_methods
@pytest.mark.parametrize("told", ["by the layout", "by the facts"])
@pytest.mark.parametrize(
    "change",
    [lambda x: x[:, :4], lambda x: torch.cat((x, x)), lambda x: x.to(torch.bfloat16)],
    ids=["shape", "batch", "dtype"],
)
def test_a_change_of_shape_is_a_new_beginning(make, told, change):
    """I-15: from there on all is as in a run that starts there."""
    at = 5

    def changed(session, index, latents):
        return [change(latent) for latent in latents] if index == at else None

    def facts(latent):
        return (latent.shape, latent.dtype) if told == "by the facts" else None

    whole = sample(make(warmup=1), between=changed, facts=facts)
    cold = sample(make(warmup=1), latents=whole.latents[at], first=at, facts=facts)
    assert whole.mask[at:] == cold.mask and whole.mask[at] == "1"
    for ours, others in zip(whole.outputs[at:], cold.outputs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(ours, others, strict=True))


@all_methods
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 28, 61])
def test_any_number_of_steps(make, steps):
    """I-17: also one after the other with the same method."""
    mask = sample(make(), steps).mask
    assert len(mask) == steps and mask[0] == mask[-1] == "1"


# -- predictors -------------------------------------------------------------------------------------------------------------

places = st.lists(st.integers(0, 60), min_size=4, max_size=6, unique=True).map(sorted)
numbers = st.floats(-5, 5)


def after(predictor, at, values):
    """What is predicted for the last place from values at the others, and the value there."""
    *seen, ahead = at
    for place in seen:
        predictor.update(Step(float(place), 60, 1 - place / 60), (torch.tensor([values(place)], dtype=torch.float64),))
    return predictor.predict(Step(float(ahead), 60, 1 - ahead / 60))[0].item(), values(ahead)


@few
@given(places, numbers, st.integers(0, 3), st.sampled_from(["step", "sigma"]))
def test_a_constant_is_predicted_exactly(at, value, order, clock):
    """I-10."""
    bases = (Taylor(), Newton(), Hermite())
    for predictor in (Hold(), *(Extrapolation(order, basis, clock) for basis in bases)):
        found, expected = after(predictor, at, lambda place: value)
        assert found == pytest.approx(expected, abs=1e-9)


@few
@given(places, numbers, numbers, st.sampled_from(["step", "sigma"]))
def test_a_line_is_predicted_exactly(at, slope, start, clock):
    """I-10; Hermite's only where it does not dampen."""
    for basis in (Taylor(), Newton(), Hermite(0.5**0.5)):
        found, expected = after(Extrapolation(1, basis, clock), at, lambda place: start + slope * place)
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    found, expected = after(Extrapolation(1, Hermite(0.5), clock), at, lambda place: start + slope * place)
    last = start + slope * at[-2]
    assert found == pytest.approx(last + (expected - last) / 2, rel=1e-8, abs=1e-8)


@few
@given(places, st.lists(numbers, min_size=4, max_size=4), st.integers(1, 3))
def test_newton_predicts_polynomials_exactly(at, coefficients, order):
    """I-10."""

    def value(place):
        return sum(c * (place / 10) ** power for power, c in enumerate(coefficients[: order + 1]))

    found, expected = after(Extrapolation(order, Newton()), at, value)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


@few
@given(numbers, st.integers(1, 6), st.integers(2, 9))
def test_a_constant_velocity_is_continued_exactly(velocity, lookback, steps):
    """I-10, for the mean velocity under Euler."""
    predictor, x = MeanVelocity(lookback), torch.zeros(1, dtype=torch.float64)
    v = torch.tensor([velocity], dtype=torch.float64)
    for step in steps_of(run_of(steps)):
        predictor.enter(step, (x,))
        if step.index == 0:
            predictor.update(step, (v,))
        else:
            assert predictor.predict(step)[0].item() == pytest.approx(velocity, abs=1e-9)
        x = x + (step.next_sigma - step.sigma) * v


# -- filter, plans, stack -----------------------------------------------------------------------------------------------------

grids = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@few
@given(grids, st.floats(0.0, 1.0), st.floats(1.0, 3.0), st.integers(0, 99), st.floats(0.1, 50.0))
def test_the_filter(grid, a, beta, seed, scale):
    """I-21: a mean gain of 1, open where there is no noise, linear, and blind to size."""
    gain = separable_gain(grid, torch.tensor(a), torch.tensor(1 - a), beta)
    assert gain.mean().item() == pytest.approx(1, rel=1e-5) and (gain >= 0).all()
    opened = separable_gain(grid, torch.tensor(1.0), torch.tensor(0.0), beta)
    assert torch.allclose(opened, torch.ones(grid))
    drawn = torch.Generator().manual_seed(seed)
    one, two = (torch.randn(2, int(np.prod(grid)), 3, generator=drawn) for _ in range(2))
    both = filtered(one + scale * two, grid, gain)
    apart = filtered(one, grid, gain) + scale * filtered(two, grid, gain)
    assert torch.allclose(both, apart, atol=1e-4 * (1 + scale))
    distances = [relative_l1(filtered(c * one, grid, gain), filtered(c * two, grid, gain)).item() for c in (1.0, scale)]
    assert distances[0] == pytest.approx(distances[1], rel=1e-3)


@few
@given(st.lists(numbers, min_size=4, max_size=10), st.data())
def test_the_cheapest_path(values, data):
    """I-22: as dear as trying all, never dearer than the published recursion."""
    costs, steps = linear_costs(np.array(values)[:, None]), len(values) - 1
    computed = data.draw(st.integers(2, steps - 1))
    path, cost = cheapest_path(costs, computed)
    assert cost == pytest.approx(brute_force(costs, computed), abs=1e-9)
    assert cost == pytest.approx(cost_of(costs, path), abs=1e-9) and len(set(path)) == computed
    assert cost <= approximate(costs, computed)[0] + 1e-9
    assert cheapest_path(costs, steps)[0] == tuple(range(steps))


stack_inputs = st.lists(st.tuples(st.floats(0.1, 2), st.floats(-2, -0.1)), min_size=2, max_size=6)


@few
@given(stack_inputs, st.floats(0.01, 1.0), st.integers(1, 4))
def test_a_stack_between_head_and_tail(inputs, threshold, head):
    """I-23."""
    inputs = torch.tensor(inputs, dtype=torch.float64)
    exact = run_stack(first_block_cache(0.0), inputs)[1]
    for output, expected in zip(run_stack(dbcache(1e9, head, 4 - head), inputs)[1], exact, strict=True):
        assert torch.equal(output, expected)
    assert run_stack(dbcache(threshold, 1), inputs)[0] == run_stack(first_block_cache(threshold), inputs)[0]


@few
@given(st.integers(1, 60), st.integers(0, 8), st.floats(0.0, 1.0), st.floats(0.001, 1.0))
def test_a_curve_of_ones_is_limited_by_the_run_length(steps, longest, retention, threshold):
    """I-25."""
    flat = MagnitudeProfile("flat", {"all": (1.0,) * 9}, 9, 0.1, 2, 0.2, "", "")
    policy = magcache(flat, threshold, longest, retention, last_step=False).new_policy()
    start = max(int(retention * steps + 0.5), 1)
    expected = ("1" * start + ("0" * longest + "1") * steps)[:steps]
    assert mask_of(policy, steps) == expected


UNIT = 6 * 4 * 4
"""Bytes of one tensor of the small model."""

SIZES = {
    "teacache": (partial(teacache, 0.4), 2),
    "first_block": (partial(first_block_cache, 0.4), 2),
    "dbcache": (partial(dbcache, 0.4), 2),
    "dbcache_order_2": (partial(dbcache, 0.4, predictor=Extrapolation(2)), 1 + 3),
    "magcache": (PLANNED["magcache"], 1),
    "seacache": (partial(seacache, 0.4), 2),
    "easycache": (partial(easycache, 0.4), 4),  # the difference, the last output and its latent, the latent before
    "meancache_1": (partial(meancache, partial(general_steps, computed=5), 1), 3),
    "meancache_4": (partial(meancache, partial(general_steps, computed=5), 4), 12),
    "spectrum": (PLANNED["spectrum"], 5),
    **{f"taylorseer_{m}": (partial(taylorseer, 3, m), m + 1) for m in range(4)},
    **{f"dpcache_{m}": (partial(dpcache, partial(general_steps, computed=7), m), m + 1) for m in range(4)},
}


@pytest.mark.parametrize(("make", "units"), SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("steps", [10, 40])
def test_no_more_is_kept_than_the_method_needs(make, units, steps):
    """I-28, for each branch, and however long the run."""
    sampled = sample(make(), steps)
    assert sampled.report.cache_bytes <= units * UNIT * 2 * 1.1
    assert sampled.report.cache_bytes >= UNIT * 2


def test_a_filtered_signal_is_kept_in_float32():
    """I-28: twice the size of a bfloat16 residual."""
    sampled = sample(seacache(0.4), latents=[latent.bfloat16() for latent in noise()])
    assert sampled.report.cache_bytes <= 2 * (UNIT + UNIT / 2) * 1.1


def test_the_methods_here_are_of_their_kind():
    """Otherwise the lists above test nothing."""
    assert all(isinstance(make().probe, Nothing) for name, make in PLANNED.items() if name != "static_mask")
    assert not any(isinstance(make(0.1).probe, Nothing) for make in DYNAMIC.values())
    assert all("0" in sample(make()).mask for make in METHODS.values())
