"""Old nodes become ours: the table against our nodes, and against what ComfyUI itself makes of it."""

import asyncio
import copy
import logging

import pytest
from app.node_replace_manager import NodeReplaceManager
from server import PromptServer

import nodes as comfyui_nodes
from stepcache.nodes import NODES, replacements
from stepcache.nodes.replacements import REPLACEMENTS, replace_in_prompt, replaced

OURS = {node.define_schema().node_id: node for node in NODES}
every_old_node = pytest.mark.parametrize("replacement", REPLACEMENTS, ids=lambda replacement: replacement.old)


def old_node(replacement, **changed):
    return {"class_type": replacement.old, "inputs": {"model": ["1", 0], **replacement.widgets, **changed}, "_meta": {}}


def values(replacement, **changed):
    """Inputs of our node without the link to the model."""
    inputs = replacement.ours(old_node(replacement, **changed))["inputs"]
    assert inputs.pop("model") == ["1", 0]
    return inputs


def test_every_old_id_is_there_once():
    old = [replacement.old for replacement in REPLACEMENTS]
    assert len(set(old)) == len(old) == 9 and not set(old) & OURS.keys()


@every_old_node
def test_all_names_are_those_of_the_nodes(replacement):
    schema = {entry.id for entry in OURS[replacement.new].define_schema().inputs}
    assert {*replacement.taken, *replacement.fixed, *replacement.off} <= schema
    assert set(replacement.taken.values()) <= replacement.widgets.keys()
    assert replacement.switch is None or (replacement.switch in replacement.widgets and replacement.off)


@every_old_node
def test_the_defaults_become_valid_and_complete_inputs_of_ours(replacement):
    inputs = values(replacement)
    for entry in OURS[replacement.new].define_schema().inputs[1:]:
        assert entry.id in inputs or entry.optional, entry.id
        value = inputs.get(entry.id, entry.default)
        if hasattr(entry, "min"):
            assert entry.min <= value <= entry.max
        if hasattr(entry, "options"):
            assert value in entry.options


@pytest.mark.parametrize("replacement", [each for each in REPLACEMENTS if each.switch], ids=lambda each: each.old)
def test_a_switch_that_is_off_switches_ours_off(replacement):
    inputs = values(replacement, **{replacement.switch: False})
    node = OURS[replacement.new]
    entries = {entry.id: entry.default for entry in node.define_schema().inputs[1:]}
    assert node.plan(None, entries | inputs) is None
    assert values(replacement).items() & replacement.off.items() == set()


@pytest.mark.parametrize(
    ("old", "given", "expected"),
    [
        ("TeaCache", {"rel_l1_thresh": 0.25, "start_percent": 0.1}, {"threshold": 0.25, "start_percent": 0.1}),
        ("MagCache", {"magcache_K": 4, "retention_ratio": 0.1}, {"max_skip_steps": 4, "retention": 0.1}),
        ("ApplyFBCacheOnModel", {"start": 0.2, "end": 0.8}, {"start_percent": 0.2, "end_percent": 0.8}),
        ("ApplyFBCacheOnModel", {"residual_diff_threshold": 0.12}, {"threshold": -1.0}),
        ("TaylorSeerLite", {"fresh_threshold": 4, "max_order": 1}, {"interval": 4, "order": 1}),
        ("WanCacheOptimizer", {"skip_interval": 3}, {"interval": 3, "warmup_steps": 4, "order": 0}),
        ("TeaCache", {"rel_l1_thresh": ["9", 0]}, {"threshold": ["9", 0]}),
    ],
)
def test_values_are_taken_over(old, given, expected):
    replacement = next(each for each in REPLACEMENTS if each.old == old)
    assert expected.items() <= values(replacement, **given).items()


def test_the_least_that_the_old_taylorseer_took_is_in_our_range():
    old = next(each for each in REPLACEMENTS if each.old == "TaylorSeer")
    inputs = values(old, fresh_threshold=3, max_order=0, first_enhance=0)
    entries = {entry.id: entry for entry in OURS[old.new].define_schema().inputs}
    assert all(entries[name].min <= inputs[name] for name in ("interval", "order", "warmup_steps"))


@every_old_node
def test_comfyui_makes_the_same_of_it(replacement, monkeypatch):
    """Its own replacing, on a prompt that has all it asks for."""
    monkeypatch.setitem(comfyui_nodes.NODE_CLASS_MAPPINGS, replacement.new, OURS[replacement.new])
    manager = NodeReplaceManager()
    manager.register(replacement.declared())
    prompt = {"2": old_node(replacement), "3": {"class_type": "Other", "inputs": {"model": ["2", 0]}, "_meta": {}}}
    theirs = copy.deepcopy(prompt)
    manager.apply_replacements(theirs)
    assert theirs == replace_in_prompt({"prompt": prompt})["prompt"]


@every_old_node
def test_a_node_of_an_installed_pack_stays(replacement, monkeypatch):
    monkeypatch.setitem(comfyui_nodes.NODE_CLASS_MAPPINGS, replacement.old, object)
    prompt = {"2": old_node(replacement)}
    assert replace_in_prompt({"prompt": copy.deepcopy(prompt)})["prompt"] == prompt


@every_old_node
def test_a_bare_node_has_its_defaults(replacement):
    """As other programs post it: without `_meta`, with nothing but the model."""
    bare = {"class_type": replacement.old, "inputs": {"model": ["1", 0]}}
    found = replaced(bare, ())
    assert found["inputs"] == replacement.ours(old_node(replacement))["inputs"] and "_meta" not in found
    assert bare == {"class_type": replacement.old, "inputs": {"model": ["1", 0]}}


@pytest.mark.parametrize(
    "posted",
    [
        {},
        {"prompt": None},
        {"prompt": ["TeaCache"]},
        {"prompt": {"2": None, "3": {"class_type": "TeaCache"}, "4": {"class_type": ["TeaCache"], "inputs": {}}}},
        {"prompt": {"2": {"class_type": "CompileModel", "inputs": {"model": ["1", 0]}}}},
    ],
)
def test_all_else_is_left_to_comfyui(posted):
    assert replace_in_prompt(copy.deepcopy(posted)) == posted


def test_where_nothing_can_be_registered_the_log_says_so(caplog):
    assert not hasattr(PromptServer, "instance")
    with caplog.at_level(logging.INFO, logger="stepcache"):
        asyncio.run(replacements.register_replacements())
    assert "cannot replace nodes of other packs" in caplog.text
