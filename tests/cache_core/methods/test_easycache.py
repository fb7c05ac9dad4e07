"""EX-EC1 and EX-EC2 in the incremental form, and what ComfyUI's own EasyCache does wrong."""

import pytest
import torch

from stepcache.cache_core.method import Boundary, Level
from stepcache.cache_core.methods import easycache, meancache

from ..driving import noise, run_of, sample, steps_of


def decisions(threshold, warmup=2, steps=12):
    """Mask and sums for x = [4 - .3 s, -2 + .15 s] and an output of .5 x + .1 s."""
    method = easycache(threshold, warmup=warmup)
    policy, predictor, mask, sums, outputs = method.new_policy(), method.new_predictor(), "", {}, []
    policy.begin(run_of(steps), 0)
    for s, step in enumerate(steps_of(run_of(steps))):
        x = torch.tensor([[4 - 0.3 * s, -2 + 0.15 * s]], dtype=torch.float64)
        score = float(policy.observe(x))
        if mask and policy.decide(step, score).reuse:
            policy.reused(step)
            sums[s] = score
            outputs.append(x + predictor.predict(step)[0])
            mask += "0"
            continue
        outputs.append(0.5 * x + 0.1 * s)
        policy.computed(step, (outputs[-1] - x,))
        predictor.update(step, (outputs[-1] - x,))
        mask += "1"
    return mask, sums, outputs, policy.inner


def test_worked_example():
    """EX-EC1."""
    mask, sums, *_ = decisions(0.2)
    assert mask == "110010101011"
    assert (sums[2], sums[3]) == pytest.approx((0.081081, 0.162162), rel=1e-5)
    mask, sums, *_ = decisions(0.35)
    assert mask == "110000100101"
    assert [sums[s] for s in range(2, 6)] == pytest.approx([0.081081, 0.162162, 0.243243, 0.324324], rel=1e-5)


def test_worked_example_of_one_reuse():
    """EX-EC2."""
    _, sums, outputs, policy = decisions(0.2, steps=4)
    assert policy.rate.item() == pytest.approx(0.5, rel=1e-5)
    assert sums[2] == pytest.approx(0.081081, rel=1e-5)
    assert outputs[2].flatten().tolist() == pytest.approx([1.65, -0.675], rel=1e-5)


def test_the_rate_needs_two_outputs():
    assert decisions(1e9, warmup=0)[0] == "110000000001"


def test_a_changed_shape_does_not_reuse_for_ever_after():
    """ComfyUI's rate is then 0, so nothing seems to change and all later steps are reused."""

    def widened(session, index, latents):
        return noise(shape=(1, 8, 4)) if index == 5 else None

    before, after = sample(easycache(0.15), 20).mask, sample(easycache(0.15), 20, between=widened).mask
    assert before[:5] == after[:5] and after[5:7] == "11" and after[7:].count("1") > 2


def test_the_latent_is_not_changed_in_place():
    """ComfyUI adds to a view of it."""
    latents = noise()
    kept = [latent.clone() for latent in latents]
    sampled = sample(easycache(1e9), latents=latents)
    assert sampled.mask.count("0") > 5
    assert all(torch.equal(a, b) for a, b in zip(latents, kept, strict=True))


def test_a_repeated_latent_is_computed_and_then_all_goes_on():
    policy = easycache(0.2).new_policy()
    policy.begin(run_of(9), 0)
    steps, x = steps_of(run_of(9)), torch.ones(1, 2)
    for step, latent, output in ((0, x, x), (1, x, 2 * x), (2, 1.1 * x, 2.1 * x), (3, 1.2 * x, 2.2 * x)):
        score = float(policy.observe(latent))
        assert step > 2 or not policy.decide(steps[step], score).reuse
        policy.computed(steps[step], (output - latent,))
    score = float(policy.observe(1.25 * x))
    assert policy.decide(steps[4], score).reuse


def test_the_latent_that_changes_most_decides_for_its_batch():
    policy = easycache(0.2).new_policy()
    policy.begin(run_of(9), 0)
    steps, base = steps_of(run_of(9)), torch.ones(2, 3)
    for step, scale in ((0, 1.0), (1, 1.1)):
        policy.observe(base * scale)
        policy.computed(steps[step], (torch.zeros(2, 3),))
    moved = base * torch.tensor([[1.1], [1.65]])
    assert float(policy.observe(moved)) == pytest.approx(0.5, rel=1e-5)


def test_what_is_stored_where():
    assert easycache(0.1).boundary == Boundary(0, 0, Level.MODEL_OUTPUT, difference=True)
    assert meancache(lambda run: frozenset()).boundary == Boundary(0, 0, Level.GUIDED_PREDICTION, difference=False)


def test_a_rate_does_not_outlive_its_shape():
    policy = easycache(1e9).policy
    for step, latent in zip(
        steps_of(run_of(9)), (torch.ones(1, 2), torch.ones(1, 2) * 2, torch.ones(2, 3)), strict=False
    ):
        policy.observe(latent)
        policy.computed(step, (latent,))
    assert float(policy.observe(torch.ones(2, 3) * 2)) == float("inf")
