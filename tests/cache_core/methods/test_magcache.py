"""EX-M1, EX-M2 and EX-M4: what the curve and the settings alone decide. EX-M3 is about measuring a curve."""

import pytest

from stepcache.cache_core.methods import magcache
from stepcache.cache_core.policies import StepMask
from stepcache.cache_core.profiles import MagnitudeProfile, drift_preserving, nearest
from stepcache.cache_core.types import Run

from ..driving import FLUX_RATIOS, computed_in, mask_of, run_of, sample, steps_of


def profile(ratios, **changed):
    facts = {
        "steps": len(ratios),
        "threshold": 0.1,
        "max_consecutive": 2,
        "retention": 0.2,
        "sampler": "",
        "source": "",
    }
    return MagnitudeProfile("a model", {"all": tuple(ratios)}, **facts | changed)


FLUX = profile(FLUX_RATIOS)


def foretold(ratios=FLUX, threshold=0.24, longest=5, retention=0.1, run=None, **limits):
    return magcache(ratios, threshold, longest, retention, **limits).foretold(run or run_of(28))


def test_flux_worked_example():
    """EX-M1, without and with the rule that step 11 is computed."""
    assert foretold(last_step=False) == (0, 1, 2, 5, 9, 15, 21, 26)
    eleventh = StepMask(lambda run: frozenset({11}))
    assert foretold(mask=eleventh, last_step=False) == (0, 1, 2, 5, 9, 11, 17, 23, 26)


def test_flux_worked_example_at_other_settings():
    """EX-M1, the settings of diffusers."""
    expected = (*range(6), 7, 9, 13, 17, 21, 24, 26, 27)
    assert foretold(threshold=0.06, longest=3, retention=0.2, last_step=False) == expected


def test_the_last_step_is_computed_unlike_in_the_published_code():
    assert foretold()[-1] == 27


def test_the_first_budget_of_the_flux_example():
    """EX-M1: the product and the sum at steps 3, 4 and 5."""
    policy = magcache(FLUX, 0.24, 5, 0.1).policy
    policy.begin(run_of(28), 0)
    steps = steps_of(run_of(28))
    for step in steps[:3]:
        policy.computed(step, ())
    trace = []
    for step in steps[3:6]:
        trace.append(policy._ahead(step)[:2])
        assert policy.decide(step, None).reuse is (step.index < 5)
        policy.reused(step)
    assert trace[0] == pytest.approx((1.078120, 0.078120), rel=1e-5)
    assert trace[1] == pytest.approx((1.145502, 0.223622), rel=1e-5)
    assert trace[2][1] == pytest.approx(0.413868, rel=1e-5)


def test_the_curve_at_20_steps():
    """EX-M2: the nearest entries, and the ratios that keep the drift."""
    method = magcache(FLUX, 0.24, 5, 0.1, last_step=False)
    assert mask_of(method.new_policy(), 20) == "11001000100000100001"
    fitted = profile(drift_preserving(FLUX_RATIOS, 20))
    assert mask_of(magcache(fitted, 0.24, 5, 0.1, last_step=False).new_policy(), 20) == "11010010000010000010"


def test_worked_example_with_a_run_length():
    """EX-M4."""
    policy = magcache(profile((1, 1.02, 0.99, 0.97, 0.95, 0.90, 0.80)), 0.12, 2, 0.2, last_step=False).policy
    policy.begin(run_of(7), 0)
    mask, trace = "", []
    for step in steps_of(run_of(7)):
        _, spent, in_a_row = policy._ahead(step)
        reuse = bool(mask) and policy.decide(step, None).reuse
        policy.reused(step) if reuse else policy.computed(step, ())
        mask += "01"[not reuse]
        trace.append((round(spent, 6), in_a_row))
    assert mask == "1001011"
    assert trace[1:] == [(0.02, 1), (0.0298, 2), (0.050294, 3), (0.05, 1), (0.195, 2), (0.2, 1)]


@pytest.mark.parametrize("steps", [1, 2, 3, 20, 28, 29, 60])
def test_any_number_of_steps(steps):
    """I-17: other codes fail, or reuse without end beyond their table."""
    planned = foretold(run=run_of(steps))
    assert planned[0] == 0 and planned[-1] == steps - 1 and len(planned) >= steps / 6


def test_what_is_foretold_is_what_happens():
    for steps in (9, 28):
        method = magcache(FLUX, 0.24, 5, 0.1)
        assert tuple(computed_in(sample(method, steps).mask)) == method.foretold(run_of(steps))


def test_a_part_of_the_schedule_takes_its_part_of_the_curve():
    """Split sampling and denoise < 1: from a computed step on, a part does what the whole run does there."""
    whole = run_of(28)
    assert foretold() == (0, 1, 2, 5, 9, 15, 21, 26, 27)
    part = Run(whole.sigmas[15:], 1e9, 0.0, fraction=13 / 28, before=15 / 28)
    assert [step + 15 for step in foretold(run=part)] == [15, 21, 26, 27]


def test_the_curve_of_an_expert_covers_its_run():
    expert = profile(FLUX_RATIOS, whole=False)
    assert foretold(expert, run=run_of(28)) == foretold(expert, run=Run(run_of(28).sigmas, 1e9, 0.0, 0.5, 0.5))


def test_each_branch_follows_its_own_curve():
    ratios = {"cond": (1.0, 1.0, 1.0, 1.0), "uncond": (1.0, 1.5, 1.5, 1.5)}
    two = MagnitudeProfile("a model", ratios, 4, 0.1, 2, 0.0, "", "")
    policies = [magcache(two, 0.1, 9, 0.0).new_policy() for _ in range(2)]
    for order, policy in enumerate(policies):
        policy.begin(run_of(4), order)
        policy.computed(steps_of(run_of(4))[0], ())
    assert [policy.decide(steps_of(run_of(4))[1], None).reuse for policy in policies] == [True, False]


def test_several_evaluations_of_a_step_do_not_repeat_its_ratio():
    policy = magcache(FLUX, 10.0, 9, 0.0).policy
    policy.begin(run_of(28), 0)
    steps = steps_of(run_of(28))
    policy.computed(steps[2], ())
    policy.reused(steps[3])
    policy.reused(steps[3])
    assert (policy.product, policy.in_a_row) == (pytest.approx(1.07812), 2)


def test_nearest_rounds_and_knows_one_step():
    """ComfyUI-MagCache cuts off instead, and divides by zero for one step."""
    assert nearest(range(4), 3) == (0, 2, 3) and nearest(range(4), 1) == (3,)
