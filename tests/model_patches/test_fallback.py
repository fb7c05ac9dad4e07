"""Models that nobody listed: reused by blocks where that can be checked, by output otherwise, and never wrongly."""

import comfy.model_base
import comfy.model_management
import comfy.patcher_extension
import comfy.samplers
import pytest
import torch
from comfy.model_base import ModelType

from stepcache.cache_core.methods import teacache
from stepcache.model_patches.architectures import ARCHITECTURES
from stepcache.model_patches.latent import Latent
from stepcache.model_patches.outputs import OutputInterception

from .. import odd_models
from ..caching import IMPOSSIBLE, METHODS, PERMISSIVE, UNCHANGED, cached, cached_by
from ..control import with_control
from ..leftovers import fingerprint, only_new_objects, state_objects, with_input_watch  # noqa: F401
from ..odd_models import CHANGEABLE, FOUND, NOT_SKIPPED, Plain, odd
from ..sampling import evaluate_twice, run
from ..tiny_models import RECIPES, TinyModel, build, build_unet, conditioning, rename, shared

BLOCKS, OUTPUT = "were found by watching it", "whole outputs are reused"

BY_OUTPUT = {
    # too few blocks of a kind
    "flux_dev", "flux_schnell", "flux2", "flux2_edit", "flux2_timestep_zero", "chroma", "flux_kontext", "flux_fill",
    "longcat_image", "ovis_image", "chroma_radiance", "hunyuan_video", "hunyuan_video_i2v", "hunyuan_image_21",
    "hunyuan3d_2", "aura_flow", "hidream", "hidream_e1", "boogu", "boogu_edit", "hidream_o1", "hidream_o1_edit",
    "sd3",  # its last block is another
    "ltx_av", "ltx_av_23", "minimax_h3", "seedvr2",  # streams that are packed or in pairs
}  # fmt: skip
"""The recipes of which whole outputs are reused when their class is unknown. Of the others it is blocks."""

ONE_OF_A_CLASS = {recipe.network: name for name, recipe in RECIPES.items()}.values()
ZOO = [(name, "teacache") for name in RECIPES] + [(name, "first_block") for name in ONE_OF_A_CLASS]

every_method = pytest.mark.parametrize("method", METHODS)


def unlisted(name, **unet):
    tiny = build(name, **unet)
    rename(tiny.patcher.model.diffusion_model, "Unheard")
    return tiny


def level(report):
    """Which of the two is used, as the one message about it says."""
    (said,) = [what for message in report.messages for what in (BLOCKS, OUTPUT) if what in message] or (None,)
    return said


def twice(patcher, tiny, method, steps=4, **settings):
    """The report of a run that evaluates each sigma twice on one x, and the largest relative difference of the two."""
    pairs = []
    model = cached(patcher, method, UNCHANGED)
    sampler = comfy.samplers.KSAMPLER(evaluate_twice, {"pairs": pairs})
    run(model.patcher, tiny, steps=steps, sampler=sampler, **settings)
    differences = [float((second - first).abs().max() / first.abs().max()) for first, second in pairs]
    return model.report, max(differences)


def assert_exact(tiny, method, tolerance=1e-6, reused=2, **settings):
    """Nothing reused is bit-identical, and a repeat on the same input is reused exactly. Returns what was chosen."""
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    plain = run(tiny.patcher, tiny, steps=3, **settings)
    assert torch.equal(run(exact.patcher, tiny, steps=3, **settings), plain)
    assert (exact.report.evaluations, exact.report.computed) == (3, 3)
    report, difference = twice(tiny.patcher, tiny, method, **settings)
    assert difference <= tolerance
    assert report.reused >= reused
    assert len(report.messages) == 1 and report.messages == exact.report.messages
    return level(report)


# -- the zoo under another name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), ZOO)
def test_a_renamed_model(name, method):
    tiny = unlisted(name)
    run(tiny.patcher, tiny, steps=1)  # ComfyUI notes on the layers that it has loaded them
    before = fingerprint(tiny.patcher)
    pixels = name in ("pixeldit", "pid")  # their random pixel blocks amplify the last digit
    chosen = assert_exact(tiny, method, 5e-6 if pixels else 1e-6, reused=1 if pixels else 2, cfg=4.0)
    assert chosen == (OUTPUT if name in BY_OUTPUT else BLOCKS)
    watching, written = with_input_watch(tiny.patcher)
    permissive = cached(watching, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, steps=5, cfg=4.0)).all()
    assert permissive.report.reused >= 1
    assert not any(written)
    assert fingerprint(tiny.patcher) == before
    assert state_objects() == []


@every_method
@pytest.mark.parametrize("name", ["flux_dev", "wan_t2v", "qwen_image"])
def test_calls_apart_and_batches(name, method, monkeypatch):
    tiny = unlisted(name)
    apart = dict(cfg=4.0, negative=conditioning(name, 12, tokens=9))
    assert_exact(tiny, method, **apart)
    assert_exact(tiny, method, batch=3, **apart)
    permissive = cached(tiny.patcher, method, PERMISSIVE)
    batched = run(permissive.patcher, tiny, steps=6, cfg=4.0)
    monkeypatch.setattr(tiny.patcher.model, "memory_required", lambda *args, **kwargs: 1e30)
    split = run(permissive.patcher, tiny, steps=6, cfg=4.0)
    assert permissive.report.reused >= 3
    assert torch.allclose(split, batched, atol=1e-3)


@every_method
@pytest.mark.parametrize(("blocks", "chosen"), [(3, OUTPUT), (6, BLOCKS)])
def test_controlnet(blocks, chosen, method):
    """Flux adds what a ControlNet says between its single-stream blocks."""
    tiny = with_control(unlisted("flux_dev", depth_single_blocks=blocks))
    assert assert_exact(tiny, method, cfg=4.0) == chosen


@every_method
@pytest.mark.parametrize("name", ["qwen_image", "ltxv", "sd3"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name, method, dtype):
    tiny = unlisted(name)
    tiny.patcher.model.manual_cast_dtype = dtype
    tiny.patcher.model.diffusion_model.to(dtype).dtype = dtype
    assert assert_exact(tiny, method, tolerance=2e-2) == (OUTPUT if name in BY_OUTPUT else BLOCKS)


@every_method
def test_the_signal_is_the_picture(method):
    """Qwen-Image returns the text first; judged by that, which never changes, every step would be reused."""
    tiny = unlisted("qwen_image")
    permissive, watched = cached(tiny.patcher, method, PERMISSIVE), cached(tiny.patcher, method, IMPOSSIBLE)
    run(watched.patcher, tiny, steps=6)
    assert min(evaluation.signal for evaluation in watched.report.trace[2:]) > 1e-3
    run(permissive.patcher, tiny, steps=6)
    assert [evaluation.action[0] for evaluation in permissive.report.trace] == list("ccrrrc")


# -- U-Nets and whole outputs -----------------------------------------------------------------------------------------


@pytest.fixture
def unet():
    patcher = build_unet()
    text = torch.randn(1, 7, 32, generator=torch.Generator().manual_seed(1))
    return TinyModel("unet", patcher, torch.zeros(1, 4, 8, 8), [[text, {}]], [[-text, {}]])


@every_method
def test_a_unet(method, unet):
    assert assert_exact(unet, method, cfg=4.0) == OUTPUT
    runs = []
    unet.patcher.model.diffusion_model.out.register_forward_hook(lambda *_: runs.append(1))
    permissive = cached(unet.patcher, method, PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, unet, steps=10, cfg=4.0)).all()
    assert len(runs) == permissive.report.computed == 2  # the first and the last
    assert "UNetModel is a U-Net" in permissive.report.messages[0]


@pytest.mark.parametrize(
    "kind", [ModelType.EPS, ModelType.V_PREDICTION, ModelType.EDM, ModelType.FLOW, ModelType.V_PREDICTION_CONTINUOUS]
)
def test_whole_outputs_under_every_kind_of_prediction(kind):
    tiny = odd(odd_models.OutOfOrder)
    tiny.patcher.model.model_sampling = comfy.model_base.model_sampling(tiny.patcher.model.model_config, kind)
    assert assert_exact(tiny, "teacache", tolerance=1e-5) == OUTPUT  # at sigma 80 the output is a small difference
    permissive = cached(tiny.patcher, "teacache", PERMISSIVE)
    assert torch.isfinite(run(permissive.patcher, tiny, steps=6)).all()
    assert permissive.report.reused == 4


def test_sigma_zero_divides_nothing():
    """A sampler that asks about sigma 0 and then goes on."""

    @torch.no_grad()
    def through_zero(model, x, sigmas, extra_args=None, callback=None, disable=None):
        for sigma in (sigmas[0], sigmas[1], sigmas[1] * 0, sigmas[2], sigmas[3]):
            x = model(x, sigma * x.new_ones(x.shape[0]), **extra_args)
            assert torch.isfinite(x).all()
        return x

    tiny = odd(odd_models.OutOfOrder)
    for threshold in (IMPOSSIBLE, PERMISSIVE):
        model = cached(tiny.patcher, "teacache", threshold)
        run(model.patcher, tiny, steps=6, sampler=comfy.samplers.KSAMPLER(through_zero))


@pytest.mark.parametrize("output", [lambda x: x[..., :4], lambda x: [x], lambda x: None])
def test_an_output_that_is_no_latent_is_only_computed(output):
    """At the seam itself: ComfyUI's own samplers would not take it either."""
    asked = []

    class Call:
        step = type("Step", (), {"sigma": 1.0})
        decide = staticmethod(lambda *args, **kwargs: False)
        computed_unseen = staticmethod(lambda: asked.append("unseen"))

    base = odd(Plain).patcher.model
    x, t = torch.ones(1, 16, 8, 8), torch.ones(1)
    OutputInterception(METHODS["teacache"](1.0)).run(Call(), Latent(base, x, t), lambda: output(x))
    assert asked == ["unseen"]


# -- models that do not do as expected --------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("kind", FOUND)
def test_blocks_that_can_be_skipped(kind, method):
    reused = 1 if kind is odd_models.TextFirst else 2  # it takes one evaluation more to see which stream is the picture
    assert assert_exact(odd(kind), method, reused=reused, cfg=4.0) == BLOCKS


@every_method
@pytest.mark.parametrize("kind", NOT_SKIPPED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_that_must_not_be_skipped(kind, method, dtype):
    tiny = odd(kind, dtype=dtype)
    tiny.patcher.model.manual_cast_dtype = dtype
    chosen = assert_exact(tiny, method, 1e-6 if dtype == torch.float32 else 2e-2, cfg=4.0)
    assert chosen == OUTPUT


@every_method
@pytest.mark.parametrize("kind", CHANGEABLE)
def test_a_model_that_changes_from_call_to_call_is_not_disturbed(kind, method):
    results = []
    for patcher in (lambda it: it, lambda it: cached(it, method, IMPOSSIBLE).patcher):
        tiny = odd(kind)
        torch.manual_seed(3)
        results.append(run(patcher(tiny.patcher), tiny, steps=5, sampler="euler_ancestral"))
    assert torch.equal(*results)


@every_method
@pytest.mark.parametrize("when", [1, 2, 3], ids=["watched", "checked", "in the trial"])
@pytest.mark.parametrize("error", [comfy.model_management.InterruptProcessingException, ValueError])
def test_an_exception_leaves_nothing_behind(method, when, error):
    """The third run of the exit layer is that of the trial, where only the Cancel button ends the sampling."""
    tiny = odd(Plain)
    network, runs = tiny.patcher.model.diffusion_model, []
    run(tiny.patcher, tiny, steps=1)  # ComfyUI notes on the layers that it has loaded them
    before = fingerprint(tiny.patcher)

    def stop(*_):
        runs.append(1)
        if len(runs) == when:
            raise error

    handle = network.exit.register_forward_pre_hook(stop)
    model = cached(tiny.patcher, method, PERMISSIVE)
    if when == 3 and error is ValueError:
        run(model.patcher, tiny, steps=6)
        assert level(model.report) == OUTPUT
    else:
        with pytest.raises(error):
            run(model.patcher, tiny, steps=6)
    handle.remove()
    assert fingerprint(tiny.patcher) == before
    assert state_objects() == []
    assert assert_exact(tiny, method) == BLOCKS


# -- listed names that do not fit -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_listed_name_of_somebody_elses_class(name):
    assert assert_exact(odd(type(name, (Plain,), {})), "teacache") == BLOCKS


@every_method
def test_a_listed_name_whose_blocks_fit_but_must_not_be_skipped(method):
    """Under the entry for Wan, what it collects of its blocks would be lost."""

    class WanModel(odd_models.Collecting):
        def __init__(self):
            super().__init__()
            self.blocks = self.layers

    assert assert_exact(odd(WanModel), method) == OUTPUT


@every_method
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_listed_class_that_comfyui_rewrote(name, method):
    """If the entry happens to fit it is used, without a message; where it does not, nothing is raised."""
    assert_exact_at_some_level(odd(type(name, (Plain,), {"__module__": "comfy.ldm.rewritten"})), method)


def assert_exact_at_some_level(tiny, method):
    exact = cached(tiny.patcher, method, IMPOSSIBLE)
    plain = run(tiny.patcher, tiny, steps=4)
    assert torch.equal(run(exact.patcher, tiny, steps=4), plain)
    assert level(exact.report) == BLOCKS or not exact.report.messages
    report, difference = twice(tiny.patcher, tiny, method)
    assert difference <= 1e-6 and report.reused >= 2


class LikeWan(Plain):
    def __init__(self):
        super().__init__()
        self.blocks, self.time_embedding = self.layers, self.time
        del self.layers

    def run(self, x, text, emb):
        for block in self.blocks:
            x = block(x, emb)
        return x


def of_comfyui(name, kind, **changed):
    """A class of that name among ComfyUI's own models."""
    return type(name, (kind,), {"__module__": "comfy.ldm.wan.model", **changed})


class RenamedArgumentBlock(odd_models.Block):
    def forward(self, latents, emb):
        return super().forward(latents, emb)


@every_method
@pytest.mark.parametrize("block", [odd_models.Block, RenamedArgumentBlock])
def test_a_listed_class_whose_blocks_were_changed(method, block):
    """Wan's blocks take `x` and `e`; to lack the first is seen before the run, to lack the second during it."""
    assert_exact_at_some_level(odd(of_comfyui("WanModel", LikeWan, block=block)), method)


class NoTimeEmbedding(LikeWan):
    def __init__(self):
        super().__init__()
        del self.time_embedding


@pytest.mark.parametrize(
    ("name", "kind"),
    [("WanModel", NoTimeEmbedding), *((name, LikeWan) for name in ("VaceWanModel", "AnimateWanModel", "WanModel_S2V"))],
)
def test_a_listed_class_whose_other_parts_were_moved(name, kind):
    """What is tapped or idle beside the blocks: its place is only asked for when a run has begun."""
    tiny = odd(of_comfyui(name, kind))
    assert assert_exact(tiny, "teacache") == BLOCKS
    of_the_embedding = cached_by(tiny.patcher, teacache(PERMISSIVE, time_embedding=True))
    assert torch.isfinite(run(of_the_embedding.patcher, tiny, steps=6)).all()


class WanBlock(odd_models.Block):
    modulation, norm1 = torch.zeros(1, 6, 16), torch.nn.Identity()

    def forward(self, x, e):
        return None if x is None else super().forward(x, e[:, :1])


class AsksOnceMore(LikeWan):
    """On its second call it runs block 0 once more, with nothing that an entry could read."""

    block, calls = WanBlock, 0

    def run(self, x, text, emb):
        self.calls += 1
        for index, block in enumerate(self.blocks):
            x = block(x, emb.expand(-1, 6, -1))
            if index == 2 and self.calls == 2:
                self.blocks[0](None, None)
        return x


@every_method
def test_a_misfit_on_a_reused_call_ends_in_computing(method):
    report, difference = twice(odd(of_comfyui("WanModel", AsksOnceMore)).patcher, shared("flux_dev"), method)
    assert difference <= 1e-6
    assert [evaluation.action for evaluation in report.trace[:2]] == ["computed"] * 2
