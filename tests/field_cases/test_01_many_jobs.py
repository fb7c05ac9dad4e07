"""CASE-01: one MODEL, many jobs, some of them cancelled.

Users saw pictures change from one queue press to the next, and broken ones after a cancelled job: the cache of the last
run was still there.
"""

import pytest
import torch

from ..caching import normally_cached
from ..sampling import MIDDLE, count_block_runs, run
from ..tiny_models import build


def test_every_job_is_like_the_first(tiny, method):
    model = normally_cached(tiny, method).patcher
    jobs = [job(model, tiny) for _ in range(3)]
    run(model, tiny, steps=7, seed=2)
    jobs.append(job(model, tiny))
    cancel(model, tiny, at=3, latent=tiny.latent.repeat_interleave(2, -1))
    cancel(model, tiny, at=4, latent=tiny.latent)
    jobs.append(job(model, tiny))
    fresh = build(tiny.name)
    jobs.append(job(normally_cached(fresh, method).patcher, fresh))

    first, runs = jobs[0]
    assert 1 < runs < 10
    assert all(torch.equal(out, first) and count == runs for out, count in jobs)


def job(model, tiny):
    with count_block_runs(model, MIDDLE) as runs:
        out = run(model, tiny, steps=10, seed=1)
    return out, runs.count


def cancel(model, tiny, at, latent):
    error = RuntimeError("cancelled")

    def callback(step, x0, x, total):
        if step == at:
            raise error

    with pytest.raises(RuntimeError) as caught:
        run(model, tiny, steps=10, latent=latent, callback=callback)
    assert caught.value is error
