"""A workflow as ComfyUI's page saves it, made from the form that is posted to `/prompt`.

An API prompt names inputs; the page's form lists the values of widgets in order and has positions. What stands where comes
from `/object_info`. In `_meta` of a node may stand its `title` and the `models` it needs (`name`, `directory`, `url`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .client import Workflow

Info = Mapping[str, Any]
"""The answer to `/object_info`: nodes by class."""

WIDGETS = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", "COMFY_DYNAMICCOMBO_V3")
"""Types with a widget; of choices with inputs of their own only those without are known here."""

WIDTH, NOTE_WIDTH, COLUMN_GAP, ROW_GAP = 320, 700, 80, 50
TITLE, SLOT, WIDGET, LONG_TEXT, PICTURE = 36, 22, 28, 120, 300
"""Heights of a node's parts; pixels at normal zoom."""

STRIP = 180
"""Room below a node on which the page draws its runs."""


def page_form(workflow: Workflow, info: Info, note: str) -> dict[str, Any]:
    """The page's form; `note` is Markdown above the nodes."""
    depths = {name: depth(workflow, name) for name in workflow}
    order = sorted(workflow, key=lambda name: (depths[name], int(name)))
    links = list_links(workflow, info)
    nodes = [page_node(workflow, name, info, links) | {"order": place} for place, name in enumerate(order, 1)]
    top = lay_out(nodes, depths, note_height(note))
    last = max(map(int, workflow)) + 1
    return {
        "id": "00000000-0000-0000-0000-000000000000",
        "revision": 0,
        "last_node_id": last,
        "last_link_id": len(links),
        "nodes": [note_node(last, note, top), *sorted(nodes, key=lambda node: node["id"])],
        "links": links,
        "groups": [],
        "config": {},
        "extra": {},
        "version": 0.4,
    }


def is_link(value: Any) -> bool:
    return isinstance(value, list)


def depth(workflow: Workflow, name: str) -> int:
    """How many nodes lie before this one on the longest way."""
    sources = [value[0] for value in workflow[name]["inputs"].values() if is_link(value)]
    return max((depth(workflow, source) + 1 for source in sources), default=0)


def inputs_of(info: Info, kind: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, type and options of a node's inputs, those without a widget first, as the page has them."""
    given = info[kind]["input"]
    specs = {**given.get("required", {}), **given.get("optional", {})}
    listed = [
        (name, *typed(specs[name])) for names in info[kind]["input_order"].values() for name in names if name in specs
    ]
    return sorted(listed, key=lambda entry: has_widget(*entry[1:]))


def typed(spec: list) -> tuple[str, dict[str, Any]]:
    """Older nodes give the choices of a combo in place of its type."""
    kind = "COMBO" if isinstance(spec[0], list) else spec[0]
    return kind, spec[1] if len(spec) > 1 else {}


def has_widget(kind: str, options: Mapping[str, Any]) -> bool:
    return options.get("widgetType", kind) in WIDGETS and not options.get("forceInput")


def list_links(workflow: Workflow, info: Info) -> list[list[Any]]:
    """[id, source, slot of the source, target, slot of the target, type] of every connection."""
    links: list[list[Any]] = []
    for target, node in workflow.items():
        for slot, (name, kind, _) in enumerate(inputs_of(info, node["class_type"])):
            value = node["inputs"].get(name)
            if is_link(value):
                outputs = info[workflow[value[0]]["class_type"]]["output"]
                made = outputs[value[1]] if isinstance(outputs[value[1]], str) else kind
                links.append([len(links) + 1, int(value[0]), value[1], int(target), slot, made])
    return links


def page_node(workflow: Workflow, name: str, info: Info, links: list[list[Any]]) -> dict[str, Any]:
    node, number = workflow[name], int(name)
    kind, meta = node["class_type"], node.get("_meta", {})
    incoming = {link[4]: link[0] for link in links if link[3] == number}
    entries = inputs_of(info, kind)
    outputs = zip(info[kind]["output"], info[kind]["output_name"], strict=True)
    made = {
        "id": number,
        "type": kind,
        "pos": [0, 0],
        "size": [WIDTH, node_height(info[kind], entries)],
        "flags": {},
        "mode": 0,
        "inputs": [page_input(entry, incoming.get(slot)) for slot, entry in enumerate(entries)],
        "outputs": [
            {"name": label, "type": output, "links": [link[0] for link in links if link[1:3] == [number, slot]]}
            for slot, (output, label) in enumerate(outputs)
        ],
        "properties": {"Node name for S&R": kind} | ({"models": meta["models"]} if "models" in meta else {}),
        "widgets_values": widget_values(entries, node["inputs"]),
    }
    return made | ({"title": meta["title"]} if "title" in meta else {})


def page_input(entry: tuple[str, str, dict[str, Any]], link: int | None) -> dict[str, Any]:
    name, kind, options = entry
    widget = {"widget": {"name": name}} if has_widget(kind, options) else {}
    return {"name": name, "type": kind, **widget, "link": link}


def widget_values(entries: list[tuple[str, str, dict[str, Any]]], inputs: Mapping[str, Any]) -> list[Any]:
    """In order. The page has a widget of its own behind a seed, which says what happens to it after a run."""
    values: list[Any] = []
    for name, kind, options in entries:
        if has_widget(kind, options):
            given = inputs.get(name, options.get("default"))
            values.append(options.get("default") if is_link(given) else given)
            values += ["fixed"] if options.get("control_after_generate") else []
    return values


def node_height(described: Info, entries: list[tuple[str, str, dict[str, Any]]]) -> int:
    widgets = [options for _, kind, options in entries if has_widget(kind, options)]
    long = sum(bool(options.get("multiline")) for options in widgets)
    more = sum(bool(options.get("control_after_generate")) for options in widgets)
    slots = max(len(entries) - len(widgets), len(described["output"]))
    return (
        TITLE + SLOT * slots + WIDGET * (len(widgets) - long + more) + LONG_TEXT * long
        + (PICTURE if described["output_node"] else 0)
    )  # fmt: skip


def note_height(note: str) -> int:
    return 60 + 24 * len(note.splitlines())


def note_node(number: int, note: str, top: int) -> dict[str, Any]:
    return {
        "id": number, "type": "MarkdownNote", "pos": [60, top], "size": [NOTE_WIDTH, note_height(note)], "flags": {},
        "order": 0, "mode": 0, "inputs": [], "outputs": [], "title": "About", "properties": {}, "widgets_values": [note],
        "color": "#222", "bgcolor": "#000",
    }  # fmt: skip


def shows_runs(node: dict[str, Any]) -> bool:
    """Whether the page will draw a strip on the node."""
    return node["type"].startswith("StepCache") and node["outputs"][0]["type"] in ("MODEL", "SAMPLER")


def lay_out(nodes: list[dict[str, Any]], depths: Mapping[str, int], above: int) -> int:
    """Place nodes in columns by depth, below a note of that height; returns the note's top."""
    top = 60
    below = dict.fromkeys(depths.values(), top + above + ROW_GAP)
    for node in nodes:
        column = depths[str(node["id"])]
        node["pos"] = [60 + column * (WIDTH + COLUMN_GAP), below[column]]
        below[column] += node["size"][1] + ROW_GAP + (STRIP if shows_runs(node) else 0)
    return top
