"""EX-MC1: a whole run at the level of the guided prediction. EX-MC2 is in test_predictors."""

import pytest
import torch

from stepcache.cache_core.branch import Branch
from stepcache.cache_core.methods import meancache
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.session import CacheSession
from stepcache.cache_core.types import Run

SIGMAS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)


def euler(fresh, lookback):
    """Velocities and the final latent, for v = 1 + 2 sigma from x = 0."""
    method = meancache(lambda run: frozenset(fresh), lookback, last_step=False)
    session = CacheSession(method, Run(SIGMAS, 1e9, 0.0), RunReport("MeanCache"))
    x, velocities = torch.zeros(1, 1, dtype=torch.float64), []
    for sigma, following in zip(SIGMAS, SIGMAS[1:], strict=False):
        session.next_evaluation(torch.tensor([sigma], dtype=torch.float64))
        call = session.open_call([Branch("guided", 0, "")])
        if call.decide(None, x.shape, entry=(x,)):
            (v,) = call.predict()
            call.reused()
        else:
            v = torch.full((1, 1), 1 + 2 * sigma, dtype=torch.float64)
            call.computed((v,))
        velocities.append(v.item())
        x = x + (following - sigma) * v
    return velocities, x.item()


@pytest.mark.parametrize(
    ("fresh", "lookback", "velocities", "end"),
    [
        ({0, 1, 3}, 1, (3, 2.6, 2.6, 1.8, 1.8), -2.36),
        ({0, 1, 3}, 2, (3, 2.6, 2.5, 1.8, 1.625), -2.305),
        ({0, 1, 2, 4}, 3, (3, 2.6, 2.2, 2.066667, 1.4), -2.253333),
        (range(5), 2, (3, 2.6, 2.2, 1.8, 1.4), -2.2),
    ],
)
def test_worked_example(fresh, lookback, velocities, end):
    """EX-MC1."""
    found, x = euler(fresh, lookback)
    assert found == pytest.approx(velocities, rel=1e-5) and x == pytest.approx(end, rel=1e-5)


def test_the_lookback_belongs_to_the_last_computed_step():
    """Step 2 follows step 1, which looks two back; step 4 follows step 3, which looks one back."""
    velocities, _ = euler({0, 1, 3}, {0: 1, 1: 2, 3: 1})
    assert velocities == pytest.approx((3, 2.6, 2.5, 1.8, 1.8))


def test_one_prediction_is_continued_from_the_first_step():
    """Qwen-2512's table of 10 begins 0, 2: nothing but the velocity of step 0 is there to continue."""
    assert euler({0, 2}, 3)[0][1] == 3.0
