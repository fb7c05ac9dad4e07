"""The demo's comparison picture: each method's picture under its figures, and what differs from the uncached one."""

from __future__ import annotations

from PIL import Image, ImageChops, ImageDraw, ImageFont

WIDTH, GAP, CAPTION, FONT = 384, 16, 64, 19
AMPLIFY = 8  # differences are shown this much brighter
INK, PALE, PAPER = "#202124", "#5f6368", "#ffffff"


def comparison(runs: list, prompt: str) -> Image.Image:
    """Two rows: the pictures, and their amplified differences. `runs` are the demo's, the uncached one first."""
    width = GAP + len(runs) * (WIDTH + GAP)
    sheet = Image.new("RGB", (width, 2 * (CAPTION + WIDTH) + 3 * GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    reference = enlarged(runs[0].picture)
    for column, run in enumerate(runs):
        left, top = GAP + column * (WIDTH + GAP), GAP
        caption(draw, left, top, run.method, figures(run))
        picture = enlarged(run.picture)
        sheet.paste(picture, (left, top + CAPTION))
        below = top + CAPTION + WIDTH + GAP
        if column:
            caption(draw, left, below, "Difference", f"from the uncached picture, {AMPLIFY}x")
            difference = ImageChops.difference(reference, picture).point(
                [min(v * AMPLIFY, 255) for v in range(256)] * 3
            )
            sheet.paste(difference, (left, below + CAPTION))
        else:
            caption(draw, left, below, f'"{prompt}"', "the same seed for all")
    return sheet


def figures(run) -> str:
    if run.psnr is None:
        return f"{run.computed} evaluations, {run.seconds:.1f} s"
    return f"{run.computed} of {run.evaluations} computed, {run.speedup:.2f}x, {run.psnr:.1f} dB"


def enlarged(picture: Image.Image) -> Image.Image:
    return picture.resize((WIDTH, WIDTH), Image.Resampling.LANCZOS)


def caption(draw: ImageDraw.ImageDraw, left: int, top: int, title: str, text: str) -> None:
    draw.text((left, top), title, INK, ImageFont.load_default(FONT + 2))
    draw.text((left, top + 28), text, PALE, ImageFont.load_default(FONT))
