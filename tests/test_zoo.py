"""The tiny models are fit for testing: real, deterministic, and every block matters."""

import pytest
import torch

from .sampling import count_block_runs, flat, run
from .tiny_models import RECIPES, blocks_of, build, shared


@pytest.mark.parametrize("name", RECIPES)
def test_sampling_is_repeatable_and_finite(name):
    tiny = shared(name)
    with count_block_runs(tiny.patcher) as runs:
        out = run(tiny.patcher, tiny, steps=10, cfg=4.0)
    assert runs.count in (10, 20)
    assert out.shape == flat(tiny.latent).shape and torch.isfinite(out).all()
    noise = max(1.0, float(tiny.patcher.get_model_object("model_sampling").sigma_max))  # what sampling starts from
    assert 0.01 < out.std() < 100 * noise
    again = build(name)
    assert torch.equal(out, run(again.patcher, again, steps=10, cfg=4.0))


@pytest.mark.parametrize("name", RECIPES)
def test_the_output_depends_on_every_block_and_on_the_conditioning(name):
    tiny = build(name)
    assert len(blocks_of(tiny.patcher)) >= 4
    out = run(tiny.patcher, tiny, steps=2)
    assert not torch.allclose(out, run(tiny.patcher, tiny, steps=2, positive=tiny.negative), atol=1e-3)
    for block in blocks_of(tiny.patcher):
        handle = block.register_forward_hook(lambda module, args, output: shuffled(output))
        changed = run(tiny.patcher, tiny, steps=2)
        handle.remove()
        assert not torch.allclose(out, changed, atol=1e-2)


def shuffled(output):
    """The output with its streams disturbed; lengths and key-value caches beside them stay."""
    if isinstance(output, tuple):
        return tuple(shuffled(part) if torch.is_tensor(part) else part for part in output)
    return output.roll(1, -1) if output.is_floating_point() else output
