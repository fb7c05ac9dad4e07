"""ComfyUI inside this process, for tests and tools that call it directly.

Loadable on its own (it imports nothing of `devtools`), for a `conftest.py` that has to start somewhere.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

OWN_COMFYUI = Path(__file__).resolve().parent.parent / ".comfyui" / "ComfyUI"


def prepare_comfyui(gpu: bool = False) -> Path:
    """Put ComfyUI on `sys.path`, set to the CPU (unless `gpu`) and to PyTorch's attention. Returns its folder.

    Must run before anything imports `comfy.model_management`, which picks the device once, at import.
    Raises FileNotFoundError if there is no ComfyUI, RuntimeError if it is too late.
    """
    folder = Path(os.environ.get("COMFYUI_PATH") or OWN_COMFYUI).expanduser().resolve()
    if not (folder / "comfy").is_dir():
        raise FileNotFoundError(f"no ComfyUI at {folder}; run `python3 dev.py test` once, or set COMFYUI_PATH")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    from comfy.cli_args import args

    wanted = {"cpu": not gpu, "use_pytorch_cross_attention": True}
    if "comfy.model_management" in sys.modules and any(getattr(args, name) != value for name, value in wanted.items()):
        raise RuntimeError("prepare_comfyui() must run before comfy.model_management is imported")
    for name, value in wanted.items():
        setattr(args, name, value)
    return folder
