"""Decisions on hand-made signals."""

import pytest
import torch

from stepcache.cache_core.policies import AccumulatedChange, ChangeFromAnchor, ChangeFromBefore, Guarded
from stepcache.cache_core.types import Decision, Run, Step

RUN = Run((1.0, 0.5, 0.0), start_sigma=1.0, end_sigma=0.0)


def masks(policy, signals, total=100):
    """'1' for computed, '0' for reused, the scores seen on the way."""
    policy.begin(RUN, 0)
    mask, scores = "", []
    for index, signal in enumerate(signals):
        score = policy.observe(signal)
        scores.append(float(score))
        step = Step(index, total, 0.5)
        if policy.decide(step, scores[-1]).reuse:
            policy.reused(step)
            mask += "0"
        else:
            policy.computed(step, ())
            mask += "1"
    return mask, scores


def signals_with_changes(changes):
    """Scalars whose relative change from one to the next is as given."""
    value, signals = 1.0, [torch.tensor([1.0], dtype=torch.float64)]
    for change in changes:
        value *= 1 + change
        signals.append(torch.tensor([value], dtype=torch.float64))
    return signals


def test_slow_drift_is_caught_by_the_anchor():
    """EX-F1: comparing with the step before would never fire here."""
    residuals = [[1, -2, 0.5], [1.04, -2.02, 0.5], [1.1, -2.05, 0.52], [1.2, -2.1, 0.55], [1.3, -2.2, 0.6]]
    mask, scores = masks(ChangeFromAnchor(0.08), [torch.tensor(r) for r in residuals])
    assert mask == "10010"
    assert scores[1:] == pytest.approx([0.017143, 0.048571, 0.1, 0.064935], rel=1e-4)


@pytest.mark.parametrize("policy", [AccumulatedChange(0.5), ChangeFromAnchor(0.5), ChangeFromBefore(0.5)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_signal_that_is_not_finite_computes(policy, bad):
    mask, _ = masks(policy, [torch.ones(2), torch.ones(2), torch.tensor([1.0, bad]), torch.tensor([1.0, bad])])
    assert mask == "1011"


@pytest.mark.parametrize("policy", [AccumulatedChange(0.5), ChangeFromAnchor(0.5)])
def test_a_signal_of_another_shape_computes(policy):
    assert masks(policy, [torch.ones(2), torch.ones(2), torch.ones(3), torch.ones(3)])[0] == "1010"


def test_the_sum_restarts_after_any_computed_evaluation_and_follows_every_signal():
    """A policy told of a forced compute must not count the change that it covered."""
    policy = AccumulatedChange(0.5)
    policy.observe(torch.tensor([1.0]))
    policy.computed(Step(0, 9, 1.0), ())
    policy.observe(torch.tensor([2.0]))  # not asked: something else forced this one
    policy.computed(Step(1, 9, 0.9), ())
    assert policy.observe(torch.tensor([2.2])).item() == pytest.approx(0.1, rel=1e-4)


def test_a_negative_polynomial_cannot_freeze_the_sum():
    """EX-T3's coefficients are at -8.6 for x = 0.02; unclamped, the sum reaches -42 and nothing refreshes again."""
    wan = (-5784.54975374, 5449.50911966, -1811.16591783, 256.27178429, -13.02252404)
    signals = signals_with_changes([0.3] + [0.02] * 60)
    mask, scores = masks(AccumulatedChange(0.2, wan, (0.14, 0.34)), signals)
    assert min(scores) >= 0 and mask.count("1") > 10
    assert masks(AccumulatedChange(0.2, wan), signals)[0].count("1") == 4  # first, jump, then every 20th by the floor


def test_a_higher_threshold_never_computes_more_on_the_same_changes():
    """I-11, for a method that accumulates."""
    signals = signals_with_changes([0.3, 0.12, 0.08, 0.05, 0.04, 0.05, 0.08, 0.12, 0.25])
    counts = [masks(AccumulatedChange(threshold), signals)[0].count("1") for threshold in (0.05, 0.1, 0.2, 0.4, 0.8)]
    assert counts == sorted(counts, reverse=True)


class Always:
    """Proposes to reuse whenever it is asked."""

    def begin(self, run, order): ...
    def observe(self, signal): ...
    def decide(self, step, score):
        return Decision(True, "always")

    def computed(self, step, value): ...
    def reused(self, step): ...
    def map_tensors(self, move): ...


def guarded(**limits):
    policy = Guarded(Always(), **limits)
    policy.begin(Run((1.0, 0.0), start_sigma=0.8, end_sigma=0.2), 0)
    return policy


def test_the_last_step_is_computed():
    assert not guarded().decide(Step(9, 10, 0.5), None).reuse
    assert guarded().decide(Step(8, 10, 0.5), None).reuse


@pytest.mark.parametrize(("sigma", "reuse"), [(0.81, False), (0.8, True), (0.2, True), (0.19, False)])
def test_window_in_sigma(sigma, reuse):
    assert guarded().decide(Step(1, 10, sigma), None).reuse is reuse


def test_run_length_limit():
    policy, step, mask = guarded(max_consecutive=2), Step(1, 100, 0.5), ""
    for _ in range(7):
        reuse = policy.decide(step, None).reuse
        policy.reused(step) if reuse else policy.computed(step, ())
        mask += "01"[not reuse]
    assert mask == "0010010"


def test_a_sampler_that_makes_no_progress_gets_computed_evaluations():
    guarded = Guarded(ChangeFromAnchor(1e9))
    guarded.begin(RUN, 0)
    step, signal = Step(0.5, 3, 0.5), torch.ones(2)
    for _ in range(50):
        score = guarded.observe(signal)
        decision = guarded.decide(step, float(score))
        guarded.reused(step) if decision.reuse else guarded.computed(step, ())
    assert decision.reason == "the sampler makes no progress" and not decision.reuse


def test_a_change_from_the_one_before_takes_no_account_of_what_was_reused():
    mask, scores = masks(ChangeFromBefore(0.1), signals_with_changes([0.05, 0.05, 0.2, 0.05]))
    assert mask == "10010" and scores[1:] == pytest.approx([0.05, 0.05, 0.2, 0.05], rel=1e-5)
