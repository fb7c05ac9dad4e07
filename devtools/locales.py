"""`dev.py locales`: the texts of the nodes for ComfyUI's page, in English from their schemas.

Their form is ComfyUI's: `locales/<language>/nodeDefs.json` and `main.json`, which `GET /i18n` hands to the page. Names of
options are no part of it: they stay as they are in every language.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from . import places
from .comfy import prepare_comfyui
from .options import locales_parser
from .pack import load_pack

Texts = dict[str, Any]
"""What a locale file holds: dictionaries of dictionaries of strings."""


def main(arguments: list[str]) -> int:
    locales_parser().parse_args(arguments)
    prepare_comfyui()
    load_pack()
    made = english()
    for name, texts in made.items():
        file = locale_file("en", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(as_json(texts), encoding="utf-8")
        print(f"written: {file.relative_to(places.ROOT)}")
    problems = [problem for language in translations() for problem in mismatches(language, made)]
    print("\n".join(problems) or "All translations have these entries and no others.")
    return 1 if problems else 0


def english() -> dict[str, Texts]:
    """The texts by file name."""
    from stepcache.nodes import NODES

    schemas = [node.define_schema() for node in NODES]
    return {
        "nodeDefs": {schema.node_id: node_texts(schema) for schema in schemas},
        "main": {"nodeCategories": {schema.category: schema.category for schema in schemas}},
    }


def node_texts(schema) -> Texts:
    outputs = {
        str(index): {"name": output.display_name, "tooltip": output.tooltip}
        for index, output in enumerate(schema.outputs)
    }
    return {
        "display_name": schema.display_name,
        "description": schema.description,
        "inputs": dict(input_texts(schema.inputs)),
        "outputs": {index: {name: text for name, text in texts.items() if text} for index, texts in outputs.items()},
    }


def input_texts(inputs: Iterable) -> Iterator[tuple[str, Texts]]:
    """Key and texts of each input. The page looks up those of a choice, as `policy.interval`, under `policy_interval`."""
    for entry in inputs:
        yield entry.id, {"name": entry.id, "tooltip": entry.tooltip}
        tooltips: dict[str, dict[str, list[str]]] = {}  # of each inner input: the options that share one
        for option in getattr(entry, "options", None) or []:
            for own in getattr(option, "inputs", []):
                tooltips.setdefault(own.id, {}).setdefault(own.tooltip, []).append(option.key)
        for name, owners in tooltips.items():
            yield f"{entry.id}_{name}", {"name": name, "tooltip": joined(owners)}


def joined(owners: dict[str, list[str]]) -> str:
    """One tooltip for all options, as the page looks up only one; each with its options where they differ."""
    if len(owners) == 1:
        return next(iter(owners))
    return "\n".join(f"{', '.join(options)}: {tooltip}" for tooltip, options in owners.items())


def translations() -> list[str]:
    """Every language that has a folder, but English."""
    return sorted(folder.name for folder in places.LOCALES.iterdir() if folder.name != "en")


def mismatches(language: str, made: dict[str, Texts]) -> list[str]:
    """What a language lacks, and what it has of things that do not exist."""
    problems = []
    for name, texts in made.items():
        wanted, found = set(paths(texts)), set(paths(read(language, name)))
        file = locale_file(language, name).relative_to(places.ROOT)
        problems += [f"{file} lacks {path}" for path in sorted(wanted - found)]
        problems += [f"{file} has {path}, which does not exist" for path in sorted(found - wanted)]
    return problems


def paths(texts: Texts, parent: str = "") -> Iterator[str]:
    """The keys that lead to each string."""
    for key, value in texts.items():
        if isinstance(value, dict):
            yield from paths(value, f"{parent}{key}/")
        else:
            yield f"{parent}{key}"


def read(language: str, name: str) -> Texts:
    """Empty if there is no such file."""
    file = locale_file(language, name)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def locale_file(language: str, name: str) -> Path:
    return places.LOCALES / language / f"{name}.json"


def as_json(texts: Texts) -> str:
    return json.dumps(texts, indent=2, ensure_ascii=False) + "\n"
