"""Unlisted models together with what other nodes do to a run."""

import threading

import comfy.hooks
import comfy.model_sampling
import comfy.patcher_extension
import comfy.samplers
import pytest
import torch
from comfy_extras.nodes_context_windows import ContextWindowsManualNode
from comfy_extras.nodes_slg import SkipLayerGuidanceDiT

from stepcache.model_patches.install import apply_cache

from .. import odd_models
from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, cached
from ..leftovers import only_new_objects, state_objects  # noqa: F401
from ..odd_models import Plain, odd
from ..sampling import run
from ..tiny_models import conditioning, drawer
from .test_fallback import BLOCKS, OUTPUT, assert_exact, level, twice, unlisted

every_method = pytest.mark.parametrize("method", METHODS)
KINDS = {BLOCKS: Plain, OUTPUT: odd_models.OutOfOrder}
both_levels = pytest.mark.parametrize("chosen", KINDS)


def assert_never_wrong(patcher, tiny, method, **settings):
    exact = cached(patcher, method, IMPOSSIBLE)
    assert torch.equal(run(exact.patcher, tiny, steps=5, **settings), run(patcher, tiny, steps=5, **settings))
    report, difference = twice(patcher, tiny, method, **settings)
    assert difference <= 1e-5
    return report


@every_method
@pytest.mark.parametrize("schedule", ["standard_static", "standard_uniform"])
def test_context_windows(method, schedule):
    tiny = unlisted("wan_t2v")
    patcher = ContextWindowsManualNode.execute(
        tiny.patcher, context_length=4, context_overlap=2, context_schedule=schedule, context_stride=2,
        closed_loop=False, fuse_method="pyramid", dim=2, freenoise=False,
    ).result[0]  # fmt: skip
    latent = torch.zeros(1, 16, 9, 8, 8)
    report = assert_never_wrong(patcher, tiny, method, latent=latent, cfg=4.0)
    assert level(report) == BLOCKS and report.reused >= 1


@every_method
@pytest.mark.parametrize("blocks", [3, 6])
@pytest.mark.parametrize("skipped", ["0", "2", "5"])
def test_skip_layer_guidance(method, blocks, skipped):
    """The perturbed call has the same conditioning and sigma as the plain one, and a block that does not run."""
    tiny = unlisted("flux_dev", depth_single_blocks=blocks)
    patcher = SkipLayerGuidanceDiT.execute(
        tiny.patcher, scale=3.0, start_percent=0.0, end_percent=1.0, double_layers="", single_layers=skipped
    ).result[0]
    report = assert_never_wrong(patcher, tiny, method, cfg=4.0)
    assert level(report) == (BLOCKS if blocks > 3 else OUTPUT)


@every_method
@both_levels
def test_a_lora_that_begins_half_way(method, chosen):
    tiny = odd(KINDS[chosen])
    draw, layer = drawer(9), "diffusion_model.layers.2.inside"
    weights = {f"{layer}.lora_up.weight": draw(32, 2), f"{layer}.lora_down.weight": draw(2, 16)}
    hooks = comfy.hooks.create_hook_lora(weights, 1.0, 0.0)
    keyframes = comfy.hooks.HookKeyframeGroup()
    for strength, start in ((0.0, 0.0), (0.5, 0.5)):
        keyframes.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=1))
    hooks.set_keyframes_on_hooks(keyframes)
    tiny.patcher.register_all_hook_patches(hooks, comfy.hooks.create_target_dict(comfy.hooks.EnumWeightTarget.Model))
    hooked = dict(positive=conditioning(tiny.name, 11, hooks=hooks))
    assert level(assert_never_wrong(tiny.patcher, tiny, method, **hooked)) == chosen
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    run(permissive.patcher, tiny, steps=10, **hooked)
    assert "computed" in [evaluation.action for evaluation in permissive.report.trace[4:8]]


@every_method
@both_levels
def test_sigmas_that_rise(method, chosen):
    tiny = odd(KINDS[chosen])
    sigmas = [1.0, 0.8, 0.6, 0.9, 0.7, 0.5, 0.3, 0.0]
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, sigmas=sigmas)).all()
    assert permissive.report.trace[3].action == "computed"
    assert permissive.report.reused >= 2
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    assert torch.equal(run(exact.patcher, tiny, sigmas=sigmas), run(tiny.patcher, tiny, sigmas=sigmas))


@every_method
@both_levels
@pytest.mark.parametrize("sampler", ["heun", "dpm_2_ancestral", "uni_pc", "lcm", "dpm_adaptive", "dpmpp_3m_sde"])
def test_samplers(method, chosen, sampler):
    tiny, results = odd(KINDS[chosen]), []
    for model in (tiny.patcher, cached(tiny.patcher, method, IMPOSSIBLE).patcher):
        torch.manual_seed(3)
        results.append(run(model, tiny, steps=6, sampler=sampler))
    assert torch.equal(*results)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, steps=6, sampler=sampler)).all()
    assert level(permissive.report) == chosen


@every_method
@both_levels
def test_two_samplers_on_one_model_and_a_second_run(method, chosen):
    """Every run watches anew: nothing is kept on the model."""
    tiny = odd(KINDS[chosen])
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    first = run(permissive.patcher, tiny, steps=6)
    run(permissive.patcher, tiny, steps=6, sampler="heun", latent=torch.zeros(1, 16, 4, 12))
    assert torch.equal(run(permissive.patcher, tiny, steps=6), first)
    assert [level(report) for report in permissive.reports] == [chosen] * 3
    assert state_objects() == []


@every_method
@both_levels
def test_kept_in_main_memory(method, chosen):
    tiny, reports = odd(KINDS[chosen]), []
    auto = cached(tiny.patcher, method, PERMISSIVE)
    other = apply_cache(tiny.patcher, METHODS[method](PERMISSIVE), reports.append, cache_device="cpu")
    assert torch.equal(run(other, tiny, steps=6), run(auto.patcher, tiny, steps=6))
    assert reports[-1].reused == auto.report.reused >= 3


@both_levels
def test_threads(chosen):
    tinies = [odd(KINDS[chosen]) for _ in range(4)]
    models = [cached(tiny.patcher, "teacache", PERMISSIVE) for tiny in tinies]
    noise = drawer(3)(*tinies[0].latent.shape)  # ComfyUI's own comes from one generator for all threads
    expected = run(models[0].patcher, tinies[0], steps=6, noise=noise)
    results = {}

    def sample(index):
        results[index] = run(models[index].patcher, tinies[index], steps=6, noise=noise)

    threads = [threading.Thread(target=sample, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.equal(result, expected) for result in results.values())


@every_method
@both_levels
@pytest.mark.parametrize("what", ["model", "blocks"])
def test_compiled(method, chosen, what):
    tiny = odd(KINDS[chosen])
    base = tiny.patcher.model
    if what == "model":
        base.diffusion_model = torch.compile(base.diffusion_model, backend="eager")
    else:
        layers = base.diffusion_model.layers
        for index, layer in enumerate(layers):
            layers[index] = torch.compile(layer, backend="eager")
    for _ in range(2):  # the second run finds everything compiled
        report = assert_never_wrong(tiny.patcher, tiny, method)
        assert level(report) in (chosen, OUTPUT) and report.reused >= 2
    torch._dynamo.reset()


@both_levels
def test_an_error_of_the_model_reaches_the_user(chosen):
    class Failing(comfy.model_sampling.CONST):
        def calculate_input(self, sigma, noise):
            raise ZeroDivisionError

    tiny = odd(KINDS[chosen])
    sampling = tiny.patcher.model.model_sampling
    sampling.__class__ = type("Failing", (Failing, type(sampling)), {})
    with pytest.raises(ZeroDivisionError):
        run(cached(tiny.patcher, "teacache", PERMISSIVE).patcher, tiny, steps=4)
    assert state_objects() == []


@both_levels
def test_a_model_that_never_asks_calculate_input(chosen):
    """Its own `_apply_model` may do without."""
    tiny = odd(KINDS[chosen])
    base = tiny.patcher.model

    def apply(self, x, t, c_concat=None, c_crossattn=None, *args, **kwargs):
        return x - t.view(-1, 1, 1, 1) * self.diffusion_model(x, t, context=c_crossattn)

    def unavailable(self, sigma, noise):
        raise NotImplementedError

    base.__class__ = type("OwnApply", (type(base),), {"_apply_model": apply})
    base.model_sampling.__class__ = type("Own", (type(base.model_sampling),), {"calculate_input": unavailable})
    assert assert_exact(tiny, "teacache") == chosen
