"""CASE-04: batches.

Users saw all pictures of a batch take on the features of one of them, or size errors when the batch size changed.
"""

import pytest
import torch

from ..caching import PERMISSIVE, cached, normally_cached, relative
from ..sampling import run
from ..tiny_models import drawer


def test_rows_of_the_same_noise_are_equal(tiny, method):
    noise = drawer(3)(*tiny.latent.shape)
    model = normally_cached(tiny, method).patcher
    single = run(model, tiny, cfg=4.0, noise=noise)
    pair = run(model, tiny, cfg=4.0, noise=torch.cat([noise, noise]), batch=2)
    assert (pair[0] - pair[1]).abs().max() < 1e-4
    assert (pair[:1] - single).abs().max() < 1e-4


@pytest.mark.parametrize("cfg", [1.0, 4.0])
def test_permissive_rows_are_like_single_runs(tiny, method, cfg):
    noise = drawer(3)(3, *tiny.latent.shape[1:])
    model = cached(tiny.patcher, method, PERMISSIVE).patcher
    rows = run(model, tiny, cfg=cfg, noise=noise, batch=3)
    for row, row_noise in zip(rows.split(1), noise.split(1), strict=True):
        assert (row - run(model, tiny, cfg=cfg, noise=row_noise)).abs().max() < 1e-4


def test_rows_deviate_no_more_than_single_runs(tiny, method):
    noise = drawer(3)(3, *tiny.latent.shape[1:])
    model = normally_cached(tiny, method).patcher
    rows = run(model, tiny, cfg=4.0, noise=noise, batch=3)
    assert rows.shape == (3, *tiny.latent.shape[1:]) and torch.isfinite(rows).all()
    exact = run(tiny.patcher, tiny, cfg=4.0, noise=noise, batch=3)
    for row, exact_row, row_noise in zip(rows.split(1), exact.split(1), noise.split(1), strict=True):
        single = relative(run(model, tiny, cfg=4.0, noise=row_noise), exact_row)
        assert relative(row, exact_row) <= 1.5 * single + 0.02
