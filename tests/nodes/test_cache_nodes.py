"""The nodes as workflows see them: inputs, their order and checks, and what they do to the model."""

import json
import math

import pytest
import torch

from devtools.server import AFTER_SAMPLING, CACHE_NODES, PROFILE_NODES, SAMPLER_NODES
from stepcache.cache_core.probes import HeadResidual
from stepcache.cache_core.types import Run
from stepcache.model_patches.variants import table
from stepcache.nodes import NODES, base
from stepcache.nodes.inputs import check_settings
from stepcache.nodes.planned_nodes import PLANNED_NODES, DPCache, MagCache, MeanCache, Spectrum, TaylorSeer
from stepcache.nodes.threshold_nodes import THRESHOLD_NODES, DBCache, EasyCache, SeaCache, TeaCache

from ..model_patches.real_configs import FLUX
from ..sampling import count_block_runs, run
from ..tiny_models import build, build_unet, shared

SHARED = ["start_percent", "end_percent", "max_consecutive", "cache_device", "branches"]
OWN = {
    "StepCacheTeaCache": ["threshold"],
    "StepCacheFirstBlockCache": ["threshold"],
    "StepCacheDBCache": [
        "threshold", "head_blocks", "tail_blocks", "warmup_steps", "max_cached_steps", "predictor", "step_mask",
        "mask_is_static",
    ],
    "StepCacheSeaCache": ["threshold"],
    "StepCacheEasyCache": ["threshold"],
    "StepCacheMagCache": ["threshold", "max_skip_steps", "retention", "profile_file"],
    "StepCacheTaylorSeer": ["interval", "order", "warmup_steps", "basis", "time"],
    "StepCacheMeanCache": ["computed"],
    "StepCacheDPCache": ["computed", "order"],
    "StepCacheSpectrum": ["window_size", "flex_window", "warmup_steps", "degree", "ridge_lambda"],
}  # fmt: skip
LATER = {node.node_id: ["speedup"] for node in THRESHOLD_NODES}
LATER["StepCacheDBCache"] = ["warmup_interval", "max_accumulated", "speedup"]
"""Inputs behind those that all nodes share."""

SMALL = {"StepCacheDBCache": dict(head_blocks=1, warmup_steps=0), "StepCacheEasyCache": {}}
"""Settings that fit tiny models, where the defaults are for large ones."""

every_node = pytest.mark.parametrize("node", THRESHOLD_NODES)
any_node = pytest.mark.parametrize("node", [*THRESHOLD_NODES, *PLANNED_NODES])  # test_compose.py has the last one


def defaults(node):
    return {entry.id: entry.default for entry in node.define_schema().inputs[1:]}


def executed(node, model, **changed):
    """What the node makes of the model when ComfyUI runs it, with nobody connected."""
    prepared = node.PREPARE_CLASS_CLONE(None)
    return prepared.execute(model, **(defaults(node) | SMALL.get(node.node_id, {}) | changed)).result[0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (dict(threshold=math.nan), "threshold is nan.*-1 .*0 "),
        (dict(threshold=math.inf), "threshold is inf.*-1 .*0 "),
        (dict(threshold=-math.inf), "threshold is -inf"),
        (dict(threshold=-0.5), "threshold is -0.5"),
        (dict(speedup=0.5), "speedup is 0.5. Use a number from 1 to 5 .*or 0 "),
        (dict(speedup=5.5), "speedup is 5.5. Use a number from 1 to 5 .*or 0 "),
        (dict(speedup=-1.0), "speedup is -1. Use"),
        (dict(speedup=math.nan), "speedup is nan. Use"),
        (dict(speedup="fast"), "speedup is 'fast'. Use a number"),
        (dict(start_percent=math.nan), "start_percent is nan.*from 0 to 1"),
        (dict(end_percent=1.5), "end_percent is 1.5.*from 0 to 1"),
        (dict(start_percent=0.5, end_percent=0.5), "start_percent .0.5. is not below end_percent .0.5."),
        (dict(start_percent=0.9, end_percent=0.1), "start_percent .0.9. is not below.*Lower.*or raise"),
    ],
)
@every_node
def test_wrong_settings_are_refused_with_the_cure(node, settings, problem):
    settings = {"threshold": -1.0, **settings}
    with pytest.raises(ValueError, match=problem) as raised:
        executed(node, shared("flux_dev").patcher, **settings)
    assert check_settings(**settings) == str(raised.value) == node.validate_inputs(**settings)


@pytest.mark.parametrize("threshold", [None, -1.0, 0.0, 1e-6, 0.25, 10.0])
@every_node
def test_sound_settings_pass(node, threshold):
    assert check_settings(threshold, 0.0, 1.0) is None
    assert node.validate_inputs(threshold=threshold, start_percent=0.2, end_percent=None) is True


@any_node
def test_the_inputs_and_their_order_are_a_contract(node):
    schema = node.define_schema()
    assert [entry.id for entry in schema.inputs] == ["model", *OWN[node.node_id], *SHARED, *LATER.get(node.node_id, [])]
    assert all(entry.tooltip for entry in [*schema.inputs, *schema.outputs])
    assert schema.description and schema.search_aliases


def test_the_node_ids_are_a_contract():
    ids = [node.define_schema().node_id for node in NODES]
    others = (*SAMPLER_NODES, *PROFILE_NODES, *AFTER_SAMPLING)
    assert ids == ["StepCacheAuto", *OWN, "StepCacheCompose", *others] == [*CACHE_NODES, *others]


@any_node
def test_an_old_prompt_without_the_newest_inputs_still_runs(node):
    newest = ("branches", *LATER.get(node.node_id, []))
    old = {name: value for name, value in defaults(node).items() if name not in newest} | SMALL.get(node.node_id, {})
    tiny = shared("flux_dev")
    cached = node.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, **old).result[0]
    assert torch.isfinite(run(cached, tiny, steps=10)).all()


@every_node
def test_threshold_zero_returns_the_very_same_model(node):
    for model in (shared("flux_dev").patcher, build_unet()):
        assert executed(node, model, threshold=0.0) is model


@every_node
def test_the_recommended_threshold_works_and_leaves_the_model_alone(node):
    tiny = shared("flux_dev")
    before = str(tiny.patcher.model_options)
    cached = executed(node, tiny.patcher)
    assert cached is not tiny.patcher and str(tiny.patcher.model_options) == before
    assert torch.isfinite(run(cached, tiny, steps=10)).all()


@every_node
def test_the_limits_reach_the_method(node):
    tiny = shared("flux_dev")
    with count_block_runs(tiny.patcher) as runs:
        run(executed(node, tiny.patcher, threshold=10.0, max_consecutive=1), tiny, steps=9)
    first = 3 if node is EasyCache else 1  # the warm-up of its general rule
    assert runs.count == first + (9 - first) // 2  # then every other one; the last is one of them
    with count_block_runs(tiny.patcher) as runs:
        run(executed(node, tiny.patcher, threshold=10.0, start_percent=0.98, end_percent=0.99), tiny, steps=9)
    assert runs.count == 9


@pytest.mark.parametrize(("threshold", "steps", "untouched"), [(-1.0, 9, True), (10.0, 6, False)])
@every_node
def test_the_recommended_threshold_leaves_runs_of_few_steps_alone(node, threshold, steps, untouched):
    tiny = shared("flux_dev")
    with count_block_runs(tiny.patcher) as runs:
        output = run(executed(node, tiny.patcher, threshold=threshold), tiny, steps=steps)
    assert runs.count == steps or not untouched
    assert torch.equal(output, run(tiny.patcher, tiny, steps=steps)) is untouched


@pytest.mark.parametrize("threshold", [-1.0, 0.05, 10.0])
@every_node
def test_speedup_says_how_many_are_computed(node, threshold, monkeypatch):
    reports = []
    monkeypatch.setattr("stepcache.nodes.base.NodeProgress", lambda _: reports.append)
    tiny = shared("flux_dev")
    for steps, speedup, computed in ((9, 1.8, 5), (20, 2.5, 8)):
        run(executed(node, tiny.patcher, threshold=threshold, speedup=speedup), tiny, steps=steps)
        report = reports[-1]
        assert (report.computed, report.asked, report.messages) == (computed, speedup, plan_messages(node, tiny))
        assert " to " in report.settings["threshold"]


def plan_messages(node, tiny):
    return list(node.plan(tiny.patcher, defaults(node)).messages)


@pytest.mark.parametrize("off", [dict(speedup=1.0), dict(speedup=2.0, threshold=0.0)])
@every_node
def test_speedup_one_computes_everything_and_threshold_zero_is_still_off(node, off):
    patcher = shared("flux_dev").patcher
    assert executed(node, patcher, **off) is patcher


@every_node
def test_without_speedup_a_node_does_what_it_did(node):
    patcher = shared("flux_dev").patcher
    plan = node.plan(patcher, defaults(node))
    assert plan == node.plan(patcher, {name: value for name, value in defaults(node).items() if name != "speedup"})
    assert plan.method.speedup == 0


def test_a_static_mask_and_a_speedup_exclude_each_other():
    with pytest.raises(ValueError, match="static step mask alone decides.*Set speedup to 0, or mask_is_static to off"):
        executed(DBCache, shared("flux_dev").patcher, speedup=2.0, step_mask="fast", mask_is_static=True)


@pytest.mark.parametrize("threshold", [0.5, 1.0, 10.0])
def test_dbcache_looks_at_the_signal_for_a_speedup_whatever_the_threshold(threshold):
    settings = defaults(DBCache) | dict(threshold=threshold, speedup=2.0)
    assert isinstance(DBCache.plan(shared("flux_dev").patcher, settings).method.probe, HeadResidual)


def real(name, unet_config):
    """A tiny model that looks like a shipped one to what reads its configuration."""
    patcher = build(name).patcher
    patcher.model.model_config.unet_config = unet_config
    return patcher


FLUX_FIGURES = {False: ("FLUX.1-dev", 0.25), True: ("FLUX.1-Kontext", 0.22)}


@pytest.mark.parametrize("references", FLUX_FIGURES)
def test_the_plan_follows_the_facts_of_the_run(references):
    name, threshold = FLUX_FIGURES[references]
    plan = TeaCache.plan(real("flux_dev", FLUX), defaults(TeaCache), {"references": references})
    assert plan.settings == {"threshold": threshold, "figures": name} and plan.messages == ()
    assert list(plan.method.policy.coefficients) == published(name)["coefficients"]
    assert (plan.method.min_steps, plan.method.few_step_model) == (10, False)


@pytest.mark.parametrize(("threshold", "refuses"), [(-1.0, True), (0.3, False)])
@every_node
def test_a_model_made_for_few_steps_is_left_alone_unless_told_otherwise(node, threshold, refuses):
    longer, few = (Run(tuple(range(steps, -1, -1)), 1.0, 0.0) for steps in (10, 9))
    usual = node.plan(shared("flux_dev").patcher, defaults(node) | {"threshold": threshold})
    assert usual.method.refusal(longer) is None and bool(usual.method.refusal(few)) is refuses
    plan = node.plan(real("flux_schnell", FLUX | {"guidance_embed": False}), defaults(node) | {"threshold": threshold})
    assert bool(plan.method.refusal(longer)) is refuses
    assert plan.settings["figures"] == "general rule" and plan.messages


def published(name):
    return next(entry for entry in table("teacache")["entries"] if entry["name"] == name)


# -- nodes that plan --------------------------------------------------------------------------------------------------

OFF = [(MagCache, dict(threshold=0.0)), (TaylorSeer, dict(interval=1)), (MeanCache, dict(computed=1.0)),
       (DPCache, dict(computed=1.0))]  # fmt: skip


def dbcache_mask(**changed):
    tiny, reports = shared("flux_dev"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "NodeProgress", lambda _node: reports.append)
        node = next(node for node in THRESHOLD_NODES if node.node_id == "StepCacheDBCache")
        settings = {name: value for name, value in defaults(node).items() if name not in LATER[node.node_id]}
        settings |= dict(head_blocks=1, warmup_steps=6, threshold=0.99) | changed
        model = node.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, **settings).result[0]
        run(model, tiny, steps=12)
    return "".join("01"[not evaluation.reused] for evaluation in reports[-1].trace)


def test_a_prompt_from_before_the_later_inputs_of_dbcache_runs_as_it_did():
    assert dbcache_mask() == dbcache_mask(warmup_interval=1, max_accumulated=0.0)
    assert dbcache_mask(threshold=1.0) == "111111000001"
    assert dbcache_mask(threshold=1.0, warmup_interval=3) == "100100000001"
    assert dbcache_mask(max_accumulated=1e-6) == "111111011111" != dbcache_mask()


def test_a_mask_computes_its_own_steps_at_the_default_warm_up():
    mask = dict(step_mask="ultra", mask_is_static=True)
    assert dbcache_mask(warmup_steps=8, **mask) == dbcache_mask(warmup_steps=0, **mask) == "110100100011"


@pytest.mark.parametrize(
    ("node", "settings", "problem"),
    [
        ("StepCacheDBCache", dict(warmup_interval=0), "warmup_interval is 0. Use a number from 1 to 1000"),
        ("StepCacheDBCache", dict(max_accumulated=-1.0), "max_accumulated is -1. Use a number from 0 to 1000"),
        ("StepCacheDBCache", dict(max_accumulated=math.nan), "max_accumulated is nan. Use"),
        ("StepCacheDBCache", dict(head_blocks=-3), "head_blocks is -3. Use a number from 1 to 200"),
        ("StepCacheTaylorSeer", dict(order=9), "order is 9. Use a number from 0 to 3"),
        ("StepCacheSpectrum", dict(window_size=math.inf), "window_size is inf. Use a number from 1 to 100"),
    ],
)
def test_numbers_from_other_nodes_are_checked_too(node, settings, problem):
    """ComfyUI checks those that were typed."""
    (node,) = (other for other in (*THRESHOLD_NODES, *PLANNED_NODES) if other.node_id == node)
    with pytest.raises(ValueError, match=problem):
        executed(node, shared("flux_dev").patcher, **settings)


SHOWN = [(MagCache, "curve"), (TaylorSeer, "interval"), (MeanCache, "table"), (DPCache, "plan"), (Spectrum, "window")]


@pytest.mark.parametrize(("node", "off"), OFF)
def test_a_planned_node_that_is_off_returns_the_very_same_model(node, off):
    patcher = shared("flux_dev").patcher
    assert executed(node, patcher, **off) is patcher


@pytest.mark.parametrize(("steps", "reuses"), [(9, False), (14, True)])
@pytest.mark.parametrize(("node", "shown"), SHOWN)
def test_a_planned_node_reuses_in_long_runs_and_says_how(node, shown, steps, reuses, monkeypatch):
    reports = []
    monkeypatch.setattr("stepcache.nodes.base.NodeProgress", lambda _: reports.append)
    tiny = shared("flux_dev")
    reuses = reuses or node not in (MagCache, TaylorSeer)  # the others are told how much to compute
    with count_block_runs(tiny.patcher) as runs:
        output = run(executed(node, tiny.patcher), tiny, steps=steps)
    assert torch.isfinite(output).all() and (runs.count < steps) is reuses
    assert shown in reports[-1].settings and ("computes" in reports[-1].settings) is reuses
    assert any("steps are few" in message for message in reports[-1].messages) is not reuses


@pytest.mark.parametrize("settings", [dict(start_percent=math.nan), dict(end_percent=1.5), dict(max_consecutive=-1)])
@any_node
def test_shared_settings_are_checked_by_every_node(node, settings):
    with pytest.raises(ValueError, match="Use ") as raised:
        executed(node, shared("flux_dev").patcher, **settings)
    assert node.validate_inputs(**settings) == str(raised.value)


CURVE = dict(
    name="mine", steps=4, ratios={"all": [1.0, 0.9, 0.9, 0.9]}, threshold=0.15, max_consecutive=2, retention=0.0
)


def test_a_curve_from_a_file(tmp_path):
    file = tmp_path / "curve.json"
    file.write_text(json.dumps(CURVE), encoding="utf-8")
    plan = MagCache.plan(shared("flux_dev").patcher, defaults(MagCache) | {"profile_file": f" {file} "})
    assert plan.settings == {"threshold": 0.15, "curve": "mine"} and plan.messages == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read.*Give the path of a JSON file"),
        ("{", "holds no curve.*It should be one object"),
        ("[]", "holds no curve.*It should be one object"),
        ("{}", "holds no curve.*It should be one object"),
        (json.dumps(CURVE | {"steps": 5}), "4 ratios for 5 steps.*It should be"),
        (json.dumps(CURVE | {"ratios": {"all": [1.0, 0.9, -1.0, 0.9]}}), "above 0.*It should be"),
        (json.dumps(CURVE | {"ratios": {}}), "no ratios under.*It should be"),
        (json.dumps(CURVE | {"threshold": "high"}), "is 'high', not a number.*It should be"),
    ],
)
def test_a_file_without_a_curve_is_refused_with_the_cure(tmp_path, text, problem):
    file = tmp_path / "curve.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        executed(MagCache, shared("flux_dev").patcher, profile_file=str(file))


# -- a sampler that chooses its own steps ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["flux_dev", "wan_flow_rvs", "pixart_alpha", "pixart_sigma"])
def test_seacache_at_a_huge_threshold_ends_under_a_sampler_that_chooses_its_steps(name, monkeypatch):
    """dpm_adaptive halves its step until it is content: on reused results it may never be, and then gets computed ones."""
    reports, tiny = [], shared(name)
    monkeypatch.setattr(base, "NodeProgress", lambda _node: reports.append)
    output = run(executed(SeaCache, tiny.patcher, threshold=1e9), tiny, steps=8, sampler="dpm_adaptive")
    report = reports[-1]
    assert torch.isfinite(output).all() and report.finished and report.reused > 0
    stuck = [evaluation for evaluation in report.trace if evaluation.reason == "the sampler makes no progress"]
    assert bool(stuck) is (name != "flux_dev") and not any(evaluation.reused_calls for evaluation in stuck)
    assert report.evaluations < 100 * report.steps


# -- samplers that look into guidance -------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["euler", "euler_cfg_pp", "dpmpp_2m_cfg_pp"])
@pytest.mark.parametrize("node", [MeanCache, DPCache, EasyCache])
def test_only_the_node_above_guidance_leaves_cfg_pp_alone(node, sampler, monkeypatch):
    reports, tiny = [], shared("flux_dev")
    monkeypatch.setattr(base, "NodeProgress", lambda _node: reports.append)
    settings = dict(threshold=10.0) if node is EasyCache else dict(computed=0.4)
    output = run(executed(node, tiny.patcher, **settings), tiny, steps=14, cfg=2.0, sampler=sampler)
    refused = node is MeanCache and sampler != "euler"
    assert torch.isfinite(output).all() and (reports[-1].reused == 0) is refused
    assert any("take a sampler without cfg_pp" in message for message in reports[-1].messages) is refused
    assert torch.equal(output, run(tiny.patcher, tiny, steps=14, cfg=2.0, sampler=sampler)) is refused
