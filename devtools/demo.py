"""`dev.py demo`: one picture uncached, with StepCache, with TeaCache and with First Block Cache, compared."""

from __future__ import annotations

import asyncio
import io
import json
import math
import sys
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy
import torch
from PIL import Image

from .client import Client, Outcome, WorkflowFailed, WorkflowRefused
from .failure import Failure
from .options import demo_parser
from .pack import load_pack
from .places import LOGS, ROOT
from .server import running_server
from .side_by_side import comparison
from .workflow import SAMPLER_NODE, demo_workflow, stepcache_workflow

OUTPUT = ROOT / "demo_output"
STEPCACHE = partial(stepcache_workflow, mode="learn")
WORKFLOWS = {
    "uncached": partial(demo_workflow, None),
    "StepCache": STEPCACHE,
    "TeaCache": partial(demo_workflow, "StepCacheTeaCache", 0.1),
    "First Block Cache": partial(demo_workflow, "StepCacheFirstBlockCache", 0.17),
}


@dataclass
class DemoRun:
    """One row of the demo; `seconds` are those of the sampler node in its fastest round.

    `psnr` is None for the uncached picture.
    """

    method: str
    evaluations: int
    computed: int
    reused: int
    seconds: float
    speedup: float
    psnr: float | None
    ssim: float
    image: str
    picture: Image.Image = field(repr=False)

    def as_dict(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "picture"}


def main(arguments: list[str]) -> int:
    options = demo_parser().parse_args(arguments)
    load_pack()
    OUTPUT.mkdir(exist_ok=True)
    print("Starting ComfyUI ...", flush=True)
    try:
        with running_server(gpu=options.gpu) as address:
            runs = asyncio.run(sample_all(address, options))
    except (WorkflowFailed, WorkflowRefused) as problem:
        raise Failure(f"the workflow did not run: {problem}\nServer log: {LOGS / 'server.log'}") from problem
    comparison(runs, options.prompt).save(OUTPUT / "comparison.png")
    (OUTPUT / "demo.json").write_text(json.dumps({"runs": [run.as_dict() for run in runs]}, indent=1) + "\n")
    print(table(runs))
    print(f"\nPictures and figures: {OUTPUT}/comparison.png, demo.json")
    return 0


async def sample_all(address: str, options) -> list[DemoRun]:
    inputs = {"steps": options.steps, "seed": options.seed, "text": options.prompt, "batch_size": options.batch}
    inputs |= {"width": options.size, "height": options.size}
    fastest: dict[str, Outcome] = {}
    async with Client(address) as client:
        another = inputs | {"seed": options.seed + 1}
        await client.run(demo_workflow(None, **(another | {"steps": 2})))  # loads everything
        await client.run(STEPCACHE(**another))
        # In turns: ComfyUI does not sample again what it has just sampled, and a busy moment hits every method alike.
        for title, workflow in [*WORKFLOWS.items()] * options.rounds:
            outcome = await client.run(
                workflow(**inputs), lambda node, value, total, title=title: show(title, value, total)
            )
            show(title, None, None)
            fastest[title] = min(outcome, fastest.get(title, outcome), key=lambda run: run.seconds[SAMPLER_NODE])
    runs: list[DemoRun] = []
    for title, outcome in fastest.items():
        runs.append(demo_run(title, outcome, runs[0] if runs else None))
    return runs


def demo_run(title: str, outcome: Outcome, reference: DemoRun | None) -> DemoRun:
    from stepcache.cache_core.quality import psnr, ssim

    file = OUTPUT / f"{title.lower().replace(' ', '_')}.png"
    file.write_bytes(outcome.images[0])
    picture = Image.open(io.BytesIO(outcome.images[0])).convert("RGB")
    seconds = outcome.seconds[SAMPLER_NODE]
    steps = outcome.steps(SAMPLER_NODE)
    counts = outcome.reports[-1] if outcome.reports else {"evaluations": steps, "computed": steps, "reused": 0}
    likeness = psnr(pixels(reference.picture), pixels(picture)) if reference else math.inf
    return DemoRun(
        method=title,
        evaluations=counts["evaluations"],
        computed=counts["computed"],
        reused=counts["reused"],
        seconds=round(seconds, 3),
        speedup=round(reference.seconds / seconds, 3) if reference else 1.0,
        psnr=round(likeness, 2) if math.isfinite(likeness) else None,
        ssim=round(ssim(pixels(reference.picture), pixels(picture)), 4) if reference else 1.0,
        image=file.name,
        picture=picture,
    )


def pixels(picture: Image.Image) -> torch.Tensor:
    """(3, H, W) in [0, 1]."""
    return torch.from_numpy(numpy.asarray(picture).copy()).movedim(-1, 0) / 255


def show(title: str, value: int | None, total: int | None) -> None:
    """A progress line that is redrawn; without a terminal only the titles are printed."""
    if sys.stdout.isatty():
        print("\r\x1b[K" + (f"{title}: step {value} of {total}" if value is not None else ""), end="", flush=True)
    elif value is None:
        print(f"{title}: done", flush=True)


def table(runs: list[DemoRun]) -> str:
    lines = [
        f"\n{'method':<18} {'evaluations':>11} {'computed':>8} {'reused':>6} "
        f"{'seconds':>8} {'speedup':>7} {'PSNR dB':>7} {'SSIM':>6}"
    ]
    for run in runs:
        likeness = "same" if run.psnr is None else f"{run.psnr:.1f}"
        lines.append(
            f"{run.method:<18} {run.evaluations:>11} {run.computed:>8} {run.reused:>6} {run.seconds:>8.2f} "
            f"{run.speedup:>6.2f}x {likeness:>7} {run.ssim:>6.3f}"
        )
    return "\n".join(lines)
