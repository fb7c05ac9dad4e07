"""EX-F2: a toy stack of four blocks, followed through probe, policy and predictor."""

import pytest

from stepcache.cache_core.methods import first_block_cache

from ..driving import UNCACHED, run_stack


def test_worked_example():
    mask, outputs, scores = run_stack(first_block_cache(0.2))
    assert mask == "1011"
    assert scores[1:] == pytest.approx([0.102754, 0.216343, 0.205820], abs=2e-6)
    assert outputs[1].tolist() == pytest.approx([2.108096, -1.260790], rel=1e-5)


def test_nothing_reused_equals_uncached():
    mask, outputs, _ = run_stack(first_block_cache(1e-12))
    assert mask == "1111"
    for output, expected in zip(outputs, UNCACHED, strict=True):
        assert output.tolist() == pytest.approx(expected, rel=1e-5)
