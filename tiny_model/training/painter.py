"""A small painter for flat landscapes: polygons and soft light in unit coordinates on a Pillow canvas.

Coordinates run from (0, 0) top left to (1, 1) bottom right, so one scene can be painted at any size.
Colours are RGB triples of floats in 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
from PIL import Image, ImageDraw

Colour = tuple[float, float, float]
Point = tuple[float, float]

WHITE: Colour = (1.0, 1.0, 1.0)
SKY_RASTER = 64  # soft gradients are computed at this size and enlarged


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """`share` 0 gives the first colour, 1 the second."""
    return tuple(a + (b - a) * share for a, b in zip(first, second))


def shade(colour: Colour, factor: float | Colour) -> Colour:
    """Multiply by a number, or by a light colour channel by channel."""
    factors = (factor,) * 3 if isinstance(factor, (int, float)) else factor
    return tuple(min(1.0, channel * part) for channel, part in zip(colour, factors))


def crescent(centre: Point, radius: float, width: float, tilt: float, points: int = 24) -> list[Point]:
    """Outline of a moon sickle: an outer half circle and a flatter inner one back.

    `width` is the thickness of the sickle at its middle as a share of the radius, `tilt` its angle in radians.
    """
    angles = [math.pi * (i / points - 0.5) for i in range(points + 1)]
    outer = [(math.cos(a), math.sin(a)) for a in angles]
    inner = [((1 - width) * math.cos(a), math.sin(a)) for a in reversed(angles)]
    cosine, sine = math.cos(tilt), math.sin(tilt)
    return [
        (centre[0] + radius * (x * cosine - y * sine), centre[1] + radius * (x * sine + y * cosine))
        for x, y in outer + inner
    ]


class Painter:
    """Paints on a square canvas `oversampling` times larger than the picture, for smooth edges."""

    def __init__(self, canvas_size: int):
        self.size = canvas_size
        self._start(Image.new("RGB", (canvas_size, canvas_size)))

    def _start(self, image: Image.Image) -> None:
        self.image = image
        self.draw = ImageDraw.Draw(image)

    @staticmethod
    def _pixel(colour: Colour) -> tuple[int, int, int]:
        return tuple(max(0, min(255, round(255 * channel))) for channel in colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        self.draw.polygon([(x * self.size, y * self.size) for x, y in points], fill=self._pixel(colour))

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour)

    def ellipse(self, centre: Point, radii: Point, colour: Colour) -> None:
        (x, y), (wide, high) = centre, radii
        corners = [(x - wide) * self.size, (y - high) * self.size, (x + wide) * self.size, (y + high) * self.size]
        self.draw.ellipse(corners, fill=self._pixel(colour))

    def capsule(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        """A box with fully rounded ends."""
        radius = min(right - left, bottom - top) / 2 * self.size
        corners = [left * self.size, top * self.size, right * self.size, bottom * self.size]
        self.draw.rounded_rectangle(corners, radius, fill=self._pixel(colour))

    def raster(self, top: float, bottom: float, values: numpy.ndarray) -> None:
        """Fill the band between `top` and `bottom` with a small picture (rows, columns, 3), enlarged smoothly."""
        low, high = round(top * self.size), round(bottom * self.size)
        small = Image.fromarray((values.clip(0, 1) * 255).round().astype(numpy.uint8))
        self.image.paste(small.resize((self.size, high - low), Image.Resampling.BICUBIC), (0, low))

    def gradient(self, top: float, bottom: float, stops: Sequence[Colour]) -> None:
        """A vertical gradient through evenly spaced colours."""
        self.raster(top, bottom, vertical_gradient(stops))

    def ground(self, crest: Sequence[Point], upper: Colour, lower: Colour, depth: float) -> None:
        """Everything below the line `crest`: `upper` at its highest point, `lower` from `depth` below it."""
        top = min(y for _, y in crest)
        mask = Image.new("L", self.image.size)
        outline = [*crest, (1.0, 1.0), (0.0, 1.0)]
        ImageDraw.Draw(mask).polygon([(x * self.size, y * self.size) for x, y in outline], fill=255)
        layer = Painter(self.size)
        layer.draw.rectangle([0, 0, self.size, self.size], fill=self._pixel(lower))
        layer.gradient(max(top, 0.0), min(top + depth, 1.0), (upper, lower))
        self.image.paste(layer.image, mask=mask)

    def picture(self, pixels: int) -> Image.Image:
        """The painting reduced to `pixels` x `pixels`."""
        return self.image.resize((pixels, pixels), Image.Resampling.BOX)


def vertical_gradient(stops: Sequence[Colour]) -> numpy.ndarray:
    """(SKY_RASTER, SKY_RASTER, 3) floats that change from the first colour at the top to the last at the bottom."""
    places = numpy.linspace(0, 1, len(stops))
    rows = numpy.linspace(0, 1, SKY_RASTER)
    column = numpy.stack([numpy.interp(rows, places, channel) for channel in zip(*stops)], axis=-1)
    return numpy.repeat(column[:, None], SKY_RASTER, axis=1)
