"""Run a tool inside the prepared environment: `python devtools/__main__.py demo --size 128`.

Started by its path, and then takes its own folder off `sys.path` again; see the package docstring for why.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import signal
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OWN_TOOLS = ("demo", "serve", "bench", "matrix", "models", "locales", "examples", "javascript")


def main(tool: str, arguments: list[str]) -> int:
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in (FOLDER, FOLDER.parent)]
    load_devtools()
    # A plain kill must run the `finally` blocks too, or a started server stays behind. As Ctrl-C, because pytest
    # would take SystemExit for a failed test and go on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if tool not in OWN_TOOLS:
        sys.argv = [tool, *arguments]
        runpy.run_module(tool, run_name="__main__", alter_sys=True)
        return 0
    failure = importlib.import_module("devtools.failure").Failure
    try:
        return importlib.import_module(f"devtools.{tool}").main(arguments) or 0
    except failure as problem:
        print(f"dev.py {tool}: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def load_devtools() -> None:
    """Register this folder as the package `devtools`, without `sys.path`."""
    spec = importlib.util.spec_from_file_location("pack_by_path", FOLDER / "pack.py")
    assert spec is not None and spec.loader is not None
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    pack.load_devtools()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
