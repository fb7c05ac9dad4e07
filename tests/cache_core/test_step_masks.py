"""EX-SCM1 to EX-SCM4: the masks of cache-dit, and those for the step counts that it refuses."""

import pytest

from stepcache.cache_core.step_masks import POLICIES, masked_steps, step_mask

from .driving import mask_from, run_of

MASKS = {
    28: (  # EX-SCM1
        "1111111101110011100110010001",
        "1111110110001100011000110001",
        "1111110100010000100000100001",
        "1111001000001000000100000001",
    ),
    20: (  # EX-SCM2
        "11111111011100111001",
        "11111101100011000101",
        "11111101000000000001",
        "11110000000000000001",
    ),
    50: (  # EX-SCM3
        "11111111111111111111110011111000111110001110001101",
        "11111111111111110011100000111000001110000011100001",
        "11111111111001100000110000000110000000001100000001",
        "11111110001100000000011000000000001100000000000001",
    ),
    8: ("11111011", "11110101", "11101001", "11001001"),  # EX-SCM4 from here on
    4: ("1101",) * 4,
    6: ("111001",) * 4,
    9: ("111110111", "111110101", "111101001", "111001001"),
    12: ("111101101111", "111101101001", "111010010011", "110100100011"),
}


@pytest.mark.parametrize("steps", MASKS)
def test_worked_examples(steps):
    assert POLICIES == ("slow", "medium", "fast", "ultra")
    assert tuple(mask_from(step_mask(policy, steps), steps) for policy in POLICIES) == MASKS[steps]


@pytest.mark.parametrize("policy", POLICIES)
def test_any_number_of_steps_begins_and_ends_with_a_computed_one(policy):
    for steps in range(1, 201):
        mask = step_mask(policy, steps)
        assert {0, steps - 1} <= mask <= set(range(steps))
        assert len(mask) < steps or steps < 8
    assert step_mask(policy, 3) == {0, 1, 2} and step_mask(policy, 0) == set()


def test_each_policy_computes_no_more_than_the_one_before():
    for steps in range(4, 120):
        counts = [len(step_mask(policy, steps)) for policy in POLICIES]
        assert counts == sorted(counts, reverse=True)


def test_a_run_has_the_mask_of_its_steps():
    assert masked_steps("fast", run_of(28)) == step_mask("fast", 28)
