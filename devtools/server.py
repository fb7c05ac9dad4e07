"""The real ComfyUI server as a context manager, with this pack and the tiny model linked into it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import places
from .failure import Failure

LINKS = {"stepcache": places.ROOT, "stepcache_tiny_model": places.ROOT / "tiny_model"}
CACHE_NODES = tuple(
    f"StepCache{name}"
    for name in (
        "Auto", "TeaCache", "FirstBlockCache", "DBCache", "SeaCache", "EasyCache", "MagCache", "TaylorSeer", "MeanCache",
        "DPCache", "Spectrum", "Compose",
    )
)  # fmt: skip
"""Written out, as the pack can be imported only where ComfyUI is; a test compares them with the pack's."""
SAMPLER_NODES = ("StepCacheSoftCacheSampler",)
PROFILE_NODES = ("StepCacheCalibrate", "StepCacheLoadProfile", "StepCacheSaveProfile")
AFTER_SAMPLING = ("StepCacheReport", "StepCacheCompare")
EXPECTED_NODES = (*CACHE_NODES, *PROFILE_NODES, *SAMPLER_NODES, *AFTER_SAMPLING, "StepCacheTinyCLIP")
START_SECONDS = 180
HOST = "127.0.0.1"


@contextmanager
def running_server(
    port: int | None = None, gpu: bool = False, log: Path | None = None, user: Path | None = None
) -> Iterator[str]:
    """Start ComfyUI and yield its address, "127.0.0.1:PORT"; stop it on the way out.

    Args:
        port: a free one is chosen if None.
        log: where the server's output goes; `.comfyui/logs/server.log` if None.
        user: folder of the page's settings; below `.comfyui/base` if None.

    Raises:
        Failure: the port is taken, the server does not start, or it could not import the pack.
    """
    if port is not None and not is_free(port):
        raise Failure(f"port {port} is in use. Choose another with --port, or stop what uses it.")
    log = log or places.LOGS / "server.log"
    address = f"{HOST}:{port or free_port()}"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command(address, gpu, user), cwd=places.comfyui_folder(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_ready(process, address, log)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()


def command(address: str, gpu: bool, user: Path | None = None) -> list[str]:
    """The command line of a server that writes only below `.comfyui/base`, and to `user` if that is given."""
    prepare_base()
    port = address.rpartition(":")[2]
    options = ["--listen", HOST, "--port", port, "--base-directory", str(places.BASE), "--disable-auto-launch"]
    options += ["--database-url", "sqlite:///:memory:"]  # by default a file in ComfyUI's own folder
    options += ["--temp-directory", str(places.WORK / "temp" / port)]  # each server empties its own at the start
    if user:
        user.mkdir(parents=True, exist_ok=True)
        options += ["--user-directory", str(user)]
    options += ["--disable-api-nodes", "--use-pytorch-cross-attention"] + ([] if gpu else ["--cpu"])
    if places.comfyui_folder() != places.OWN_COMFYUI:
        options += ["--extra-model-paths-config", str(extra_model_paths(places.comfyui_folder()))]
    return [sys.executable, str(places.comfyui_folder() / "main.py"), *options]


def prepare_base() -> None:
    """Make the server's base folder, with links to the pack and to the tiny model."""
    nodes = places.BASE / "custom_nodes"
    nodes.mkdir(parents=True, exist_ok=True)
    for name, target in LINKS.items():
        link = nodes / name
        if link.exists() and link.resolve() == target.resolve():
            continue
        if link.is_symlink() or link.is_file():
            link.unlink()
        try:
            link.symlink_to(target, target_is_directory=True)
        except OSError:  # Windows without the right to make symbolic links
            junction_or_copy(link, target)


def junction_or_copy(link: Path, target: Path) -> None:
    if os.name == "nt" and subprocess.run(["cmd", "/c", "mklink", "/J", link, target], check=False).returncode == 0:
        return
    ignored = shutil.ignore_patterns(".*", "demo_output", "__pycache__")
    shutil.copytree(target, link, ignore=ignored, dirs_exist_ok=True)


def extra_model_paths(comfyui: Path) -> Path:
    """A file that lets the server see the models of a person's own ComfyUI, every kind of folder it has."""
    folders = [folder.name for folder in (comfyui / "models").iterdir() if folder.is_dir()]
    entries = {"own": {"base_path": str(comfyui), **{name: f"models/{name}/" for name in folders}}}
    file = places.BASE / "extra_model_paths.yaml"
    file.write_text(json.dumps(entries, indent=1), encoding="utf-8")  # JSON is valid YAML
    return file


def wait_until_ready(process: subprocess.Popen, address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failure(f"ComfyUI stopped while starting. Its last lines ({log}):\n{last_lines(log)}")
        try:
            missing = [node for node in EXPECTED_NODES if not node_info(address, node)]
            if not missing:
                return
            raise Failure(f"ComfyUI runs, but without {missing[0]}. Its log ({log}) says:\n{import_failure(log)}")
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise Failure(f"ComfyUI did not answer within {START_SECONDS} s. Its last lines ({log}):\n{last_lines(log)}")


def node_info(address: str, node: str) -> dict:
    """Empty if the server does not know the node: a pack that fails to import is only logged by ComfyUI."""
    with urllib.request.urlopen(f"http://{address}/object_info/{node}", timeout=5) as answer:
        return json.load(answer)


def last_lines(log: Path, count: int = 8) -> str:
    with log.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, count)).rstrip()


def import_failure(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    marks = [
        i for i, text in enumerate(lines) if "Traceback" in text or "IMPORT FAILED" in text or "Error while" in text
    ]
    return "\n".join(lines[marks[0] : marks[0] + 25]) if marks else last_lines(log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
