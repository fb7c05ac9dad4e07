"""Make ComfyUI and the pack importable, for every test.

The pack's root must not be on sys.path: its folder `nodes/` would hide ComfyUI's `nodes.py`. It is
imported under the name `stepcache` instead.
"""
import importlib.util
import os
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


def prepare_comfyui() -> None:
    path = Path(os.environ.get("COMFYUI_PATH", ROOT / ".comfyui" / "ComfyUI"))
    if not (path / "comfy").is_dir():
        raise pytest.UsageError(f"no ComfyUI at {path}; set COMFYUI_PATH to its folder")
    sys.path.insert(0, str(path))
    import comfy.cli_args

    comfy.cli_args.args.cpu = True
    comfy.cli_args.args.use_pytorch_cross_attention = True


def load_pack() -> None:
    spec = importlib.util.spec_from_file_location("stepcache", ROOT / "__init__.py", submodule_search_locations=[str(ROOT)])
    module = importlib.util.module_from_spec(spec)
    sys.modules["stepcache"] = module
    if (ROOT / "__init__.py").is_file():
        spec.loader.exec_module(module)


prepare_comfyui()
load_pack()
torch.set_num_threads(1)
