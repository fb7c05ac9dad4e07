"""Which module may import which, and CASE-07: importing the pack changes nothing in ComfyUI.

Users saw workflows without any cache node change as soon as a pack was installed: it had replaced functions of ComfyUI
when it was imported. Other packs stopped loading after an update, because they imported private names at the top.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cache_core", "model_patches", "nodes")
FILES = [ROOT / "__init__.py", *(file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))]

STANDARD = set(sys.stdlib_module_names)
COMFY = {"comfy"}
HOST = {"comfy_api", "server", "comfy_execution", "folder_paths", "aiohttp"}
OUTSIDE = {
    "cache_core": STANDARD | {"torch", "numpy"},
    # ComfyUI's samplers show progress with tqdm; profiles lie in its folders
    "model_patches": STANDARD | {"torch", "numpy", "tqdm", "folder_paths"} | COMFY,
    "nodes": STANDARD | {"torch", "numpy", "PIL"} | COMFY | HOST | {"latent_preview", "nodes"},
    "": STANDARD | HOST,
}
INSIDE = {
    "cache_core": {"cache_core"},
    "model_patches": {"model_patches", "cache_core"},
    "nodes": {"nodes", "model_patches", "cache_core"},
    "": {"nodes"},
}

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))


def parsed(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def package_of(file):
    """The pack's folder that a file is in; empty for the root."""
    return "" if file.parent == ROOT else file.relative_to(ROOT).parts[0]


def imports(file):
    """(package of this pack or None, full dotted name) of every import, wherever it stands in the file."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from ((None, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield None, node.module
        elif isinstance(node, ast.ImportFrom):
            for name in relative_targets(file, node):
                yield name.split(".")[0], name


def relative_targets(file, node):
    """Dotted names, from the pack's root, that a relative import takes from."""
    folder = file.parent.relative_to(ROOT).parts
    assert node.level <= len(folder) + 1, f"{file}: a relative import leaves the pack"
    base = [*folder[: len(folder) - node.level + 1], *(node.module.split(".") if node.module else ())]
    return [".".join(base)] if base else [alias.name for alias in node.names]


def test_there_are_files_to_look_at():
    assert len(FILES) > 20 and {package_of(file) for file in FILES} == {*PACKAGES, ""}


@every_file
def test_imports_go_one_way(file):
    package = package_of(file)
    for own, name in imports(file):
        if own is None:
            assert name.split(".")[0] in OUTSIDE[package], f"{name} may not be imported here"
        else:
            assert own in INSIDE[package], f"{name} may not be imported here"


@every_file
def test_no_bare_except(file):
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}"


@every_file
def test_no_private_names_of_comfyui(file):
    """Private names go away without notice; a pack that needs them at import does not load any more."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.split(".")[0] in COMFY | HOST:
            private = [part for part in node.module.split(".") if part.startswith("_")]
            assert not private and not [alias.name for alias in node.names if alias.name.startswith("_")]
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if "._" in alias.name]


@every_file
def test_no_models_of_comfyui(file):
    """Models are known by the names of their classes, anywhere in the file: ComfyUI moves and drops their modules."""
    for own, name in imports(file):
        assert own is not None or not f"{name}.".startswith("comfy.ldm."), name
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "comfy":
            assert "ldm" not in [alias.name for alias in node.names]
        if isinstance(node, ast.Attribute) and node.attr == "ldm":
            assert ast.unparse(node.value) != "comfy"


SNAPSHOT = """
import importlib.util, json, sys
from pathlib import Path

root, comfyui = sys.argv[1], sys.argv[2]
sys.argv = sys.argv[:1]
sys.path.insert(0, comfyui)
from comfy.cli_args import args
args.cpu = True
import comfy.model_base, comfy.sample, comfy.samplers, comfy.supported_models, execution, nodes

def watched():
    return [
        name for name in sorted(sys.modules)
        if name in ("execution", "nodes") or name.startswith(("comfy.", "comfy_execution."))
    ]

def functions(names):
    found = {}
    for name in names:
        for key, value in list(vars(sys.modules[name]).items()):
            found[f"{name}.{key}"] = id(value)
            if isinstance(value, type):
                found.update({f"{name}.{key}.{k}": id(v) for k, v in list(vars(value).items()) if callable(v)})
    return found

watched_before = watched()
before = functions(watched_before)
spec = importlib.util.spec_from_file_location("stepcache", f"{root}/__init__.py", submodule_search_locations=[root])
pack = importlib.util.module_from_spec(spec)
sys.modules["stepcache"] = pack
spec.loader.exec_module(pack)
imported = []
for package in ("cache_core", "model_patches", "nodes"):
    for file in sorted(Path(root, package).rglob("*.py")):
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        importlib.import_module("stepcache." + name.removesuffix(".__init__"))
        imported.append(name)
after = functions(watched_before)
changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
print(json.dumps({"imported": imported, "watched": watched_before, "functions": len(before), "changed": changed}))
"""


def test_importing_the_pack_changes_nothing_in_comfyui():
    """CASE-07, in a fresh process."""
    command = [sys.executable, "-c", SNAPSHOT, str(ROOT), os.environ["COMFYUI_PATH"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen["imported"]) == len(FILES) - 1
    assert {"comfy.samplers", "comfy.model_base", "comfy.ldm.flux.model", "execution"} <= set(seen["watched"])
    assert seen["functions"] > 1000
    assert [key for key in seen["changed"] if not key.split(".")[-1].startswith("__")] == []
