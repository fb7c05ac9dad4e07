"""Where the tooling keeps things. Everything it writes is git-ignored and inside the checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
WORK = ROOT / ".comfyui"
OWN_COMFYUI = WORK / "ComfyUI"  # the pinned source tree
VERSIONS = WORK / "versions"  # older source trees, for `dev.py matrix`
JAVASCRIPT = WORK / "javascript"  # the tools of package.json
BASE = WORK / "base"  # the server's custom_nodes, models, input, output, user
LOGS = WORK / "logs"
WORKFLOWS = ROOT / "example_workflows"
LOCALES = ROOT / "locales"
PROVED = ROOT / "devtools" / "proved_versions.json"  # written by `dev.py matrix --record`


def comfyui_folder() -> Path:
    """The ComfyUI source tree in use: a person's own (`COMFYUI_PATH`), else the pinned one."""
    return Path(os.environ.get("COMFYUI_PATH") or OWN_COMFYUI).expanduser().resolve()


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
