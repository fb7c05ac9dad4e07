"""CASE-05: a model whose input is wider than its output (fill, image to video).

Users saw size errors at the first reused step: the stored difference had been taken between input and output channels.
"""

import pytest
import torch

from ..caching import cached, normal, relative
from ..sampling import MIDDLE, count_block_runs, run
from ..tiny_models import build, conditioning, drawer, shared


def flux_fill():
    tiny = build("flux_dev", in_channels=32)
    return tiny, lambda image: {"concat_latent_image": drawer(image)(1, 16, 8, 8)}


def wan_i2v():
    return shared("wan_i2v"), lambda image: {"concat_latent_image": drawer(image)(1, 16, 2, 8, 8)}


@pytest.mark.parametrize(("model", "narrow"), [(flux_fill, "flux_dev"), (wan_i2v, "wan_t2v")])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_extra_channels_count(model, narrow, batch, method):
    tiny, image = model()
    threshold = normal(narrow, method)
    wide = cached(tiny.patcher, method, threshold)

    def sample(patcher, seed):
        conds = {
            "positive": conditioning(tiny.name, 11, **image(seed)),
            "negative": conditioning(tiny.name, 12, **image(seed)),
        }
        return run(patcher, tiny, steps=10, cfg=4.0, batch=batch, **conds)

    with count_block_runs(tiny.patcher, MIDDLE) as runs:
        out = sample(wide.patcher, seed=5)
    assert out.shape == (batch, *tiny.latent.shape[1:]) and torch.isfinite(out).all()
    assert runs.count < 10
    assert not torch.allclose(out, sample(wide.patcher, seed=6), atol=1e-2)
    assert relative(out, sample(tiny.patcher, seed=5)) <= 1.5 * usual_deviation(narrow, method, threshold) + 0.05


def usual_deviation(name, method, threshold):
    tiny = shared(name)
    model = cached(tiny.patcher, method, threshold)
    return relative(run(model.patcher, tiny, steps=10, cfg=4.0), run(tiny.patcher, tiny, steps=10, cfg=4.0))
