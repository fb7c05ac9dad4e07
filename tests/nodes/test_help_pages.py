"""Every node has a help page in each language that names every input, and the translations say the same."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import stepcache
from stepcache.nodes import NODES

PACK = Path(stepcache.__file__).parent
DOCS = PACK / stepcache.WEB_DIRECTORY / "docs"
SECTIONS = {
    "en": ["When to use it", "Inputs", "Typical values", "Memory", "Limits", "Source"],
    "zh": ["何时使用", "输入", "常用取值", "内存占用", "限制", "来源"],
}
COMFYUIS_OWN = ("sampler_name", "scheduler")
"""Choices that grow with ComfyUI."""

LARGE = {" million": 10**6, " 万": 10**4}
"""Words behind a number: 16 million is 1600 万."""

every_node = pytest.mark.parametrize("node", NODES, ids=lambda node: node.define_schema().node_id)
every_language = pytest.mark.parametrize("language", SECTIONS)


def page(node, language):
    return (DOCS / node.define_schema().node_id / f"{language}.md").read_text(encoding="utf-8")


def locale(node, language):
    texts = json.loads((PACK / "locales" / language / "nodeDefs.json").read_text(encoding="utf-8"))
    return texts[node.define_schema().node_id]


def input_names(node):
    """All inputs, those of a choice as API prompts name them."""
    for entry in node.define_schema().inputs:
        yield entry.id
        for option in getattr(entry, "options", None) or []:
            yield from (f"{entry.id}.{own.id}" for own in getattr(option, "inputs", []))


@every_language
@every_node
def test_the_page_names_every_input(node, language):
    text = page(node, language)
    assert [name for name in input_names(node) if f"`{name}`" not in text] == []


@every_node
def test_a_translated_page_has_the_labels_of_the_inputs(node):
    """Which the node shows in place of the names."""
    text, labels = page(node, "zh"), locale(node, "zh")["inputs"]
    shown = [f"`{name}`（{labels[name.replace('.', '_')]['name']}）" for name in input_names(node)]
    assert [label for label in shown if label not in text] == []


@every_language
@every_node
def test_the_page_names_every_option(node, language):
    text = page(node, language)
    for entry in node.define_schema().inputs:
        if entry.id in COMFYUIS_OWN:
            continue
        keys = [getattr(option, "key", option) for option in getattr(entry, "options", None) or []]
        assert [key for key in keys if f"`{key}`" not in text] == []


@every_language
@every_node
def test_the_page_has_the_title_and_all_sections(node, language):
    headings = [line for line in page(node, language).splitlines() if line.startswith("#")]
    title = locale(node, language)["display_name"]
    assert headings == [f"# {title}", *(f"## {section}" for section in SECTIONS[language])]


@every_node
def test_a_translated_page_says_the_same_in_each_section(node):
    """The same numbers, names in code, links, and rows of tables."""
    both = zip(sections(page(node, "en")), sections(page(node, "zh")), strict=True)
    for english, translated in both:
        assert facts(translated) == facts(english)
        rows = [[facts(row) for row in text.splitlines() if row.startswith("|")] for text in (english, translated)]
        assert rows[1] == rows[0]


def sections(text):
    return re.split("^## ", text, flags=re.MULTILINE)


def facts(text):
    """How often each number, name in code and link stands in a text."""
    links = re.findall(r"\]\((.*?)\)", text)
    return Counter([*numbers(text), *re.findall("`[^`]+`", text), *links])


def numbers(text):
    for number, unit in re.findall(rf"(\d+(?:\.\d+)?)({'|'.join(LARGE)})?", text):
        yield str(int(number) * LARGE[unit]) if unit else number


@pytest.mark.parametrize(
    ("english", "translated"),
    [
        ("0.25 is fast", "0.26 较快"),
        ("8 of 8 steps", "8 步"),
        ("16 million", "160 万"),
        ("`hold` or `linear`", "`hold` 或 `hermite`"),
        ("[paper](https://arxiv.org/abs/2)", "[论文](https://arxiv.org/abs/3)"),
    ],
)
def test_a_changed_fact_is_noticed(english, translated):
    assert facts(english) != facts(translated)


def test_there_is_no_page_without_a_node_and_no_other_language():
    assert {folder.name for folder in DOCS.iterdir()} == {node.define_schema().node_id for node in NODES}
    assert {file.stem for file in DOCS.glob("*/*.md")} == SECTIONS.keys()
