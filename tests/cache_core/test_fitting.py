"""Figures of published methods, fitted to measured runs."""

import json
from statistics import mean

import numpy as np
import pytest
import torch

from stepcache.cache_core.fitting import (
    FORCED,
    checked,
    fitted_entries,
    over_threshold,
    teacache_entry,
    threshold_for,
)
from stepcache.cache_core.measuring import Changes
from stepcache.cache_core.methods import magcache, measuring
from stepcache.cache_core.profiles import magnitude_profile

from .driving import noise, run_of, sample
from .recordings import CALIBRATIONS, even

STEPS = 12


def measured_run(seed=0, steps=STEPS, branches=2):
    changes = {}
    sample(measuring(lambda order: changes.setdefault(order, Changes())), steps, noise(branches, seed, (1, 40, 16)))
    return [changes[order] for order in sorted(changes)]


def entries(*runs):
    return fitted_entries(runs, even(STEPS), "euler")


def scalars(values):
    return [torch.tensor(value) for value in values]


def test_all_three_methods_get_their_figures():
    found = entries(measured_run(0), measured_run(1))
    assert set(found) == {"teacache", "magcache", "dpcache"}
    for entry in found.values():
        assert entry["name"] == "calibrated" and entry["steps"] == STEPS and entry["sampler"] == "euler"
    assert json.loads(json.dumps(checked(json.loads(json.dumps(found))))) == json.loads(json.dumps(found))


def test_a_polynomial_is_recovered():
    x = np.linspace(0.01, 0.4, 20)
    y = 3 * x**2 - 0.5 * x + 0.1
    entry = teacache_entry([Changes(signal=scalars(x), residual=scalars(y))])
    assert np.polyval(entry["coefficients"], x) == pytest.approx(y, abs=1e-5)
    assert entry["fitted_range"] == pytest.approx([0.01, 0.4])


def test_a_polynomial_of_few_points_has_a_low_degree():
    entry = teacache_entry([Changes(signal=scalars([0.1, 0.2]), residual=scalars([0.2, 0.4]))])
    assert entry["coefficients"] == pytest.approx([2.0, 0.0], abs=1e-6)


def test_the_threshold_gives_the_recommended_speed():
    entry = teacache_entry([Changes(signal=scalars(np.full(29, 0.1)), residual=scalars(np.linspace(0.05, 0.15, 29)))])
    assert 0.1 <= entry["threshold"] <= 0.2  # 20 of 30 are computed
    for seed in range(3):
        found = entries(measured_run(seed))
        profile = magnitude_profile(found["magcache"])
        computed = magcache(profile, found["magcache"]["threshold"], 4, 0.2).foretold(run_of(STEPS))
        assert abs(len(computed) - STEPS / 1.5) <= 1


def test_a_sum_over_the_threshold_starts_anew():
    assert over_threshold([0.1, 0.1, 0.1, 0.1], 0.2) == 2
    assert over_threshold([0.5, 0.0, 0.1], 0.2) == 1 and over_threshold([], 0.2) == 0
    assert over_threshold([0.1] * 4, 0.0) == 4


def test_of_thresholds_that_serve_the_smallest_is_taken():
    assert threshold_for(lambda threshold: 5.0, 5.0) == pytest.approx(1e-3)
    assert 0.29 < threshold_for(lambda threshold: 1.0 if threshold >= 0.3 else 9.0, 1.0) < 0.32


def test_curves_are_the_mean_of_the_runs_by_branch():
    runs = [measured_run(seed) for seed in range(3)]
    ratios = entries(*runs)["magcache"]["ratios"]
    for order, branch in enumerate(("cond", "uncond")):
        assert ratios[branch][0] == 1.0 and len(ratios[branch]) == STEPS
        assert ratios[branch][4] == pytest.approx(mean(float(run[order].ratio[3]) for run in runs))
    assert set(entries(measured_run(branches=1))["magcache"]["ratios"]) == {"cond"}


def test_there_is_a_plan_for_every_number_of_steps():
    plans = entries(measured_run())["dpcache"]["plans"]
    assert set(plans) == {str(count) for count in range(FORCED, STEPS)}
    for count, plan in plans.items():
        assert len(plan) == int(count) and plan[:FORCED] == [0, 1, 2] and plan == sorted(set(plan)) and plan[-1] < STEPS


def test_runs_that_are_not_complete_do_not_count():
    whole, short = measured_run(), measured_run(steps=5)
    assert json.dumps(entries(whole, short)) == json.dumps(entries(whole))
    assert entries(short) == {} and entries([]) == {} and entries() == {}
    assert fitted_entries([measured_run(steps=3)], even(3), "euler") == {}


def test_without_a_signal_there_is_no_polynomial():
    run = measured_run()
    for changes in run:
        changes.signal = []
    assert set(entries(run)) == {"magcache", "dpcache"}


def test_entries_from_a_file_are_taken_as_far_as_they_are_known():
    given = json.loads(json.dumps(CALIBRATIONS)) | {"later": {"anything": [1]}}
    given["teacache"]["later"] = 1
    found = checked(given)
    assert set(found) == set(CALIBRATIONS) and "later" not in found["teacache"]
    assert checked({}) == {}


@pytest.mark.parametrize(
    ("method", "wrong", "problem"),
    [
        ("teacache", dict(coefficients=[]), "polynomial"),
        ("teacache", dict(coefficients=[1.0] * 11), "polynomial"),
        ("teacache", dict(fitted_range=[0.0]), "range"),
        ("teacache", dict(threshold=-1), "no number"),
        ("magcache", dict(ratios={}), '"all" or "cond"'),
        ("magcache", dict(ratios={"cond": [1.0, 0.9]}), "2 ratios for 4 steps"),
        ("magcache", dict(ratios={"cond": [1.0, 0.9, 0.0, 1.0]}), "above 0"),
        ("dpcache", dict(plans={"3": [0, 1]}), "another number of steps"),
        ("dpcache", dict(plans={"2": [0, 4]}), "no steps of 4 in order"),
        ("dpcache", dict(plans={"2": [1, 0]}), "in order"),
        ("dpcache", dict(name=None), "no text"),
        ("dpcache", dict(steps=0), "no whole number from 1"),
    ],
)
def test_entries_that_are_none_are_refused(method, wrong, problem):
    with pytest.raises(ValueError, match=problem):
        checked({method: CALIBRATIONS[method] | wrong})
