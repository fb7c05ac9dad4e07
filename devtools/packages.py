"""pip in `.venv`, behind a progress line and with its failures explained."""

from __future__ import annotations

import sys

from . import places
from .failure import Failure
from .progress import run_step

TORCH_FREE_GB = 12
LOG = places.LOGS / "setup.log"


def pip(title: str, *arguments: str) -> None:
    """Run pip with `arguments`. Raises Failure with the cure."""
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
