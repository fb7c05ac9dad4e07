"""The server's base directory: links to this pack and its model, and the models of a person's own ComfyUI."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from . import places

LINKS = {"stepcache": places.ROOT, "stepcache_tiny_model": places.ROOT / "tiny_model"}
# What a copy must leave out, where links are not possible.
NOT_COPIED = (".git", ".venv", ".comfyui", "demo_output", "bench_output", "__pycache__")


def make_base_folder() -> Path:
    """Create or repair `.comfyui/base` and return it."""
    for name in ("custom_nodes", "models", "input", "output", "user"):
        (places.BASE / name).mkdir(parents=True, exist_ok=True)
    for name, target in LINKS.items():
        link_folder(places.BASE / "custom_nodes" / name, target)
    return places.BASE


def link_folder(link: Path, target: Path) -> None:
    """Make `link` lead to `target`: a symbolic link, on Windows a junction, and a fresh copy if neither works."""
    if os.path.lexists(link):
        if link.resolve() == target.resolve():
            return
        _remove(link)
    try:
        _make_link(link, target)
    except OSError:
        shutil.copytree(target, link, ignore=shutil.ignore_patterns(*NOT_COPIED))


def _make_link(link: Path, target: Path) -> None:
    if sys.platform == "win32":
        import _winapi  # junctions, unlike symbolic links, need no special right

        _winapi.CreateJunction(str(target), str(link))
    else:
        link.symlink_to(target, target_is_directory=True)


def _remove(link: Path) -> None:
    if link.is_symlink():
        link.unlink()
        return
    try:
        os.rmdir(link)  # a junction goes this way, without touching what it leads to
    except OSError:
        shutil.rmtree(link)


def write_model_paths(comfyui: Path) -> Path:
    """A config file that adds every folder in `comfyui`'s models to the server's own. Returns the file."""
    models = comfyui / "models"
    folders = sorted(entry.name for entry in models.iterdir() if entry.is_dir()) if models.is_dir() else []
    # JSON is YAML, and quotes every path correctly.
    content = {"own_comfyui": {"base_path": str(models), **{name: name for name in folders}}}
    file = places.WORK / "extra_model_paths.yaml"
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return file
