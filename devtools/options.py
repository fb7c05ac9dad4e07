"""The command-line options, apart from the tools so that `--help` and mistakes answer before any set-up."""

from __future__ import annotations

import argparse
from pathlib import Path

from .sources import BY_VERSION, OLDEST, Source

DEFAULT_PROMPT = "sunset sea sun clouds"
DEMO_EXAMPLES = """examples:
  python3 dev.py demo
  python3 dev.py demo --size 128 --prompt "night moon snow mountains" --seed 7
  python3 dev.py demo --batch 8 --steps 20
"""
SERVE_EXAMPLES = """examples:
  python3 dev.py serve
  python3 dev.py serve --port 8190
  COMFYUI_PATH=/path/to/ComfyUI python3 dev.py serve --gpu      (your models, your Python)
"""
MATRIX_EXAMPLES = f"""examples:
  python3 dev.py matrix
  python3 dev.py matrix --versions {OLDEST.version}
  python3 dev.py matrix --quick --json matrix.json

Versions are fetched when they are first needed (about 10 MB each) and run in this checkout's own Python; COMFYUI_PATH is
not used. To add one, add it to the table in devtools/sources.py. Logs: .comfyui/logs/matrix/."""


def demo_parser(prog: str = "dev.py demo") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Sample one picture uncached and with StepCache, TeaCache and First Block Cache, on a small model "
        "that ships with this project; print the comparison and write it to demo_output/.",
        epilog=DEMO_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", type=_picture_size, default=256, metavar="PX", help="width and height (default 256)")
    parser.add_argument("--steps", type=_count, default=28, help="sampling steps (default 28)")
    parser.add_argument("--seed", type=int, default=100, help="noise seed (default 100)")
    parser.add_argument("--batch", type=_count, default=1, help="pictures at once (default 1)")
    parser.add_argument("--rounds", type=_count, default=3, help="times to sample each; the fastest counts (default 3)")
    parser.add_argument("--prompt", default=DEFAULT_PROMPT, help=f'words of the scene (default "{DEFAULT_PROMPT}")')
    parser.add_argument("--gpu", action="store_true", help="use the GPU instead of the CPU")
    return parser


def serve_parser(prog: str = "dev.py serve") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run ComfyUI with this pack and the small model, for use in the browser. Ctrl-C stops it.",
        epilog=SERVE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=8188, help="port on this machine (default 8188)")
    parser.add_argument("--gpu", action="store_true", help="use the GPU instead of the CPU")
    return parser


def matrix_parser(prog: str = "dev.py matrix") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Try the pack on every version of ComfyUI that it promises to work on: import it, run the contract "
        "tests, and run a workflow on that version's server.",
        epilog=MATRIX_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--versions", type=_version, nargs="+", default=list(BY_VERSION.values()), metavar="VERSION",
        help=f"only these (default: {' '.join(BY_VERSION)})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="of the contract tests only those of exactness")
    parser.add_argument("--json", type=_new_file, metavar="FILE", help="write the results to a file as well")
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep what was proved, for `dev.py models`; needs all versions, not --quick",
    )
    return parser


def models_parser(prog: str = "dev.py models") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description="Print the table of supported models, as Markdown.")
    parser.add_argument("--json", type=_new_file, metavar="FILE", help="write it to a file, as data")
    parser.add_argument("--readme", action="store_true", help="put it into README.md")
    return parser


def locales_parser(prog: str = "dev.py locales") -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=prog,
        description="Write locales/en from the nodes' names and tooltips, and say what the other languages lack.",
    )


def _version(text: str) -> Source:
    if text not in BY_VERSION:
        raise argparse.ArgumentTypeError(f"{text} is not in the table; use one of {', '.join(BY_VERSION)}")
    return BY_VERSION[text]


def _new_file(text: str) -> Path:
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"the folder of {text} does not exist; make it first")
    return Path(text).absolute()


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


def _picture_size(text: str) -> int:
    size = int(text)
    if size % 16 or not 64 <= size <= 1024:
        raise argparse.ArgumentTypeError("must be a multiple of 16 from 64 to 1024")
    return size
