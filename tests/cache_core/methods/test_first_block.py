"""EX-F2: a toy stack of four blocks, followed through probe, policy and predictor."""

import pytest
import torch

from stepcache.cache_core.methods import first_block_cache
from stepcache.cache_core.types import Run, Step

WEIGHTS = (0.5, 0.4, 0.3, 0.2)
INPUTS = torch.tensor([[1, -0.5], [0.9, -0.45], [0.8, -0.4], [0.7, -0.3]], dtype=torch.float64)
UNCACHED = ([2.208096, -1.373661], [2.108096, -1.134111], [2.008096, -0.829932], [1.908096, -0.3])


def block(i, h, time):
    return h + WEIGHTS[i] * torch.tanh(h + time)


def run(threshold):
    method = first_block_cache(threshold)
    policy, predictor = method.new_policy(), method.new_predictor()
    policy.begin(Run((1.0, 0.0), 1.0, 0.0), 0)
    mask, outputs, scores = "", [], []
    for index, x in enumerate(INPUTS):
        step, time = Step(index, 99, 0.5), 0.1 * index  # the example has no last step
        entry = block(0, x, time)
        scores.append(float(policy.observe(entry - x)))
        if policy.decide(step, scores[-1]).reuse:
            policy.reused(step)
            outputs.append(entry + predictor.predict(step)[0])
            mask += "0"
            continue
        h = entry
        for i in (1, 2, 3):
            h = block(i, h, time)
        policy.computed(step, ())
        predictor.update(step, (h - entry,))
        outputs.append(h)
        mask += "1"
    return mask, outputs, scores


def test_worked_example():
    mask, outputs, scores = run(0.2)
    assert mask == "1011"
    assert scores[1:] == pytest.approx([0.102754, 0.216343, 0.205820], abs=2e-6)
    assert outputs[1].tolist() == pytest.approx([2.108096, -1.260790], abs=2e-6)


def test_nothing_reused_equals_uncached():
    mask, outputs, _ = run(1e-12)
    assert mask == "1111"
    for output, expected in zip(outputs, UNCACHED, strict=True):
        assert output.tolist() == pytest.approx(expected, abs=2e-6)
