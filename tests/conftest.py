"""Make ComfyUI, the pack and the developer tools importable, for every test.

The pack's root must not be on sys.path: its folder `nodes/` would hide ComfyUI's `nodes.py`. The pack is imported under
the name `stepcache` instead, and the tools as `devtools`.
"""

import importlib.util
import os
import sys
import uuid
from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("repeatable")  # to look further: pytest --hypothesis-profile=default

ROOT = Path(__file__).resolve().parent.parent


def file_module(path: Path):
    """A module loaded from its file, before anything else can be imported by name."""
    spec = importlib.util.spec_from_file_location(f"_{path.stem}_for_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pack = file_module(ROOT / "devtools" / "pack.py")
pack.load_devtools()
try:
    comfyui = file_module(ROOT / "devtools" / "comfy.py").prepare_comfyui()
except FileNotFoundError as missing:
    raise pytest.UsageError(str(missing)) from missing
os.environ["COMFYUI_PATH"] = str(comfyui)
importlib.import_module(
    "utils.extra_config"
)  # first, as ComfyUI's main does: its nodes.py hides `utils` by `comfy/utils.py`
pack.load_pack()
torch.set_num_threads(
    1
)  # tiny tensors are not worth sharing: two threads are up to 20 times slower when cores are busy
assert str(ROOT) not in sys.path, (
    "start pytest through `python3 dev.py test` or its console script, not `python -m pytest`"
)


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Of a real ComfyUI server with settings of its own; all tests that ask for one share it."""
    from devtools.server import running_server

    folder = tmp_path_factory.mktemp("server")
    with running_server(log=folder / "server.log", user=folder / "user") as address:
        yield address


@pytest.fixture(autouse=True)
def own_user_folder(monkeypatch, tmp_path_factory):
    """ComfyUI's user folder is one of the test: every node looks there for what was learned of a model."""
    folder = tmp_path_factory.getbasetemp() / "user" / uuid.uuid4().hex  # made when something is written
    monkeypatch.setattr("folder_paths.get_user_directory", lambda: str(folder))
    return folder
