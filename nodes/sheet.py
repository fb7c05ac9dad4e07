"""A picture of lines of text and whatever is drawn between them."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import numpy
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

WIDTH, MARGIN = 1024, 32
"""Of the picture and of its edges; pixels."""

TITLE, TEXT, SMALL = 26, 19, 16
"""Font sizes; pixels."""

INK, PALE, GRID, PAPER, WARNING = "#202124", "#5f6368", "#dadce0", "#ffffff", "#9a3412"

LINE_LENGTH = 98
"""Characters of the text size that fit into a line."""


class Sheet:
    """A white picture that grows downwards; `y` is where the next thing goes."""

    def __init__(self):
        self.image = Image.new("RGB", (WIDTH, MARGIN), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self.y = MARGIN

    def reserve(self, height: int) -> int:
        """Make room below and return its top."""
        top, self.y = self.y, self.y + height
        grown = Image.new("RGB", (WIDTH, self.y + MARGIN), PAPER)
        grown.paste(self.image)
        self.image, self.draw = grown, ImageDraw.Draw(grown)
        return top

    def text(self, text: str, size: int = TEXT, color: str = INK) -> None:
        """Wrapped lines."""
        for line in wrap(text, LINE_LENGTH * TEXT // size) or [""]:
            top = self.reserve(int(size * 1.4))
            self.draw.text((MARGIN, top), line, color, font(size))

    def gap(self, height: int) -> None:
        self.reserve(height)


def font(size: int):
    return ImageFont.load_default(size)


def as_image(picture: Image.Image) -> Tensor:
    """ComfyUI's IMAGE of one picture: (1, H, W, 3) in [0, 1]."""
    return torch.from_numpy(numpy.asarray(picture.convert("RGB")).astype(numpy.float32) / 255)[None]


def text_card(title: str, lines: Sequence[str]) -> Image.Image:
    sheet = Sheet()
    sheet.text(title, TITLE)
    sheet.gap(8)
    for line in lines:
        sheet.text(line)
    return sheet.image
