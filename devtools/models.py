"""`dev.py models`: the table of supported models, from the code and from what `dev.py matrix` proved."""

from __future__ import annotations

import json
from typing import Any

from . import places
from .comfy import prepare_comfyui
from .options import models_parser
from .pack import load_pack

README = places.ROOT / "README.md"
BEGIN, END = "<!-- made by `python3 dev.py models --readme` -->", "<!-- end of the made part -->"
HEAD = ("model", "class in ComfyUI", "blocks", "TeaCache figures", "MagCache curves", "ComfyUI")
FALLBACK = (
    ("any other transformer", "", "found by watching one call", "general rule", "", ""),
    ("U-Nets and all else", "", "none: whole outputs are reused", "general rule", "", ""),
)


def main(arguments: list[str]) -> int:
    options = models_parser().parse_args(arguments)
    prepare_comfyui()
    load_pack()
    print(table())
    if options.json:
        options.json.write_text(json.dumps({"models": rows()}, indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.json}")
    if options.readme:
        README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"written into {README.name}")
    return 0


def rows() -> list[dict[str, Any]]:
    """A dictionary for each architecture, sorted by name."""
    from stepcache.model_patches.architectures import ARCHITECTURES

    made = [
        {
            "model": architecture.name,
            "covers": architecture.covers,
            "class": class_name,
            "blocks": [stack.path for stack in architecture.stacks],
            "level": "blocks",
            "teacache": figures("teacache", class_name),
            "magcache": figures("magcache", class_name),
            "first_block": figures("first_block", class_name),
            "versions": versions(class_name),
        }
        for class_name, architecture in ARCHITECTURES.items()
    ]
    return sorted(made, key=lambda row: row["model"].lower())


def figures(file: str, class_name: str) -> list[str]:
    """The variants of a class that have published figures in a file of `calibrations`."""
    from stepcache.model_patches.variants import table

    published = {name for entry in table(file)["entries"] for name in entry["variants"]}
    of_class = [entry["name"] for entry in table("variants")["variants"] if entry["class"] == class_name]
    return [name for name in of_class if name in published]


def versions(class_name: str) -> list[str]:
    """The versions of ComfyUI, oldest first, that have the class and on which its contract was proved."""
    proved = json.loads(places.PROVED.read_text(encoding="utf-8"))
    return [version for version, found in proved.items() if class_name not in found["absent"]]


def table() -> str:
    """The table as Markdown."""
    proved = list(json.loads(places.PROVED.read_text(encoding="utf-8")))
    lines = [
        (
            row["covers"] or row["model"],
            f"`{row['class']}`",
            ", ".join(f"`{path}`" for path in row["blocks"]),
            ", ".join(row["teacache"]) or "general rule",
            ", ".join(row["magcache"]),
            span(row["versions"], proved),
        )
        for row in rows()
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (HEAD, ("---",) * len(HEAD), *lines, *FALLBACK))


def span(found: list[str], proved: list[str]) -> str:
    """ "0.16.3 to 0.30.0", or the versions one by one where there are gaps."""
    if found and found == proved[proved.index(found[0]) : proved.index(found[-1]) + 1]:
        return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return ", ".join(found)


def with_table(readme: str) -> str:
    """The text of a README with the table in its place."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"
