"""`dev.py examples`: the example workflows in the page's form, from their API prompts, and pictures of those that run here."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from . import places
from .client import Client, Workflow
from .page_form import Info, page_form
from .server import running_server

API = places.WORKFLOWS / "api"
LEARNS = "the first picture with new settings is computed in full\nand recorded, the next is about twice as fast."

NOTES = {
    "tiny_demo": "TeaCache on the small model that comes with StepCache. Runs as it is, also without a GPU.",
    "tiny_compare": "The same picture with and without First Block Cache, compared, and what the cache did.\n"
    "Runs as it is, also without a GPU.",
    "tiny_softcache": "SoftCache, a sampler with a cache of its own, on the small model. Runs as it is, also without a GPU.",
    "tiny_stepcache": "StepCache on the small model, in mode general: faster from the first picture on. In mode learn the\n"
    "second one would be, and nearer to the uncached one. Runs as it is, also without a GPU.",
    "flux": f"FLUX.1-dev with StepCache: {LEARNS}",
    "wan_2_2": "Wan 2.2 14B from text: each of the two experts has a cache of its own. MagCache knows both.",
    "qwen_image": f"Qwen-Image with StepCache: {LEARNS}",
    "z_image": f"Z-Image with StepCache: {LEARNS}\nZ-Image-Turbo takes so few steps that nothing is reused with it.",
    "ltx_2": f"LTX-2, video and sound, with StepCache: {LEARNS}",
}
"""What the note in a workflow says above the list of its models."""

PREVIEW = 640
"""The longest edge of a preview; pixels."""


def main(arguments: list[str]) -> int:
    with running_server() as address:
        asyncio.run(write_all(address))
    return 0


async def write_all(address: str) -> None:
    async with Client(address) as client:
        info = await client.get("/object_info")
        for name, workflow in examples().items():
            file = page_file(name)
            file.write_text(as_text(page_example(name, workflow, info)), encoding="utf-8")
            print(f"written {file.relative_to(places.ROOT)}")
            if runs_here(workflow):
                preview((await client.run(workflow)).images).save(file.with_suffix(".jpg"), quality=88)


def examples() -> dict[str, Workflow]:
    """The API prompts by name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(API.glob("*.json"))}


def page_file(name: str) -> Path:
    return places.WORKFLOWS / f"{name}.json"


def as_text(workflow: dict[str, Any]) -> str:
    return json.dumps(workflow, indent=1, ensure_ascii=False) + "\n"


def page_example(name: str, workflow: Workflow, info: Info) -> dict[str, Any]:
    return page_form(workflow, info, "\n".join([NOTES[name], *model_lines(workflow)]))


def models_of(workflow: Workflow) -> list[dict[str, str]]:
    return [model for node in workflow.values() for model in node.get("_meta", {}).get("models", [])]


def model_lines(workflow: Workflow) -> list[str]:
    """Markdown: which files go where."""
    return [f"- `models/{model['directory']}`: [{model['name']}]({model['url']})" for model in models_of(workflow)]


def runs_here(workflow: Workflow) -> bool:
    """Whether it needs no model but the small one that comes with the pack."""
    return not models_of(workflow)


def preview(images: list[bytes]) -> Image.Image:
    """All pictures of a run, one below the other."""
    pictures = [Image.open(io.BytesIO(image)).convert("RGB") for image in images]
    width = min(max(picture.width for picture in pictures), PREVIEW)
    scaled = [
        picture.resize((width, picture.height * width // picture.width), Image.Resampling.LANCZOS)
        for picture in pictures
    ]
    sheet = Image.new("RGB", (width, sum(picture.height for picture in scaled)), "white")
    top = 0
    for picture in scaled:
        sheet.paste(picture, (0, top))
        top += picture.height
    return sheet
