"""Which Python and which ComfyUI to work with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import places
from .failure import Failure
from .setup import set_up


@dataclass(frozen=True)
class Environment:
    """`own` is False for a person's ComfyUI (`COMFYUI_PATH`): nothing is ever installed into or written to that."""

    python: Path
    comfyui: Path
    own: bool

    def variables(self) -> dict[str, str]:
        """Environment variables for a command that runs in this environment."""
        variables = {**os.environ, "COMFYUI_PATH": str(self.comfyui), "PYTHONUNBUFFERED": "1"}
        # Threads that spin while they wait make torch up to ten times slower on a machine that is busy otherwise,
        # and turn the demo's times into noise.
        variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if not self.own:
            variables["PYTHONDONTWRITEBYTECODE"] = "1"
        return variables

    def require(self, *modules: str) -> None:
        """Raise Failure, with the command that installs them, if Python modules are missing."""
        if self.own:
            return
        code = "import importlib.util, sys; print(*[m for m in sys.argv[1:] if not importlib.util.find_spec(m)])"
        found = subprocess.run([self.python, "-c", code, *modules], capture_output=True, text=True, check=False)
        if missing := found.stdout.split():
            raise Failure(
                f"{', '.join(missing)} missing in the Python of your ComfyUI. Install with:"
                f"\n{self.python} -m pip install {' '.join(missing)}"
            )


def prepare_environment() -> Environment:
    """The environment of `COMFYUI_PATH` if that is set, else the checkout's own, set up if needed."""
    path = os.environ.get("COMFYUI_PATH")
    if path and Path(path).expanduser().resolve() != places.OWN_COMFYUI:
        return find_environment(Path(path).expanduser().resolve())
    return own_environment()


def own_environment() -> Environment:
    """The checkout's own, set up if needed."""
    set_up()
    return Environment(places.venv_python(places.VENV), places.OWN_COMFYUI, own=True)


def find_environment(comfyui: Path) -> Environment:
    """A person's ComfyUI and the Python that runs it. Raises Failure if either is not there."""
    if not (comfyui / "main.py").is_file() or not (comfyui / "comfy").is_dir():
        raise Failure(
            f"COMFYUI_PATH={comfyui} is not a ComfyUI folder."
            "\nSet it to the folder that holds ComfyUI's main.py, or unset it to let dev.py fetch its own copy."
        )
    python = _find_python(comfyui)
    try:
        check = subprocess.run([python, "-c", "import torch, aiohttp"], capture_output=True, text=True, check=False)
        problem = check.stderr.strip().splitlines()[-1:] if check.returncode else None
    except OSError as error:
        problem = [str(error)]
    if problem is not None:
        raise Failure(
            f"{python} cannot run ComfyUI ({''.join(problem) or 'it does not start'})."
            "\nSet COMFYUI_PYTHON to the Python that you start ComfyUI with."
        )
    return Environment(python, comfyui, own=False)


def _find_python(comfyui: Path) -> Path:
    if named := os.environ.get("COMFYUI_PYTHON"):
        if not Path(named).expanduser().is_file():
            raise Failure(f"COMFYUI_PYTHON={named} does not exist.\nSet it to the Python that you start ComfyUI with.")
        return Path(named).expanduser()
    candidates = [
        places.venv_python(comfyui / ".venv"),
        places.venv_python(comfyui / "venv"),
        comfyui.parent / "python_embeded" / "python.exe",
    ]
    return next((python for python in candidates if python.is_file()), Path(sys.executable))
