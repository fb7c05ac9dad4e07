"""Every node has a help page that names every input."""

from pathlib import Path

import pytest

import stepcache
from stepcache.nodes import NODES

PACK = Path(stepcache.__file__).parent
DOCS = PACK / stepcache.WEB_DIRECTORY / "docs"
SECTIONS = ["When to use it", "Inputs", "Typical values", "Memory", "Limits", "Source"]
COMFYUIS_OWN = ("sampler_name", "scheduler")
"""Choices that grow with ComfyUI."""

every_node = pytest.mark.parametrize("node", NODES, ids=lambda node: node.define_schema().node_id)


def page(node):
    return (DOCS / node.define_schema().node_id / "en.md").read_text(encoding="utf-8")


def input_names(node):
    """All inputs, those of a choice as API prompts name them."""
    for entry in node.define_schema().inputs:
        yield entry.id
        for option in getattr(entry, "options", None) or []:
            yield from (f"{entry.id}.{own.id}" for own in getattr(option, "inputs", []))


@every_node
def test_the_page_names_every_input(node):
    text = page(node)
    assert [name for name in input_names(node) if f"`{name}`" not in text] == []


@every_node
def test_the_page_names_every_option(node):
    text = page(node)
    for entry in node.define_schema().inputs:
        if entry.id in COMFYUIS_OWN:
            continue
        keys = [getattr(option, "key", option) for option in getattr(entry, "options", None) or []]
        assert [key for key in keys if f"`{key}`" not in text] == []


@every_node
def test_the_page_has_the_title_and_all_sections(node):
    lines = page(node).splitlines()
    assert lines[0] == f"# {node.define_schema().display_name}"
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS


def test_there_is_no_page_without_a_node():
    assert {folder.name for folder in DOCS.iterdir()} == {node.define_schema().node_id for node in NODES}
