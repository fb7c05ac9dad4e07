"""Models made of two experts, one for high and one for low noise: each has its own stored results and its own start.

Wan 2.2 A14B is used in two ways: two samplers, each with its expert and its part of the schedule, or one guider that
changes the model on the way.
"""

import comfy.samplers
import pytest
import torch

from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, cached
from ..sampling import count_block_runs, run
from ..tiny_models import build, drawer, shared

STEPS, CHANGE = 10, 4  # the fifth evaluation is the low-noise expert's first

every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture
def experts():
    return shared("wan22_i2v"), build("wan22_i2v", seed=1)


class ExpertGuider(comfy.samplers.CFGGuider):
    """Calls one model above a sigma and another below, in one run."""

    def __init__(self, high, low, change):
        super().__init__(high)
        self.low, self.change = low, change
        self.set_cfg(3.0)

    def outer_sample(self, *args, **kwargs):
        self.low.pre_run()
        try:
            return super().outer_sample(*args, **kwargs)
        finally:
            self.low.cleanup()

    def predict_noise(self, x, timestep, model_options=None, seed=None):
        model = self.inner_model if float(timestep[0]) > self.change else self.low.model
        positive, negative = self.conds["positive"], self.conds["negative"]
        return comfy.samplers.sampling_function(
            model, x, timestep, negative, positive, self.cfg, model_options=model_options, seed=seed
        )


def in_one_run(high, low, tiny):
    sigmas = comfy.samplers.calculate_sigmas(high.get_model_object("model_sampling"), "simple", STEPS)
    guider = ExpertGuider(high, low, change=float(sigmas[CHANGE - 1 : CHANGE + 1].mean()))
    guider.set_conds(tiny.positive, tiny.negative)
    noise = drawer(3)(*tiny.latent.shape)
    return guider.sample(noise, tiny.latent, comfy.samplers.sampler_object("euler"), sigmas, disable_pbar=True, seed=1)


@every_method
def test_nothing_crosses_within_one_run(experts, method):
    high, low = experts
    exact = cached(high.patcher, method, IMPOSSIBLE)
    assert torch.equal(in_one_run(exact.patcher, low.patcher, high), in_one_run(high.patcher, low.patcher, high))
    permissive = cached(high.patcher, method, PERMISSIVE)
    with count_block_runs(high.patcher) as of_high, count_block_runs(low.patcher) as of_low:
        assert torch.isfinite(in_one_run(permissive.patcher, low.patcher, high)).all()
    assert (of_high.count, of_low.count) == (1, 2)  # the run's last evaluation is the low-noise expert's
    actions = [evaluation.action for evaluation in permissive.report.trace]
    computed = [index for index, action in enumerate(actions) if action == "computed"]
    assert computed == [0, CHANGE, STEPS - 1]
    assert permissive.report.trace[CHANGE].reason == "nothing stored for this branch yet"


@every_method
def test_each_sampler_starts_anew(experts, method):
    """The second sampler's run is the same as if it were the only one."""
    high, low = experts
    first, second = cached(high.patcher, method, PERMISSIVE), cached(low.patcher, method, PERMISSIVE)

    def low_noise(latent):
        return run(second.patcher, low, steps=STEPS, cfg=3.0, start=CHANGE, last=STEPS, latent=latent, no_noise=True)

    between = run(first.patcher, high, steps=STEPS, cfg=3.0, last=CHANGE)
    after_the_first = low_noise(between)
    assert [evaluation.action for evaluation in first.report.trace] == ["computed", "reused", "reused", "computed"]
    assert [evaluation.action for evaluation in second.report.trace] == ["computed", *["reused"] * 4, "computed"]
    assert torch.equal(low_noise(between), after_the_first)
