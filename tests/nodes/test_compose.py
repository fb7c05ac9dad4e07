"""The node that composes a method from parts."""

import logging
from itertools import product

import pytest
import torch

from stepcache import nodes
from stepcache.nodes.compose import ComposeCache
from stepcache.nodes.compose_inputs import STORED, choices

from ..model_patches.real_configs import FLUX, WAN
from ..sampling import run
from ..tiny_models import build, shared

SHARED = ["start_percent", "end_percent", "max_consecutive", "cache_device", "branches"]
PARTS = {
    "probe": {
        "head residual": [], "modulated input": [], "time embedding": [], "filtered input": ["beta"], "latent": [],
        "none": [],
    },
    "policy": {
        "change from anchor": ["threshold"],
        "accumulated change": ["threshold", "published_figures"],
        "predicted change": ["threshold"],
        "interval": ["interval"],
        "step share": ["computed"],
        "growing window": ["window_size", "flex_window"],
        "magnitude curve": ["threshold", "max_skip_steps", "retention", "profile_file"],
    },
    "predictor": {
        "hold": [],
        "extrapolation": ["order", "basis", "time"],
        "chebyshev": ["degree", "ridge_lambda"],
        "mean velocity": ["lookback"],
    },
    "boundary": {
        "blocks": ["head_blocks", "tail_blocks", "stored"],
        "model output": ["stored"],
        "guided prediction": ["stored"],
    },
    "step_mask": {"none": [], "slow": ["static"], "medium": ["static"], "fast": ["static"], "ultra": ["static"]},
}  # fmt: skip


def settings(**chosen):
    """The node's settings as ComfyUI gives them: a part is a name, or (name, its own inputs), or as set at first."""
    values = {entry.id: entry.default for entry in ComposeCache.define_schema().inputs[1:] if hasattr(entry, "default")}
    for part, options in choices().items():
        name, own = chosen.pop(part, next(iter(options))), {}
        if isinstance(name, tuple):
            name, own = name
        values[part] = {part: name, **{entry.id: entry.default for entry in options.get(name, [])}, **own}
    return values | chosen


def composed(model, **chosen):
    return ComposeCache.PREPARE_CLASS_CLONE(None).execute(model, **settings(**chosen)).result[0]


def blocks(head=0, tail=0, stored="difference"):
    return "blocks", dict(head_blocks=head, tail_blocks=tail, stored=stored)


def policy(name, **own):
    return name, own


def own_node(title, **changed):
    node = next(node for node in nodes.NODES if getattr(node, "title", "") == title)
    values = {entry.id: entry.default for entry in node.define_schema().inputs[1:]}
    return lambda model: node.PREPARE_CLASS_CLONE(None).execute(model, **(values | changed)).result[0]


PLANNED = dict(probe="none", boundary=blocks())
NAMED = {
    "as set at first": ("First Block Cache", {}, {}),
    "First Block": (
        "First Block Cache", dict(threshold=1.5), dict(policy=policy("change from anchor", threshold=1.5)),
    ),
    "TeaCache": (
        "TeaCache", dict(threshold=1.5),
        dict(probe="modulated input", policy=policy("accumulated change", threshold=1.5), boundary=blocks()),
    ),
    "TeaCache recommended": (
        "TeaCache", {}, dict(probe="modulated input", policy="accumulated change", boundary=blocks()),
    ),
    "SeaCache": (
        "SeaCache", dict(threshold=1.5),
        dict(probe="filtered input", policy=policy("accumulated change", threshold=1.5), boundary=blocks()),
    ),
    "DBCache": (
        "DBCache", dict(threshold=0.9, head_blocks=2, tail_blocks=1, warmup_steps=3, max_cached_steps=5,
                        predictor="linear", step_mask="medium"),
        dict(policy=policy("change from anchor", threshold=0.9), boundary=blocks(2, 1), step_mask="medium",
             predictor="extrapolation", warmup_steps=3, max_cached_steps=5),
    ),
    "EasyCache": (
        "EasyCache", dict(threshold=3.0),
        dict(probe="latent", policy=policy("predicted change", threshold=3.0), boundary="model output", warmup_steps=3),
    ),
    "MagCache": ("MagCache", {}, dict(PLANNED, policy="magnitude curve")),
    "TaylorSeer": (
        "TaylorSeer", dict(interval=4, order=2, basis="hermite", time="sigma"),
        dict(PLANNED, policy=policy("interval", interval=4), warmup_steps=3,
             predictor=("extrapolation", dict(order=2, basis="hermite", time="sigma"))),
    ),
    "DPCache": (
        "DPCache", dict(computed=0.4, order=2),
        dict(PLANNED, policy=policy("step share", computed=0.4), warmup_steps=3,
             predictor=("extrapolation", dict(order=2, basis="newton"))),
    ),
    "Spectrum": (
        "Spectrum", {},
        dict(PLANNED, policy="growing window", predictor="chebyshev", warmup_steps=5, boundary=blocks(stored="exit")),
    ),
    "MeanCache": (
        "MeanCache", {},
        dict(probe="none", policy="step share", predictor="mean velocity", boundary="guided prediction"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_a_named_composition_does_as_its_own_node(case, reports):
    title, own, parts = NAMED[case]
    tiny = shared("flux_dev")
    title = {"EasyCache": "EasyCache (model output)"}.get(title, title)
    outputs = [run(made, tiny, steps=16, cfg=3.0) for made in (
        own_node(title, **own)(tiny.patcher), composed(tiny.patcher, **parts),
    )]  # fmt: skip
    named, free = reports
    assert free.method == named.method == free.settings["method"] == NAMED[case][0]
    assert [(e.action, e.signal) for e in free.trace] == [(e.action, e.signal) for e in named.trace]
    assert torch.equal(*outputs)
    assert named.reused or own.get("threshold") is None  # what is recommended is too strict for a tiny model
    assert free.messages == named.messages


def test_a_static_mask_computes_what_the_mask_of_dbcache_does(reports):
    tiny = shared("flux_dev")
    mask = dict(step_mask="fast", mask_is_static=True, head_blocks=1, warmup_steps=0)
    run(own_node("DBCache", **mask)(tiny.patcher), tiny, steps=15)
    run(composed(tiny.patcher, probe="none", step_mask=("fast", dict(static=True))), tiny, steps=15)
    first, second = [[e.action for e in report.trace] for report in reports]
    assert first == second and first.count("computed") == 7
    assert reports[1].method == "none, static step mask, hold, blocks but 1 + 0"
    assert reports[1].settings["computes"] == "0-2 4 7 10 14"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (dict(policy=policy("accumulated change", threshold=0.3)), "head residual, accumulated change, hold, blocks but 1 + 0"),
        (
            dict(probe="latent", policy=policy("change from anchor", threshold=0.2), boundary="model output"),
            "latent, change from anchor, hold, model output",
        ),
        (
            dict(probe="modulated input", policy="accumulated change", boundary=blocks(), step_mask="slow"),
            "TeaCache with a step mask",
        ),
        (dict(step_mask="slow"), "DBCache"),
        (dict(predictor="extrapolation"), "DBCache"),
        (
            dict(PLANNED, policy="interval", predictor="chebyshev", boundary=blocks(stored="exit")),
            "none, interval, chebyshev, blocks (exit)",
        ),
        (
            dict(probe="none", policy="interval", predictor="extrapolation", boundary="guided prediction"),
            "none, interval, extrapolation, guided prediction (exit)",
        ),
    ],
)  # fmt: skip
def test_any_other_composition_is_described_and_runs(parts, name, reports):
    tiny = shared("flux_dev")
    assert torch.isfinite(run(composed(tiny.patcher, **parts), tiny, steps=12)).all()
    assert reports[0].method == reports[0].settings["method"] == name


STATIC = ("slow", dict(static=True))
TEACACHE = dict(probe="modulated input", policy="accumulated change", boundary=blocks())
EASYCACHE = dict(probe="latent", policy="predicted change", boundary="model output")
MEAN = dict(probe="none", policy="interval", predictor="mean velocity", boundary="guided prediction")
REFUSED = [
    (
        dict(boundary="model output"),
        "head residual is a signal of the blocks.*Set probe to latent or none, or boundary",
    ),
    (dict(boundary=blocks(0)), "there are none. Set head_blocks to 1 or more"),
    (
        TEACACHE | dict(boundary="guided prediction"),
        "modulated input is a signal of the blocks.*only the latent is seen",
    ),
    (
        TEACACHE | dict(probe="time embedding"),
        "time embedding of this model is not known. Set probe to modulated input",
    ),
    (dict(policy="predicted change"), "compares the latent.*not the head residual. Set probe to latent"),
    (EASYCACHE | dict(boundary=blocks()), "whole model's output. Set boundary to model output"),
    (EASYCACHE | dict(boundary=("model output", dict(stored="exit"))), "stored to difference"),
    (MEAN | dict(boundary=blocks()), "mean velocity.*Set boundary to guided prediction"),
    (MEAN | dict(boundary="model output"), "mean velocity.*Set boundary to guided prediction"),
    (MEAN | dict(boundary=("guided prediction", dict(stored="difference"))), "stored to exit"),
    (dict(step_mask=STATIC), "decides alone.*head residual is never used. Set probe to none, or static to off"),
    (dict(policy="magnitude curve"), "magnitude curve knows its steps.*head residual is never used. Set probe to none"),
    (dict(policy="interval"), "interval knows its steps before sampling.*Set probe to none"),
    (dict(probe="none"), "change from anchor has nothing to look at. Choose a probe, or a policy that needs none"),
    (PLANNED | dict(policy="magnitude curve", boundary="model output"), "what the blocks add. Set boundary to blocks"),
    (dict(policy="accumulated change"), "no recommended threshold for head residual.*Set a threshold above 0"),
    (dict(policy=policy("change from anchor", threshold=float("nan"))), "threshold is nan.*-1 "),
    (dict(policy=policy("change from anchor", threshold=-0.5)), "threshold is -0.5"),
    (dict(boundary=blocks(-3)), "head_blocks is -3. Use a number from 0"),
    (dict(probe="none", policy=policy("interval", interval=-2)), "interval is -2. Use a number from 0"),
    (dict(probe="none", policy=policy("step share", computed=float("nan"))), "computed is nan. Use a number from"),
    (dict(boundary=blocks(200)), "always computes 200 blocks.*Choose"),
    (dict(probe="first block"), "probe is 'first block'. Use one of: head residual, modulated input"),
    (dict(PLANNED, policy="interval", speedup=2.0), "a speedup moves the threshold.*there is none. Set speedup to 0"),
    (dict(probe="none", step_mask=STATIC, speedup=2.0), "a speedup moves the threshold.*there is none"),
    (dict(speedup=7.0), "speedup is 7. Use a number from 1 to 5"),
    (dict(start_percent=0.9, end_percent=0.1), "Lower start_percent or raise end_percent"),
]


@pytest.mark.parametrize(("parts", "told"), REFUSED)
def test_what_makes_no_sense_is_refused_with_the_reason_and_the_cure(parts, told):
    with pytest.raises(ValueError, match=told):
        composed(shared("flux_dev").patcher, **parts)


def test_a_choice_that_did_not_arrive_is_named():
    with pytest.raises(ValueError, match="policy is None. Use one of: change from anchor"):
        ComposeCache.plan(shared("flux_dev").patcher, settings() | {"policy": None})


@pytest.mark.parametrize(
    "parts",
    [
        dict(policy=policy("change from anchor", threshold=0.0)),
        dict(PLANNED, policy=policy("interval", interval=1)),
        dict(PLANNED, policy=policy("step share", computed=1.0)),
        dict(speedup=1.0),
    ],
)
def test_switched_off_returns_the_very_same_model(parts):
    model = shared("flux_dev").patcher
    assert composed(model, **parts) is model


@pytest.mark.parametrize(
    "parts",
    [{}, TEACACHE, EASYCACHE, dict(policy="accumulated change"), dict(probe="filtered input", boundary=blocks(0, 1))],
    ids=str,
)
def test_a_speedup_lands_whether_a_threshold_is_known_or_not(parts, reports):
    tiny = shared("flux_dev")
    run(composed(tiny.patcher, speedup=2.0, **parts), tiny, steps=16)
    run(composed(tiny.patcher, speedup=2.0, **parts), tiny, steps=8)
    assert [(report.computed, report.asked) for report in reports] == [(8, 2.0), (4, 2.0)]


def test_a_prompt_from_before_the_speedup_is_as_it_was():
    model = shared("flux_dev").patcher
    old = {name: value for name, value in settings().items() if name != "speedup"}
    assert ComposeCache.plan(model, old) == ComposeCache.plan(model, settings())


@pytest.mark.slow
@pytest.mark.parametrize("boundary", PARTS["boundary"])
@pytest.mark.parametrize("probe", PARTS["probe"])
@pytest.mark.parametrize("name", ["flux_dev", "wan_t2v"])
def test_every_composition_runs_or_is_refused_with_a_reason(name, probe, boundary, reports):
    tiny, head = shared(name), int(probe == "head residual")
    for rule, predictor, stored in product(PARTS["policy"], PARTS["predictor"], STORED):
        at = blocks(head, 0, stored) if boundary == "blocks" else (boundary, dict(stored=stored))
        own = dict(threshold=1.5) if "threshold" in PARTS["policy"][rule] else {}
        parts = dict(probe=probe, policy=(rule, own), predictor=predictor, boundary=at)
        try:
            cached = composed(tiny.patcher, **parts)
        except ValueError as refused:
            assert "Set " in str(refused) or "Choose " in str(refused)
            continue
        assert torch.isfinite(run(cached, tiny, steps=10, cfg=2.0)).all()
    assert all(report.finished and report.evaluations == 10 for report in reports)


def real(name, unet_config):
    """A tiny model that looks like a shipped one to what reads its configuration."""
    patcher = build(name).patcher
    patcher.model.model_config.unet_config = unet_config
    return patcher


def test_published_figures_are_used_where_they_are_of_the_probe():
    flux = real("flux_dev", FLUX)
    plan = ComposeCache.plan(flux, settings(**TEACACHE))
    assert plan.settings == {"method": "TeaCache", "threshold": 0.25, "figures": "FLUX.1-dev"}
    assert len(plan.method.policy.coefficients) == 5 and (plan.method.min_steps, plan.messages) == (10, ())
    plain = dict(TEACACHE, policy=policy("accumulated change", threshold=0.1, published_figures=False))
    plan = ComposeCache.plan(flux, settings(**plain))
    assert plan.method.policy.coefficients == (1.0, 0.0) and plan.settings == {"method": "TeaCache", "threshold": 0.1}
    wan = real("wan_t2v", WAN)
    assert (
        ComposeCache.plan(wan, settings(**(TEACACHE | {"probe": "time embedding"})))
        .settings["figures"]
        .startswith("Wan2.1")
    )
    with pytest.raises(ValueError, match="no recommended threshold"):
        ComposeCache.plan(wan, settings(**TEACACHE))


def test_the_inputs_and_their_order_are_a_contract():
    schema = ComposeCache.define_schema()
    assert [entry.id for entry in schema.inputs] == [
        "model",
        *PARTS,
        "warmup_steps",
        "max_cached_steps",
        *SHARED,
        "speedup",
    ]
    found = {
        part.id: {option.key: [entry.id for entry in option.inputs] for option in part.options}
        for part in schema.inputs[1:6]
    }
    assert found == PARTS
    assert [list(options) for options in found.values()] == [list(options) for options in PARTS.values()]
    entries = [*schema.inputs, *(entry for part in choices().values() for own in part.values() for entry in own)]
    assert all(entry.tooltip for entry in entries)
    schema.validate()


def test_a_comfyui_without_dynamic_inputs_goes_without_the_node(monkeypatch, caplog):
    monkeypatch.delattr(nodes.io, "DynamicCombo")
    with caplog.at_level(logging.WARNING):
        found = nodes.available_nodes()
    assert ComposeCache not in found and len(found) == len(nodes.NODES) - 1
    assert "Compose Cache is left out" in caplog.text
