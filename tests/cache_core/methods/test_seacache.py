"""EX-S3: what the filter makes of changes, and that it is applied at every evaluation."""

import pytest
import torch

from stepcache.cache_core.distances import relative_l1
from stepcache.cache_core.methods import seacache
from stepcache.cache_core.probes import SpectralInput
from stepcache.cache_core.spectral import separable_gain

from ..driving import run_of, steps_of

RAMP = torch.tensor([[1.0 + i + j for j in range(4)] for i in range(4)], dtype=torch.float64)
CHECKER = torch.tensor([[(i + j) % 2 * 2.0 - 1 for j in range(4)] for i in range(4)], dtype=torch.float64)


class View:
    """A 4 x 4 picture with one channel at a = 1 - b."""

    def __init__(self, picture, a, grid=(4, 4)):
        self.picture, self.a, self.known = picture, a, grid

    def modulated_input(self):
        return self.picture.reshape(1, 16, 1)

    def signal_and_noise(self):
        return torch.tensor(self.a), torch.tensor(1 - self.a)

    def grid(self, tokens):
        return self.known


def change(current, previous):
    return relative_l1(SpectralInput(2.0).signal(current), SpectralInput(2.0).signal(previous)).item()


def test_fine_detail_counts_little_under_noise_and_size_counts_in_full():
    finer, larger = RAMP + 0.3 * CHECKER, 1.08 * RAMP
    assert relative_l1(finer.view(1, 16, 1), RAMP.view(1, 16, 1)).item() == pytest.approx(0.075, rel=1e-5)
    assert change(View(finer, 0.2), View(RAMP, 0.2)) == pytest.approx(0.003, rel=1e-3)
    assert change(View(larger, 0.2), View(RAMP, 0.2)) == pytest.approx(0.08, rel=1e-5)


def test_each_step_has_its_own_filter():
    assert change(View(RAMP + 0.3 * CHECKER, 0.25), View(RAMP, 0.2)) == pytest.approx(0.277197, rel=1e-5)
    assert change(View(RAMP, 0.25), View(RAMP, 0.2)) == pytest.approx(0.277197, rel=1e-5)


def test_a_forced_evaluation_is_filtered_too():
    """The published scripts keep the unfiltered signal there: the next change is 1.389432 and the next step computed."""
    unfiltered = relative_l1(SpectralInput(2.0).signal(View(RAMP, 0.25)), RAMP.view(1, 16, 1)).item()
    assert unfiltered == pytest.approx(1.389432, rel=1e-5)
    method = seacache(0.5, 2.0, warmup=2)
    policy, (first, second, third, *_) = method.new_policy(), steps_of(run_of(9))
    policy.begin(run_of(9), 0)
    for step, a in ((first, 0.2), (second, 0.2)):
        policy.observe(method.probe.signal(View(RAMP, a)))
        assert not policy.decide(step, 0.0).reuse
        policy.computed(step, ())
    score = policy.observe(method.probe.signal(View(RAMP, 0.25))).item()
    assert score == pytest.approx(0.277197, rel=1e-5) and policy.decide(third, score).reuse


def test_tokens_that_lie_in_no_grid_are_compared_as_they_are():
    view = View(RAMP, 0.2, grid=None)
    assert torch.equal(SpectralInput().signal(view), view.modulated_input())


def test_pictures_and_videos_have_their_own_spectra():
    signal = SpectralInput().signal(View(RAMP, 0.2, (2, 2, 4)))
    assert torch.equal(signal, SpectralInput(3.0).signal(View(RAMP, 0.2, (2, 2, 4))))
    assert torch.equal(SpectralInput().signal(View(RAMP, 0.2)), SpectralInput(2.0).signal(View(RAMP, 0.2)))


def test_at_the_very_start_nothing_is_infinite():
    assert separable_gain((4, 4), torch.tensor(0.0), torch.tensor(1.0), 2.0).isfinite().all()
    assert SpectralInput().signal(View(RAMP, 0.0)).isfinite().all()
