"""Run a long command behind one line that shows it is alive."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

QUIET_SECONDS = 20  # how often to print a line where the line cannot be redrawn


def run_step(title: str, command: Sequence[str | Path], log: Path, **variables: str) -> str | None:
    """Run `command`, append its output to `log`, show the elapsed time and its last line.

    `variables` are environment variables for it, besides those of this process.

    Returns None on success and the command's whole output on failure.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **variables},
    )
    lines: list[str] = []
    reader = threading.Thread(target=_collect, args=(process, lines, log), daemon=True)
    reader.start()
    try:
        _show_until_done(title, process, lines, started)
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.wait()
        reader.join(timeout=5)
    outcome = "done" if process.returncode == 0 else "failed"
    _finish_line(f"{title}: {outcome} after {_elapsed(started)}")
    return None if process.returncode == 0 else "".join(lines)


def _collect(process: subprocess.Popen, lines: list[str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        for line in process.stdout or ():
            lines.append(line)
            file.write(line)
            file.flush()


def _show_until_done(title: str, process: subprocess.Popen, lines: list[str], started: float) -> None:
    redraw = sys.stdout.isatty()
    if not redraw:
        print(f"{title} ...", flush=True)
    next_line = started + QUIET_SECONDS
    for mark in itertools.cycle("|/-\\"):
        try:
            process.wait(timeout=0.15)
            return
        except subprocess.TimeoutExpired:
            pass
        last = lines[-1].strip() if lines else ""
        if redraw:
            print("\r\x1b[K" + f"{mark} {title}  {_elapsed(started)}  {last}"[: _columns() - 1], end="", flush=True)
        elif time.monotonic() >= next_line:
            print(f"  {_elapsed(started)}  {last}"[:110], flush=True)
            next_line += QUIET_SECONDS


def _finish_line(text: str) -> None:
    print(("\r\x1b[K" if sys.stdout.isatty() else "") + text, flush=True)


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _elapsed(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60}m{seconds % 60:02d}s" if seconds >= 60 else f"{seconds}s"
