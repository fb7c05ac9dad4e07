"""Pictures next to each other under captions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from .sheet import INK, PAPER, as_image, font

GAP = 8
LARGEST = 28
"""Font size of captions; pixels."""

AMPLIFY = 8
"""Differences are shown this much brighter."""


def side_by_side(plain: Tensor, cached: Tensor, captions: Sequence[str]) -> Tensor:
    """Each pair of pictures and what differs, in a row under three captions.

    `plain`, `cached`: (N, H, W, 3) in [0, 1]. Returns (N, H', W', 3), so that a video stays one.
    """
    difference = ((plain - cached).abs() * AMPLIFY).clamp(0, 1)
    count, height, width, _ = plain.shape
    edge = torch.ones(count, height, GAP, 3)
    row = torch.cat([plain.cpu(), edge, cached.cpu(), edge, difference.cpu()], dim=2)
    captioned = as_image(captions_above(captions, width)).expand(count, -1, -1, -1)
    return torch.cat([captioned, row], dim=1)


def captions_above(captions: Sequence[str], width: int) -> Image.Image:
    """One caption above each of the columns, which are `width` pixels wide."""
    size = fitting(captions, width - 8)
    strip = Image.new("RGB", (len(captions) * (width + GAP) - GAP, int(size * 1.8)), PAPER)
    draw = ImageDraw.Draw(strip)
    for column, caption in enumerate(captions):
        draw.text((column * (width + GAP) + 4, strip.height / 2), caption, INK, font(size), anchor="lm")
    return strip


def fitting(captions: Sequence[str], width: int) -> int:
    """The largest font size, in pixels, at which every caption fits."""
    longest = max(font(LARGEST).getlength(caption) for caption in captions)
    return max(int(LARGEST * min(width / longest, 1.0)), 8)
