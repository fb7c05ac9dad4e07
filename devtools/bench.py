"""What the cache costs and what it gives, as ratios measured in one process: `python3 dev.py bench`."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

from .comfy import prepare_comfyui
from .pack import load_pack

SECTIONS = ("cost", "quality", "stepping", "stepcache", "calibrate")

FIGURE_FORMATS = {"overhead_ms": ".3f", "computed_ms": ".1f", "plain_ms": ".1f", "reused_ms": ".2f"}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    prepare_comfyui(gpu=options.gpu)
    load_pack()
    if options.record_general:
        importlib.import_module("devtools.bench_general").record()
        return
    rows = []
    for section in options.only:
        for row in importlib.import_module(f"devtools.bench_{section}").rows(options.quick):
            rows.append(row)
            print(line(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.json}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="dev.py bench", description=__doc__)
    made.add_argument("--json", type=Path, metavar="FILE", help='write {"rows": [{"bench", "method", "setting", ...}]}')
    made.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="only these sections")
    made.add_argument(
        "--record-general", action="store_true", help="measure nothing; record what StepCache's mode general plans by"
    )
    made.add_argument("--quick", action="store_true", help="fewer repeats and prompts, about 7 minutes on 2 cores")
    made.add_argument("--gpu", action="store_true", help="use the GPU instead of the CPU")
    return made


def line(row: dict) -> str:
    """One row of the printed table."""
    names = f"{row['bench']:<14} {row['method']:<18} {row['setting']:<28}"
    figures = (
        f"{name} {value:{FIGURE_FORMATS.get(name, '.4g')}}" for name, value in row.items() if isinstance(value, float)
    )
    counts = (f"{name} {value}" for name, value in row.items() if isinstance(value, int))
    return "  ".join([names, *counts, *figures])
