"""CASE-02: size, step count and denoise change between samplers that share a MODEL.

Users saw tensor size errors at the second sampler, or had to type the step count into the node by hand.
"""

import torch

from ..caching import normally_cached
from ..sampling import run
from ..tiny_models import build

JOBS = [
    (dict(steps=8), (16, 16)),
    (dict(steps=8), (24, 16)),
    (dict(steps=6, denoise=0.5), (32, 24)),
    (dict(steps=8), (16, 16)),
]


def test_jobs_do_not_affect_each_other(tiny, method):
    shared = normally_cached(tiny, method)
    for settings, size in JOBS * 2:
        latent = sized(tiny, size)
        out = run(shared.patcher, tiny, latent=latent, **settings)
        if settings["steps"] >= 8:
            assert shared.report.reused > 0
        fresh = build(tiny.name)
        assert torch.equal(out, run(normally_cached(fresh, method).patcher, fresh, latent=latent, **settings))


def sized(tiny, size):
    return torch.zeros(*tiny.latent.shape[:-2], *size)
