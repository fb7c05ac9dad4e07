"""`dev.py locales`: the nodes' texts for ComfyUI's page, and their translations."""

import json
import re
from collections import Counter

import pytest

from devtools import locales
from stepcache.nodes import NODES

every_translation = pytest.mark.parametrize("language", locales.translations())
every_file = pytest.mark.parametrize("name", ["nodeDefs", "main"])


def strings(language, name):
    """The texts by the keys that lead to them."""
    return flat(locales.read(language, name))


def flat(texts, parent=""):
    found = {}
    for key, value in texts.items():
        found |= flat(value, f"{parent}{key}/") if isinstance(value, dict) else {f"{parent}{key}": value}
    return found


@every_file
def test_the_english_texts_are_current(name):
    made, kept = locales.english()[name], locales.locale_file("en", name).read_text(encoding="utf-8")
    assert kept == locales.as_json(made), "run `python3 dev.py locales`"


def test_every_node_input_and_output_has_its_texts():
    texts = locales.english()["nodeDefs"]
    for node in NODES:
        info = node.GET_SCHEMA().get_v1_info(node)
        made = texts[info.name]
        assert (made["display_name"], made["description"]) == (info.display_name, info.description)
        given = [name for kind in ("required", "optional") for name in info.input.get(kind, {})]
        assert set(given) <= made["inputs"].keys() and len(info.output) == len(made["outputs"])
        assert all(entry["name"] and entry["tooltip"] for entry in made["inputs"].values())


def test_inputs_of_a_choice_are_found_by_the_key_that_the_page_asks_for():
    inputs = locales.english()["nodeDefs"]["StepCacheCompose"]["inputs"]
    assert inputs["policy_interval"]["name"] == "interval" and "policy.interval" not in inputs
    shared = inputs["policy_threshold"]["tooltip"].splitlines()
    assert [line.partition(":")[0] for line in shared] == [
        "change from anchor, accumulated change, predicted change", "magnitude curve",
    ]  # fmt: skip


@every_translation
def test_a_translation_has_an_entry_for_everything_and_for_nothing_else(language):
    assert locales.mismatches(language, locales.english()) == []


def test_what_a_translation_lacks_and_what_it_has_too_much_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("devtools.places.ROOT", tmp_path)
    monkeypatch.setattr("devtools.places.LOCALES", tmp_path)
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "main.json").write_text('{"new": {"b": "乙", "old": "旧"}}', encoding="utf-8")
    made = {"main": {"new": {"a": "A", "b": "B"}}, "nodeDefs": {"node": "N"}}
    assert locales.mismatches("zh", made) == [
        "zh/main.json lacks new/a",
        "zh/main.json has new/old, which does not exist",
        "zh/nodeDefs.json lacks node",
    ]


def test_the_chinese_texts_are_chinese_and_have_the_same_numbers():
    english, chinese = strings("en", "nodeDefs"), strings("zh", "nodeDefs")
    explained = [path for path in english if path.endswith(("/tooltip", "/description"))]
    assert [path for path in explained if not re.search("[一-鿿]", chinese[path])] == []
    assert [path for path in explained if numbers(chinese[path]) != numbers(english[path])] == []


def numbers(text):
    return Counter(re.findall(r"\d+(?:\.\d+)?", text))


def test_the_inputs_of_a_node_have_different_labels():
    for node, texts in locales.read("zh", "nodeDefs").items():
        labels = [entry["name"] for entry in texts["inputs"].values()]
        assert len(set(labels)) == len(labels), node


@pytest.mark.parametrize("language", ["en", *locales.translations()])
@every_file
def test_no_text_has_what_the_page_would_take_for_a_placeholder(language, name):
    """vue-i18n reads braces, @ and | as syntax."""
    assert [text for text in strings(language, name).values() if re.search("[@{}|]", text)] == []


def test_the_files_are_written_as_the_tool_writes_them():
    for language in locales.translations():
        for name in ("nodeDefs", "main"):
            file = locales.locale_file(language, name)
            assert file.read_text(encoding="utf-8") == locales.as_json(json.loads(file.read_text(encoding="utf-8")))


def test_every_setting_has_a_chinese_name():
    scripts = (file.read_text(encoding="utf-8") for file in (locales.places.ROOT / "web" / "js").glob("*.js"))
    settings = {name.replace(".", "_") for text in scripts for name in re.findall(r'"(StepCache\.Strip\.\w+)"', text)}
    assert settings and locales.read("zh", "settings").keys() == settings
