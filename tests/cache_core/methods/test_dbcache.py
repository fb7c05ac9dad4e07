"""EX-D1 and EX-D2, the order of DBCache's rules, and its masks."""

import pytest
import torch

from stepcache.cache_core.methods import dbcache, first_block_cache
from stepcache.cache_core.predictors import Extrapolation

from ..driving import STACK_INPUTS, UNCACHED, mask_of, run_of, run_stack, sample


@pytest.mark.parametrize(
    ("head", "tail", "second", "error"),
    [
        (1, 0, -1.260790, 0.126679),
        (1, 1, -1.245447, 0.111336),
        (2, 0, -1.201826, 0.067715),
        (2, 1, -1.181254, 0.047143),
    ],
)
def test_head_and_tail_repair_a_reused_result(head, tail, second, error):
    """EX-D1."""
    mask, outputs, scores = run_stack(dbcache(0.2, head, tail))
    assert mask == "1011"
    assert outputs[1][1].item() == pytest.approx(second, rel=1e-5)
    assert abs(outputs[1][1].item() - UNCACHED[1][1]) == pytest.approx(error, rel=1e-4)
    if head == 2:
        assert scores[1:] == pytest.approx([0.100376, 0.218993, 0.226515], rel=1e-5)


DISTANCES = (9, 9, 9, 0.05, 0.30, 0.05, 0.05, 0.30, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.30, 0.05)


def test_the_run_length_restarts_at_every_computed_step():
    """EX-D2. cache-dit restarts it only where the limit itself computes, and so gets 1110100100100010."""
    policy = dbcache(0.24, 1, warmup=3, max_consecutive=3, last_step=False).new_policy()
    assert mask_of(policy, 16, DISTANCES) == "1110100100010010"


def test_the_last_step_is_computed_besides():
    policy = dbcache(0.24, 1, warmup=3, max_consecutive=3).new_policy()
    assert mask_of(policy, 16, DISTANCES) == "1110100100010011"


def test_limits_come_before_the_distance():
    near = [0.0] * 10
    assert mask_of(dbcache(0.2, max_reused=3, last_step=False).new_policy(), 10, near) == "1000111111"
    assert mask_of(dbcache(0.2, warmup=4, max_reused=2, last_step=False).new_policy(), 10, near) == "1111001111"


@pytest.mark.parametrize(
    ("warmup", "interval", "mask"),
    [
        (8, 1, "111111110000"),
        (8, 2, "101010100000"),
        (8, 3, "100100100000"),
        (8, 4, "100010000000"),
        (2, 9, "100000000000"),
    ],
)
def test_in_the_warm_up_only_every_so_many_are_computed_in_any_case(warmup, interval, mask):
    """Rule 1: 0, I, 2I, ... below W. The preset "F" of cache-dit is W 8, I 2, "U" W 8, I 4."""
    policy = dbcache(0.8, 1, warmup=warmup, warmup_interval=interval, last_step=False).new_policy()
    assert mask_of(policy, 12, [0.0] * 12) == mask


def test_the_others_of_the_warm_up_are_judged_like_any():
    policy = dbcache(0.24, 1, warmup=6, warmup_interval=2, last_step=False).new_policy()
    assert mask_of(policy, 16, DISTANCES) == "1110100100000010"


@pytest.mark.parametrize("static", [False, True])
def test_a_mask_brings_its_own_warm_up(static):
    """As in cache-dit, where it is cut to the computed steps that a mask begins with."""
    policy = dbcache(0.2, 1, mask="fast", reuse_others=static, warmup=7).new_policy()
    assert mask_of(policy, 8, [0.0] * 8) == "11101001"


def test_changes_that_sum_up_end_all_reuse():
    """Rule 5, in binary fractions: 1/16 + 3 x 1/8 = 7/16, then 9/16. Computed evaluations count: 1/2, 3/4."""

    def mask(distances, most, **limits):
        policy = dbcache(0.3, 1, max_accumulated=most, last_step=False, **limits).new_policy()
        return mask_of(policy, len(distances), distances)

    small = [9, 1 / 16, 1 / 8, 1 / 8, 1 / 8, 1 / 8, 0, 0]
    assert mask(small, 0.5) == "10000011" and mask(small, 7 / 16) == "10000111" and mask(small, 0) == "10000000"
    assert mask([9, 1 / 2, 1 / 4, 0, 0], 3 / 4) == "11011" and mask([9, 1 / 2, 1 / 4, 0, 0], 1) == "11000"
    unasked = mask([9, 9, 9, 1 / 8, 1 / 8, 1 / 8, 1 / 8], 1 / 4, warmup=3)
    assert unasked == "1110011"  # what the warm-up computes is not judged


@pytest.mark.parametrize("threshold", [1, 1.5, 1e9])
def test_a_threshold_of_one_reuses_without_looking(threshold):
    """Rule 7. Below it, a change that is not finite is computed."""
    assert mask_of(dbcache(threshold, 1, warmup=2, max_consecutive=3).new_policy(), 9, [9.0] * 9) == "110001001"
    assert mask_of(dbcache(0.99, 1, warmup=2, max_consecutive=3).new_policy(), 9, [9.0] * 9) == "111111111"


@pytest.mark.parametrize("settings", [dict(threshold=1), dict(threshold=0.1, mask="fast", reuse_others=True)])
def test_where_nothing_is_looked_at_nothing_is_kept_to_look_at(settings):
    """Half the memory, and the steps are known before sampling."""
    looking, blind = sample(dbcache(0.99, 1), steps=8), sample(dbcache(**settings, head=1), steps=8)
    assert blind.report.cache_bytes * 2 == looking.report.cache_bytes
    assert {evaluation.signal for evaluation in blind.report.trace} == {None}
    assert dbcache(**settings).foretold(run_of(8)) == tuple(i for i, flag in enumerate(blind.mask) if flag == "1")


def test_a_dynamic_mask_computes_its_steps_and_looks_at_the_others():
    near, far = [0.0] * 8, [9.0] * 8
    assert mask_of(dbcache(0.2, mask="fast").new_policy(), 8, near) == "11101001"
    assert mask_of(dbcache(0.2, mask="fast").new_policy(), 8, far) == "11111111"


def test_a_static_mask_does_not_look():
    assert mask_of(dbcache(0.2, mask="fast", reuse_others=True).new_policy(), 8, [9.0] * 8) == "11101001"
    assert sample(dbcache(1e-12, mask="fast", reuse_others=True), steps=8).mask == "11101001"


@pytest.mark.parametrize("head", [1, 3, 4])
def test_no_blocks_between_head_and_tail_equals_uncached(head):
    """I-23."""
    mask, outputs, _ = run_stack(dbcache(1e9, head, 4 - head))
    assert mask == "1000"
    for output, expected in zip(outputs, UNCACHED, strict=True):
        assert output.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("threshold", [0.05, 0.12, 0.2, 0.21, 0.5])
def test_one_head_block_is_first_block_cache(threshold):
    """I-23."""
    mine, other = run_stack(dbcache(threshold, 1, 0)), run_stack(first_block_cache(threshold))
    assert mine[0] == other[0] and mine[2] == other[2]
    assert all(torch.equal(a, b) for a, b in zip(mine[1], other[1], strict=True))


def test_a_predictor_continues_the_middle():
    """Inputs that change steadily: a line through two residuals comes closer than the last residual."""
    inputs = torch.stack([STACK_INPUTS[0] * (1 - 0.05 * i) for i in range(4)])
    exact = run_stack(dbcache(1e-12, 1), inputs)[1]

    def error(predictor):
        mask, outputs, _ = run_stack(dbcache(1e9, 1, predictor=predictor, warmup=2), inputs)
        assert mask == "1100"
        return float((outputs[3] - exact[3]).abs().max())

    assert error(Extrapolation(1)) < error(None) / 2
