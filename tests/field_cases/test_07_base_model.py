"""CASE-07: the base model stays as it is.

Users saw the uncached branch of a workflow sped up and blurred too, even after the node was removed: the pack had replaced
functions of the model, or of ComfyUI. (That importing changes nothing is tested in test_import_rules.py.)
"""

import pytest
import torch

from stepcache.nodes.threshold_nodes import THRESHOLD_NODES

from ..caching import normally_cached
from ..sampling import MIDDLE, count_block_runs, run
from ..tiny_models import blocks_of


def test_the_base_model_samples_as_before(tiny, method):
    before, state = run(tiny.patcher, tiny), functions(tiny.patcher)
    run(normally_cached(tiny, method).patcher, tiny)
    assert functions(tiny.patcher) == state
    with count_block_runs(tiny.patcher, MIDDLE) as runs:
        assert torch.equal(run(tiny.patcher, tiny), before)
    assert runs.count == 8
    larger = torch.zeros(*tiny.latent.shape[:-2], 24, 16)
    assert torch.isfinite(run(tiny.patcher, tiny, latent=larger)).all()


@pytest.mark.parametrize("node", THRESHOLD_NODES)
def test_threshold_zero_returns_the_model_itself(tiny, node):
    settings = dict(start_percent=0.0, end_percent=1.0, max_consecutive=0, cache_device="auto")
    assert node.execute(tiny.patcher, threshold=0.0, **settings).result[0] is tiny.patcher


def functions(patcher):
    model = patcher.model.diffusion_model
    return set(vars(model)), model.forward.__func__, [block.forward.__func__ for block in blocks_of(patcher)]
