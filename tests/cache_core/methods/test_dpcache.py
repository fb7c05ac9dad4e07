"""DPCache on a whole run. The search for its plan is in test_planning."""

from functools import partial

import pytest
import torch

from stepcache.cache_core.methods import dpcache
from stepcache.cache_core.planning import general_steps
from stepcache.cache_core.types import Step

from ..driving import computed_in, run_of, sample


def test_the_plan_is_followed_and_the_last_step_computed():
    method = dpcache(lambda run: frozenset({0, 1, 3, 4}))
    assert method.foretold(run_of(7)) == (0, 1, 3, 4, 6)
    assert computed_in(sample(method, 7).mask) == [0, 1, 3, 4, 6]


def test_a_plan_without_the_first_step_computes_it_all_the_same():
    assert sample(dpcache(lambda run: frozenset({2})), 5).mask == "10101"


@pytest.mark.parametrize("order", [1, 2, 3])
def test_polynomials_are_continued_exactly_over_uneven_steps(order):
    predictor = dpcache(lambda run: frozenset(), order).new_predictor()
    for position in (0.0, 1.0, 3.0, 4.0, 9.0):
        predictor.update(Step(position, 20, 1 - position / 20), (torch.tensor([position**order], dtype=torch.float64),))
    assert predictor.predict(Step(12.0, 20, 0.4))[0].item() == pytest.approx(12.0**order)


def test_a_general_plan_serves_any_number_of_steps():
    """I-17."""
    for steps in (1, 2, 3, 10, 50):
        computed = min(4, steps)
        planned = dpcache(partial(general_steps, computed=computed)).foretold(run_of(steps))
        assert len(planned) == computed and planned[-1] == steps - 1
