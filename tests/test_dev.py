"""`dev.py` tells what is wrong and what to do, before anything is set up."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import packages, server, setup
from devtools.failure import Failure

DEV = Path(__file__).resolve().parent.parent / "dev.py"


def dev(*arguments, **variables):
    return subprocess.run(
        [sys.executable, str(DEV), *arguments], capture_output=True, text=True, env={**os.environ, **variables}
    )


@pytest.mark.parametrize("command", ["", "demo", "serve", "lint", "matrix", "models", "locales", "examples"])
def test_help_explains(command):
    answer = dev(*command.split(), "--help")
    assert answer.returncode == 0 and "usage:" in answer.stdout and answer.stderr == ""


def test_an_unknown_command_names_the_known_ones():
    answer = dev("dmeo")
    assert answer.returncode == 2 and "demo, test, matrix, models, locales, serve, lint, bench" in answer.stderr


@pytest.mark.parametrize("arguments", [["demo", "--size", "100"], ["demo", "--steps", "0"]])
def test_a_wrong_option_is_refused_before_any_set_up(arguments):
    answer = dev(*arguments)
    assert answer.returncode == 2 and "must be" in answer.stderr


def test_a_record_of_less_than_the_whole_matrix_is_refused_before_anything_is_fetched():
    answer = dev("matrix", "--record", "--quick")
    assert answer.returncode == 1 and "leave out --quick" in answer.stderr and answer.stdout == ""


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [("COMFYUI_PATH", "/nowhere", "is not a ComfyUI folder"), ("COMFYUI_PYTHON", "/nowhere/python", "does not exist")],
)
def test_a_comfyui_that_is_not_there(variable, value, told, tmp_path):
    (tmp_path / "comfy").mkdir()
    (tmp_path / "main.py").touch()
    answer = dev("demo", **({"COMFYUI_PATH": str(tmp_path)} | {variable: value}))
    assert answer.returncode == 1 and told in answer.stderr and "Traceback" not in answer.stderr


def test_a_python_that_cannot_run_comfyui(tmp_path):
    (tmp_path / "comfy").mkdir()
    (tmp_path / "main.py").touch()
    answer = dev("demo", COMFYUI_PATH=str(tmp_path), COMFYUI_PYTHON="/bin/false")
    assert answer.returncode == 1 and "Set COMFYUI_PYTHON" in answer.stderr


def test_a_taken_port_says_which_option_to_use():
    with socket.socket() as taken:
        taken.bind((server.HOST, 0))
        taken.listen()
        with pytest.raises(Failure, match="--port"), server.running_server(taken.getsockname()[1]):
            pass


@pytest.mark.parametrize(
    ("output", "cure"),
    [
        ("ERROR: [Errno 28] No space left on device", "Free about"),
        ("WARNING: Retrying (Retry(total=4)) after connection broken", "Check the network"),
        ("ERROR: No matching distribution found for torch", "Try another Python version"),
        ("ERROR: something else", "something else"),
    ],
)
def test_pip_failures_are_explained(output, cure):
    assert cure in packages.explain(output)


def test_a_full_disk_is_noticed_before_the_download(monkeypatch, tmp_path):
    monkeypatch.setattr(setup, "TORCH_FREE_GB", 10**9)
    with pytest.raises(Failure, match="Free some space"):
        setup.require_free_disk(tmp_path)


@pytest.mark.parametrize("key", ["same", "other"])
def test_a_finished_step_is_skipped_and_a_changed_one_redone(monkeypatch, tmp_path, key):
    ran = []
    monkeypatch.setattr(setup, "_make_venv", lambda: None)
    monkeypatch.setattr(setup, "fetch", lambda source: None)
    monkeypatch.setattr(setup, "_records_file", lambda: tmp_path / "records.json")
    monkeypatch.setattr(setup, "_install_steps", lambda: [setup.Step("torch", "same", ran.append)])
    setup.set_up()
    monkeypatch.setattr(setup, "_install_steps", lambda: [setup.Step("torch", key, ran.append)])
    setup.set_up()
    assert len(ran) == (1 if key == "same" else 2)


def test_an_interrupted_step_is_not_believed_finished(monkeypatch, tmp_path):
    def interrupted(title):
        raise KeyboardInterrupt

    monkeypatch.setattr(setup, "_make_venv", lambda: None)
    monkeypatch.setattr(setup, "fetch", lambda source: None)
    monkeypatch.setattr(setup, "_records_file", lambda: tmp_path / "records.json")
    monkeypatch.setattr(setup, "_install_steps", lambda: [setup.Step("torch", "key", interrupted)])
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            setup.set_up()
