"""The real ComfyUI server with this pack in it, as a context manager."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from . import places
from .base_folder import make_base_folder, write_model_paths
from .failure import Failure

START_SECONDS = 180
STOP_SECONDS = 10
EXPECTED_NODES = ("StepCacheTeaCache", "StepCacheFirstBlockCache", "StepCacheTinyCLIP")
HOST = "127.0.0.1"


class ComfyServer:
    """Started by `with`, answering when the block begins, gone when it ends.

    `port` None takes a free one. Without `keep_output`, pictures go to a temporary folder that ends with the server.
    Entering raises Failure, with the end of the log, if the server dies or does not load the expected nodes.
    """

    def __init__(self, *, port: int | None = None, gpu: bool = False, keep_output: bool = False, name: str = "server"):
        self.port = port or free_port()
        self.gpu = gpu
        self.keep_output = keep_output
        self.log = places.LOGS / f"{name}-{self.port}.log"
        self._cleanup = contextlib.ExitStack()
        self._process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> ComfyServer:
        try:
            self._start()
            self._wait_until_it_answers()
            self._check_nodes()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._cleanup.close()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        output = self._cleanup.enter_context(self.log.open("w", encoding="utf-8"))
        process = subprocess.Popen(
            self._command(),
            cwd=places.comfyui_folder(),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to us alone, and we stop the server in order
        )
        self._process = process
        self._cleanup.callback(_stop, process)

    def _command(self) -> list[str]:
        comfyui = places.comfyui_folder()
        command = [sys.executable, str(comfyui / "main.py"), "--base-directory", str(make_base_folder())]
        command += ["--port", str(self.port), "--listen", HOST, "--disable-auto-launch", "--disable-api-nodes"]
        command += ["--database-url", "sqlite:///:memory:"]  # the default is a file inside ComfyUI's own folder
        command += [] if self.gpu else ["--cpu", "--use-pytorch-cross-attention"]
        if comfyui != places.OWN_COMFYUI:
            command += ["--extra-model-paths-config", str(write_model_paths(comfyui))]
        scratch = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="stepcache-", ignore_cleanup_errors=True))
        command += ["--temp-directory", scratch]
        if not self.keep_output:
            command += ["--output-directory", scratch]
        return command

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.is_running():
                raise Failure(f"ComfyUI stopped while starting. {self.log_end()}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/system_stats", timeout=5).close()
                return
            time.sleep(0.1)
        raise Failure(f"ComfyUI did not answer within {START_SECONDS} s. {self.log_end()}")

    def _check_nodes(self) -> None:
        """Fail if the pack did not load. ComfyUI itself only logs that, and goes on without the pack."""
        with urllib.request.urlopen(f"{self.url}/object_info", timeout=60) as answer:
            known = json.load(answer)
        missing = [node for node in EXPECTED_NODES if node not in known]
        if missing:
            raise Failure(f"ComfyUI started without {', '.join(missing)}. {self.log_end()}")

    def log_end(self, lines: int = 25) -> str:
        """The end of the server's log, from the first traceback on if there is one."""
        text = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        start = next((number for number, line in enumerate(text) if line.startswith("Traceback")), len(text) - lines)
        end = text[max(start, 0) :][:lines]
        return f"From its log ({self.log}):\n" + "\n".join(f"  {line}" for line in end)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
