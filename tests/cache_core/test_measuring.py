"""What a computed run tells of the blocks."""

import pytest
import torch

from stepcache.cache_core.measuring import Changes, Measuring, token_ratio
from stepcache.cache_core.methods import measuring
from stepcache.cache_core.types import Step

from .driving import noise, run_of, sample, steps_of


def measured(residuals, signals=None):
    changes = {}
    policy = Measuring(lambda order: changes.setdefault(order, Changes()))
    policy.begin(run_of(len(residuals)), 0)
    for step, residual in zip(steps_of(run_of(len(residuals))), residuals, strict=True):
        assert policy.observe(signals[step.index] if signals else None) is None
        assert not policy.decide(step, None).reuse
        policy.computed(step, (residual,))
    return changes[0]


def test_changes_are_relative():
    """From 1 to 2 everywhere, then to 3 and 1."""
    residuals = [
        torch.full((1, 2, 4), 1.0),
        torch.full((1, 2, 4), 2.0),
        torch.tensor([3.0, 1.0]).view(1, 2, 1).expand(1, 2, 4),
    ]
    signals = [torch.ones(1, 2), torch.full((1, 2), 1.5), torch.full((1, 2), 3.0)]
    changes = measured(residuals, signals)
    assert [float(value) for value in changes.residual] == pytest.approx([1.0, 0.5])
    assert [float(value) for value in changes.signal] == pytest.approx([0.5, 1.0])
    assert [float(value) for value in changes.ratio] == pytest.approx([2.0, (1.5 + 0.5) / 2])
    assert len(changes.sketches) == 3 and all(sketch.shape == (8192,) for sketch in changes.sketches)


def test_the_ratio_is_the_mean_over_the_tokens_and_not_that_of_the_norms():
    before = torch.tensor([[[3.0, 4.0], [0.0, 1.0]]])
    now = torch.tensor([[[6.0, 8.0], [0.0, 1.0]]])
    assert float(token_ratio(now, before)) == pytest.approx(1.5)
    assert float(token_ratio(now, torch.zeros_like(before))) > 1e6  # finite all the same


def test_what_was_moved_away_for_want_of_memory_is_compared_all_the_same():
    near = torch.empty(1, 2, 4, device="meta")
    assert token_ratio(near, torch.ones(1, 2, 4)).device == near.device


def test_a_model_without_a_signal_tells_the_rest():
    changes = measured(noise(4))
    assert changes.signal == [] and len(changes.residual) == len(changes.ratio) == 3


def test_evaluations_between_the_steps_and_ends_of_streams_are_left_out():
    changes = Changes()
    policy = Measuring(lambda order: changes)
    policy.begin(run_of(3), 0)
    policy.computed(Step(0.5, 3, 0.8), (torch.ones(1, 2, 2),))
    policy.computed(Step(0, 3, 1.0), (None,))
    policy.computed(Step(0, 3, 1.0), ())
    assert changes == Changes()
    policy.computed(Step(0, 3, 1.0), (None, torch.ones(1, 2, 2)))
    policy.computed(Step(1, 3, 0.7), (torch.ones(1, 3, 2),))  # another shape: no change to tell
    assert len(changes.sketches) == 2 and changes.residual == []


def test_both_branches_of_a_run_are_told_apart_and_nothing_is_reused():
    changes = {}
    sampled = sample(measuring(lambda order: changes.setdefault(order, Changes())))
    assert set(sampled.mask) == {"1"} and set(changes) == {0, 1}
    assert all(len(each.sketches) == 10 and len(each.signal) == 9 for each in changes.values())
    assert not torch.equal(changes[0].sketches[0], changes[1].sketches[0])
    assert sampled.report.device_reads == 10  # sigma, and nothing of what is measured
