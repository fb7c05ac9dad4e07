"""The figures are those of the run: chosen again when it starts."""

import pytest
import torch

from stepcache.nodes.threshold_nodes import TeaCache

from ..model_patches.real_configs import FLUX, WAN
from ..sampling import run
from ..tiny_models import build


def cached(tiny, unet_config):
    """A tiny model that looks like a shipped one to what reads its configuration, with TeaCache as recommended."""
    tiny.patcher.model.model_config.unet_config = unet_config
    settings = dict(threshold=-1.0, start_percent=0.0, end_percent=1.0, max_consecutive=0, cache_device="auto")
    return TeaCache.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, **settings).result[0]


def test_reference_latents_make_kontext_of_dev(reports):
    tiny = build("flux_dev")
    model = cached(tiny, FLUX)
    text, values = tiny.positive[0]
    run(model, tiny, steps=12)
    run(model, tiny, steps=12, positive=[[text, values | {"reference_latents": [torch.zeros_like(tiny.latent)]}]])
    assert [report.settings["figures"] for report in reports] == ["FLUX.1-dev", "FLUX.1-Kontext"]
    assert [report.settings["threshold"] for report in reports] == [0.25, 0.22]


def test_a_part_of_the_sigmas_is_an_expert_and_counts_as_part_of_all_steps(reports):
    tiny = build("wan_t2v")
    model = cached(tiny, WAN)
    for cut in ({}, {"last": 10}, {"start": 10}):
        run(model, tiny, steps=20, **cut)
    assert [report.settings["figures"] for report in reports] == ["Wan2.1 T2V 14B", "general rule", "general rule"]
    assert not any("few" in message for report in reports for message in report.messages)


@pytest.mark.parametrize(("limits", "refused"), [({"last": 4}, True), ({}, True), ({"denoise": 0.5}, False)])
def test_few_steps_are_those_of_the_whole_schedule(reports, limits, refused):
    tiny = build("flux_dev")
    run(cached(tiny, FLUX), tiny, steps=8, **limits)
    assert any(message.startswith("8 steps are few") for message in reports[0].messages) is refused
