"""What a run tells of its model."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepcache.cache_core.forecasting import Forecaster
from stepcache.cache_core.recording import MOST_STEPS, VARIATION, Recorder, Recording, Sketch, falls, same_schedule
from stepcache.cache_core.types import Step

from .recordings import even, few, kinds, noisy, recorded, seeds, smooth, straight

VE = (14.6, 6.0, 2.5, 1.0, 0.4, 0.1, 0.03, 0.0)


def steps_at(sigmas):
    return [Step(n, len(sigmas) - 1, *pair) for n, pair in enumerate(pairwise(sigmas))]


# -- the table ----------------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 30), seeds, kinds, st.booleans(), st.booleans())
def test_it_goes_through_json(steps, seed, kind, flow, with_gains):
    gains = tuple(range(steps, 0, -1)) if with_gains else None
    recording = recorded(kind(steps, seed), flow=flow, runs=3, gains=gains)
    again = Recording.from_dict(json.loads(json.dumps(recording.as_dict())))
    assert again == recording  # all but the table
    assert np.allclose(again.products, recording.products, rtol=1e-6, atol=1e-12)


def test_a_merged_recording_is_the_mean_over_the_runs():
    one, other = recorded(smooth(5, 1)), recorded(smooth(5, 2), runs=3)
    merged = one.merged(other)
    assert merged.runs == 4 and np.allclose(merged.products, (one.products + 3 * other.products) / 4)
    assert np.allclose(merged.products, other.merged(one).products)


@few
@given(st.integers(1, 12), seeds, kinds)
def test_other_pictures_are_foreseen_to_change_otherwise(steps, seed, kind):
    """As if each change had a part of its own, by how much it differs from the change before but no longer than itself."""
    outputs = kind(steps, seed)
    changes = np.diff(outputs, axis=0)
    own = [min(np.linalg.norm(b - a), np.linalg.norm(b)) for a, b in pairwise(changes)]
    own = [math.sqrt(VARIATION) * length for length in [0.0, *own[:1], *own, 0.0][:steps]]
    spread = np.hstack([outputs, np.cumsum(np.diag(own), axis=0)])
    assert np.allclose(recorded(outputs).foreseen(), spread @ spread.T / outputs.shape[1])


def test_what_many_runs_tell_is_certain_and_so_are_straight_lines():
    for recording in (recorded(noisy(9), runs=10**12), recorded(straight(9))):
        assert np.allclose(recording.foreseen(), recording.products)
    one, four = (recorded(noisy(9), runs=runs) for runs in (1, 4))
    assert np.allclose(one.foreseen() - one.products, 4 * (four.foreseen() - four.products))


def test_measured_gains_outlive_a_merge():
    measured = recorded(smooth(3), gains=(3.0, 2.0, 1.0))
    assert measured.merged(recorded(smooth(3))).gains == (3.0, 2.0, 1.0)
    assert recorded(smooth(3)).merged(measured).gains == (3.0, 2.0, 1.0)


def test_the_distance_is_the_root_mean_square_difference():
    outputs = smooth(6)
    recording = recorded(outputs)
    assert recording.distance(1, 4) == pytest.approx(math.sqrt(np.square(outputs[1] - outputs[4]).mean()))
    assert recording.distance(2, 2) == 0


@pytest.mark.parametrize(
    ("sigmas", "products", "values", "problem"),
    [
        ((1.0, 0.5, 0.0), np.eye(3), {}, "does not fit"),
        ((1.0,), np.zeros((0, 0)), {}, "does not fit"),
        (even(MOST_STEPS + 1), np.eye(MOST_STEPS + 1), {}, "does not fit"),
        ((1.0, 0.5, 0.0), np.diag([1.0, math.nan]), {}, "not finite"),
        ((1.0, math.inf, 0.0), np.eye(2), {}, "not finite"),
        ((1.0, 0.5, 0.5), np.eye(2), {}, "do not fall"),
        ((1.0, 0.5, 0.0), -np.eye(2), {}, "negative"),
        ((1.0, 0.5, 0.0), np.eye(2), dict(runs=0), "out of range"),
        ((1.0, 0.5, 0.0), np.eye(2), dict(gains=(1.0,)), "gains do not fit"),
        ((1.0, 0.5, 0.0), np.eye(2), dict(gains=(1.0, 0.0)), "out of range"),
        ((1.0, 0.5, 0.0), np.eye(2), dict(gains=(1.0, math.nan)), "not finite"),
    ],
)
def test_what_is_no_recording_is_refused(sigmas, products, values, problem):
    with pytest.raises(ValueError, match=problem):
        Recording(sigmas, products, **values)


# -- other schedules ----------------------------------------------------------------------------------------------------------


@few
@given(st.integers(1, 30), seeds, kinds, st.booleans())
def test_resampled_at_its_own_sigmas_it_is_itself(steps, seed, kind, flow):
    recording = recorded(kind(steps, seed), flow=flow)
    resampled = recording.resampled(recording.sigmas)
    assert np.allclose(resampled.products, recording.products)
    assert np.allclose(resampled.foreseen(), recording.foreseen())


@few
@given(st.integers(1, 30), st.integers(1, 40), seeds, kinds, st.floats(0.2, 5.0))
def test_resampled_to_others_it_stays_a_table_of_products(steps, others, seed, kind, bent):
    recording = recorded(kind(steps, seed), gains=tuple(range(steps, 0, -1)))
    resampled = recording.resampled([sigma**bent for sigma in even(others)])
    products = resampled.products
    assert products.shape == (others, others) and np.allclose(products, products.T)
    assert np.linalg.eigvalsh(products).min() >= -1e-9 * max(np.trace(products), 1e-9)
    assert len(resampled.gains) == others and 1 <= min(resampled.gains) <= max(resampled.gains) <= steps


def test_between_recorded_sigmas_outputs_are_linear():
    outputs = noisy(4)
    resampled = recorded(outputs).resampled((1.0, 0.875, 0.75, 0.0))
    middle = (outputs[0] + outputs[1]) / 2
    assert resampled.products[1, 1] == pytest.approx(middle @ middle / 6)
    assert resampled.products[2, 2] == pytest.approx(outputs[1] @ outputs[1] / 6)


@pytest.mark.parametrize("finer", [2, 3])
def test_there_other_pictures_change_otherwise_at_every_step(finer):
    """As much over all, though outputs on a line seem to tell each other."""
    recording = recorded(noisy(8))
    resampled = recording.resampled(even(8 * finer))
    assert np.allclose(resampled.spread()[::finer], recording.spread())
    within = np.diff(resampled.spread()[: 7 * finer + 1]).reshape(7, finer)
    assert within.min() > 0 and np.allclose(within, within[:, :1])


def test_a_finer_plan_does_not_count_on_the_line_between_recorded_sigmas():
    """Two neighbours there would forecast all up to the next recorded one."""
    outputs = smooth(10)
    adapted, fine = recorded(outputs[::2]).resampled(even(10)), recorded(outputs)
    for computed in (4, 5, 6):
        plan = Forecaster(adapted).plan(computed)
        assert Forecaster(fine).cost(plan) <= 2 * Forecaster(fine).cost(Forecaster(fine).plan(computed))


def test_what_is_merged_changes_as_its_products_tell():
    merged = recorded(noisy(5)).resampled(even(9)).merged(recorded(noisy(9)))
    assert merged.adapted_spread is None


def test_the_share_of_noise_of_other_models():
    """Their latent is picture + sigma noise."""
    recording = recorded(noisy(7), VE, flow=False)
    assert recording.times == pytest.approx([sigma / (1 + sigma) for sigma in VE[:-1]])
    at = (10.0, *VE[1:])  # 10 / 11 lies this far between 6 / 7 and 14.6 / 15.6
    share = (10 / 11 - 6 / 7) / (14.6 / 15.6 - 6 / 7)
    mixed = share * noisy(7)[0] + (1 - share) * noisy(7)[1]
    assert recording.resampled(at).products[0, 0] == pytest.approx(mixed @ mixed / 6)


@pytest.mark.parametrize(
    ("sigmas", "covered"),
    [
        (even(20), True),
        (even(80), True),
        ((0.7, 0.5, 0.3, 0.0), True),
        ((1.15, 0.5, 0.0), True),  # next to the first
        ((1.3, 0.5, 0.0), False),
        ((0.5, 0.02, 0.0), True),
    ],
)
def test_it_covers_what_lies_between_its_steps_and_next_to_them(sigmas, covered):
    assert recorded(smooth(10)).covers(sigmas) == covered


def test_a_part_of_a_schedule_does_not_cover_the_other():
    first, second = even(20)[:11], even(20)[10:]
    assert not recorded(smooth(10), first).covers(second) and not recorded(smooth(10), second).covers(first)
    assert recorded(smooth(20)).covers(first) and recorded(smooth(20)).covers(second)


def test_schedules_are_the_same_but_for_rounding():
    assert same_schedule(even(9), [sigma * (1 + 5e-5) for sigma in even(9)])
    assert not same_schedule(even(9), [sigma * (1 + 5e-4) for sigma in even(9)])
    assert not same_schedule(even(9), even(8))
    assert falls(even(3)) and not falls((1.0, 1.0, 0.0)) and not falls((0.5, 1.0))


# -- the recorder -------------------------------------------------------------------------------------------------------------


def watched(outputs, sigmas=None, flow=True):
    recorder = Recorder(sigmas or even(len(outputs)), flow)
    for step, output in zip(steps_at(recorder.sigmas), outputs, strict=True):
        recorder.observe(step, output)
    return recorder


def images(steps, seed=0, **kind):
    """Outputs that drift, (T, 2, 4, 64, 64)."""
    draw = torch.Generator().manual_seed(seed)
    start, drift = (torch.randn(2, 4, 64, 64, generator=draw) for _ in range(2))
    return [(start + 0.3 * step * drift).to(**kind) for step in range(steps)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_are_those_of_the_outputs(dtype):
    outputs = images(5, dtype=dtype)
    recording = watched(outputs).recording()
    flat = torch.stack(outputs).double().flatten(1)
    true = (flat @ flat.T / flat.shape[1]).numpy()
    assert np.abs(recording.products - true).max() <= 0.04 * true.max()
    for step in range(4):
        exact = float((flat[step] - flat[step + 1]).square().mean().sqrt())
        assert recording.distance(step, step + 1) == pytest.approx(exact, rel=0.04)


@pytest.mark.parametrize("elements", [1, 7, 8192, 10**6])
def test_a_sketch_has_one_size_and_one_choice(elements):
    sketch, value = Sketch(), torch.arange(float(elements))
    first = sketch(value)
    assert torch.equal(sketch(value), first) and torch.equal(Sketch()(value), first) and len(first) == 8192
    assert torch.equal(Sketch()(value.reshape(1, 1, -1)), first)
    assert not torch.equal(sketch(torch.arange(float(elements) + 1)), first) or elements == 1


def test_a_missing_step_gives_nothing():
    for missing in range(4):
        recorder = Recorder(even(4), True)
        for step, output in zip(steps_at(even(4)), images(4), strict=True):
            if step.index != missing:
                recorder.observe(step, output)
        assert recorder.recording() is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_output_that_is_not_finite_gives_nothing(value):
    outputs = images(4)
    outputs[2] = torch.full_like(outputs[2], value)
    assert watched(outputs).recording() is None


def test_a_schedule_without_steps_or_that_rises_gives_nothing():
    assert Recorder((1.0,), True).recording() is None and Recorder((), True).recording() is None
    assert watched(images(2), (1.0, 1.0, 0.0)).recording() is None


def test_evaluations_between_the_steps_do_not_count_and_of_several_the_last_does():
    outputs, recorder = images(3), Recorder(even(3), True)
    for step, output in zip(steps_at(even(3)), outputs, strict=True):
        recorder.observe(step, -output)
        recorder.observe(step, output)
        recorder.observe(Step(step.index + 0.5, 3, 0.1), 9 * output)
    recorder.observe(Step(3, 3, 0.0), outputs[0])  # behind the last step
    assert np.array_equal(recorder.recording().products, watched(outputs).recording().products)


def test_it_keeps_little_and_nothing_of_the_outputs_themselves():
    outputs = images(3)
    recorder = watched(outputs)
    for output in outputs:
        output.fill_(math.nan)
    assert recorder.recording() is not None
    assert all(kept.shape == (8192,) and kept.dtype == torch.float32 for kept in recorder.kept.values())


def test_it_reads_nothing_from_the_device_before_the_end():
    """Values on the meta device cannot be read."""
    recorder = watched(images(3, device="meta"))
    assert len(recorder.kept) == 3
    with pytest.raises(NotImplementedError):
        recorder.recording()
