"""The things a landscape is made of. Each function paints one of them with random details.

Sizes and places are in picture widths; `light` holds the colours of the time of day.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import numpy

from .painter import SKY_RASTER, WHITE, Colour, Painter, Point, crescent, mix, shade, vertical_gradient


@dataclass(frozen=True)
class Light:
    """Colours of one time of day: sky from top to horizon, light on things, sun or moon, clouds, windows."""

    sky: tuple[Colour, Colour, Colour]
    on_things: Colour
    disc: Colour
    glow: float
    cloud: Colour
    cloud_shadow: Colour
    window: Colour


LIGHTS = {
    "day": Light(
        ((0.20, 0.46, 0.86), (0.45, 0.70, 0.95), (0.80, 0.92, 0.99)),
        (1.0, 1.0, 1.0),
        (1.0, 0.90, 0.42),
        0.45,
        (1.0, 1.0, 1.0),
        (0.80, 0.87, 0.95),
        (0.42, 0.60, 0.74),
    ),
    "sunset": Light(
        ((0.30, 0.20, 0.50), (0.88, 0.40, 0.46), (1.0, 0.76, 0.42)),
        (0.92, 0.70, 0.66),
        (1.0, 0.90, 0.60),
        0.75,
        (1.0, 0.74, 0.66),
        (0.72, 0.42, 0.54),
        (1.0, 0.86, 0.46),
    ),
    "night": Light(
        ((0.03, 0.05, 0.17), (0.08, 0.12, 0.32), (0.20, 0.27, 0.50)),
        (0.36, 0.42, 0.62),
        (0.97, 0.95, 0.82),
        0.30,
        (0.33, 0.38, 0.58),
        (0.20, 0.24, 0.42),
        (1.0, 0.84, 0.40),
    ),
}


def varied(rng: Random, colour: Colour, amount: float = 0.035) -> Colour:
    return tuple(min(1.0, max(0.0, channel + rng.gauss(0, amount))) for channel in colour)


def wave(rng: Random, height: float, amplitude: float, points: int = 65) -> list[Point]:
    """A gently rolling line from the left to the right edge at about `height`."""
    parts = [(rng.uniform(0.5, 1.0) / n, n * rng.uniform(0.6, 0.9), rng.uniform(0, 2 * math.pi)) for n in (1, 2)]
    line = []
    for i in range(points):
        x = i / (points - 1)
        swing = sum(size * math.sin(2 * math.pi * turns * x + phase) for size, turns, phase in parts)
        line.append((x, height - amplitude * swing))
    return line


def paint_sky(painter: Painter, rng: Random, light: Light, horizon: float, disc: Point | None) -> None:
    """Sky gradient with a soft glow around the sun or moon at `disc`."""
    bottom = horizon + 0.12  # hills may dip below the horizon
    sky = vertical_gradient([varied(rng, colour, 0.02) for colour in light.sky])
    if disc is not None:
        across, down = numpy.meshgrid(*(numpy.linspace(0, 1, SKY_RASTER),) * 2)
        distance = numpy.hypot(across - disc[0], down * bottom - disc[1])
        glow = light.glow * numpy.exp(-distance / 0.16)[..., None]
        sky = sky + glow * (numpy.array(light.disc) - sky)
    painter.raster(0.0, bottom, sky)


def paint_stars(painter: Painter, rng: Random, horizon: float) -> None:
    for _ in range(rng.randint(26, 46)):
        place = (rng.random(), rng.random() * (horizon - 0.08))
        radius = rng.choice((0.004, 0.004, 0.005, 0.007))
        painter.ellipse(place, (radius, radius), mix((0.55, 0.62, 0.85), (1.0, 1.0, 0.92), rng.random()))


def paint_sun(painter: Painter, light: Light, place: Point, radius: float) -> None:
    painter.ellipse(place, (radius, radius), light.disc)
    painter.ellipse(place, (radius * 0.8,) * 2, mix(light.disc, WHITE, 0.45))


def paint_moon(painter: Painter, rng: Random, light: Light, place: Point, radius: float) -> None:
    painter.polygon(crescent(place, radius, rng.uniform(0.5, 0.8), rng.choice((-0.5, math.pi + 0.5))), light.disc)


def paint_cloud(painter: Painter, rng: Random, light: Light, place: Point, width: float) -> None:
    """Puffs on a flat base: first all in shadow colour, then a little higher in light."""
    offsets = (-0.36, -0.14, 0.12, 0.36)
    puffs = [
        (place[0] + width * offset, width * rng.uniform(*limits))
        for offset, limits in zip(offsets, ((0.12, 0.16), (0.19, 0.25), (0.17, 0.24), (0.10, 0.15)))
    ]
    base = place[1]
    for colour, lift, share in ((light.cloud_shadow, 0.0, 1.0), (light.cloud, 0.035 * width, 0.93)):
        thickness = width * 0.11 * share
        painter.capsule(
            place[0] - width * 0.5 * share,
            base - thickness - lift,
            place[0] + width * 0.5 * share,
            base + thickness - lift,
            colour,
        )
        for x, radius in puffs:
            painter.ellipse((x, base - radius * 0.55 - lift), (radius * share, radius * share * 0.9), colour)


def slope(rng: Random, summit: Point, foot: Point, roughness: float) -> list[Point]:
    """A ragged line from a summit to a foot."""
    line = [summit]
    for share in (0.22, 0.42, 0.6, 0.8):
        x, y = (a + (b - a) * share for a, b in zip(summit, foot))
        line.append((x + rng.uniform(-1, 1) * roughness, y + rng.uniform(-1, 1) * roughness))
    return [*line, foot]


def paint_peak(painter: Painter, rng: Random, light: Light, summit: Point, base: float, haze: float) -> None:
    """One mountain with a lit and a shadowed face and a snow cap."""
    height = base - summit[1]
    half = height * rng.uniform(0.75, 1.0)
    rock = mix(shade(varied(rng, (0.50, 0.47, 0.53), 0.02), light.on_things), light.sky[2], haze)
    snow = mix(shade((0.96, 0.97, 1.0), light.on_things), light.sky[2], haze * 0.6)
    left = slope(rng, summit, (summit[0] - half, base), height * 0.035)
    right = slope(rng, summit, (summit[0] + half, base), height * 0.035)
    ridge = slope(rng, summit, (summit[0] + half * rng.uniform(0.0, 0.3), base), height * 0.06)
    painter.polygon([*left, *reversed(right)], shade(rock, 0.70))
    painter.polygon([*left, *reversed(ridge)], rock)
    edge = [
        left[2],
        (summit[0] - half * 0.22, summit[1] + height * 0.33),
        (summit[0] - half * 0.12, summit[1] + height * 0.50),
        ridge[2],
    ]
    painter.polygon([*left[:2], *edge, *reversed(ridge[:2])], snow)
    dark_edge = [ridge[2], (summit[0] + half * 0.24, summit[1] + height * 0.32), right[1]]
    painter.polygon([*ridge[:2], *dark_edge, summit], shade(snow, 0.78))


def paint_mountains(painter: Painter, rng: Random, light: Light, horizon: float) -> None:
    for x in (rng.uniform(-0.1, 0.2), rng.uniform(0.3, 0.6), rng.uniform(0.75, 1.1)):
        paint_peak(painter, rng, light, (x, horizon - rng.uniform(0.16, 0.24)), horizon + 0.08, 0.5)
    for x in sorted((rng.uniform(0.05, 0.40), rng.uniform(0.55, 0.95)), key=lambda _: rng.random()):
        paint_peak(painter, rng, light, (x, horizon - rng.uniform(0.26, 0.42)), horizon + 0.08, 0.12)


def paint_land(
    painter: Painter, rng: Random, light: Light, horizon: float, colour: Colour, layers: int, amplitude: float
) -> None:
    """Rolling ground in `layers` from the horizon to the front, hazy far away and darker near."""
    for layer in range(layers):
        nearness = layer / max(1, layers - 1)
        height = horizon + (1 - horizon) * (0.02 + 0.62 * nearness)
        near = shade(varied(rng, colour, 0.015), light.on_things)
        upper = mix(mix(near, WHITE, 0.10), light.sky[2], 0.38 * (1 - nearness))
        lower = shade(upper, 0.72)
        painter.ground(wave(rng, height, amplitude * (0.7 + 0.6 * nearness)), upper, lower, 0.42)


def paint_sea(painter: Painter, rng: Random, light: Light, horizon: float, disc: Point | None) -> None:
    """Water that mirrors the sky near the horizon, with ripples and a glitter path below the sun or moon."""
    deep = shade((0.07, 0.34, 0.56), mix(light.on_things, WHITE, 0.1))
    painter.gradient(horizon, 1.0, (mix(light.sky[2], deep, 0.25), mix(light.sky[1], deep, 0.72), deep))
    for _ in range(22):
        nearness = rng.random()
        y = horizon + (1 - horizon) * (0.04 + 0.94 * nearness)
        length = 0.03 + 0.09 * nearness
        colour = mix(mix(light.sky[2], deep, 0.45 + 0.4 * nearness), light.sky[2], 0.22)
        painter.ellipse((rng.random(), y), (length, 0.0025 + 0.0035 * nearness), colour)
    if disc is None:
        return
    for step in range(13):
        nearness = (step + 0.6) / 13
        y = horizon + (1 - horizon) * nearness
        width = (0.025 + 0.06 * nearness) * rng.uniform(0.6, 1.25)
        place = (disc[0] + rng.uniform(-0.035, 0.035) * nearness, y)
        painter.ellipse(place, (width, 0.005 + 0.006 * nearness), mix(light.disc, deep, 0.15 + 0.35 * nearness))


def paint_pine(painter: Painter, rng: Random, light: Light, foot: Point, height: float, snow: bool) -> None:
    x, y = foot
    green = shade(varied(rng, (0.12, 0.40, 0.26), 0.025), light.on_things)
    painter.box(x - height * 0.05, y - height * 0.2, x + height * 0.05, y, shade((0.36, 0.24, 0.16), light.on_things))
    for bottom, top, half in ((0.14, 0.55, 0.30), (0.38, 0.78, 0.24), (0.62, 1.0, 0.17)):
        corners = [
            (x - height * half, y - height * bottom),
            (x, y - height * top),
            (x + height * half, y - height * bottom),
        ]
        painter.polygon(corners, green)
        painter.polygon([(x, y - height * bottom), corners[1], corners[2]], shade(green, 0.76))
        if snow:
            white = shade((0.96, 0.98, 1.0), light.on_things)
            middle = (bottom + 1.2 * top) / 2.2
            painter.polygon(
                [
                    (x - height * half * 0.5, y - height * middle),
                    corners[1],
                    (x + height * half * 0.5, y - height * middle),
                ],
                white,
            )


def paint_round_tree(painter: Painter, rng: Random, light: Light, foot: Point, height: float) -> None:
    x, y = foot
    green = shade(varied(rng, (0.25, 0.52, 0.20), 0.03), light.on_things)
    painter.box(x - height * 0.06, y - height * 0.45, x + height * 0.06, y, shade((0.40, 0.27, 0.17), light.on_things))
    for colour, lift, share in ((shade(green, 0.74), 0.0, 1.0), (green, 0.05, 0.86)):
        for across, up, radius in ((-0.18, 0.52, 0.21), (0.18, 0.54, 0.21), (0.0, 0.74, 0.26)):
            centre = (x + height * (across - lift * 0.6), y - height * (up + lift))
            painter.ellipse(centre, (height * radius * share,) * 2, colour)


def paint_house(painter: Painter, rng: Random, light: Light, foot: Point, width: float, snow: bool) -> None:
    """A cottage with a gable roof, chimney, door and two windows; `foot` is the middle of its bottom edge."""
    x, y = foot
    wall = shade(rng.choice(((0.96, 0.90, 0.78), (0.86, 0.48, 0.40), (0.74, 0.82, 0.90))), light.on_things)
    roof = shade((0.94, 0.96, 1.0) if snow else rng.choice(((0.60, 0.24, 0.20), (0.36, 0.30, 0.40))), light.on_things)
    wood = shade((0.38, 0.23, 0.16), light.on_things)
    half, high = width * 0.42, width * 0.52
    painter.box(x + half * 0.42, y - high * 1.85, x + half * 0.72, y - high * 1.1, shade(wood, 1.3))
    painter.box(x - half, y - high, x + half, y, wall)
    painter.box(x + half * 0.55, y - high, x + half, y, shade(wall, 0.85))
    painter.polygon(
        [(x - half * 1.25, y - high * 0.95), (x, y - high * 1.85), (x + half * 1.25, y - high * 0.95)], roof
    )
    painter.box(x - half * 0.17, y - high * 0.60, x + half * 0.23, y, wood)
    for middle in (-0.60, 0.66):
        painter.box(
            x + half * (middle - 0.2), y - high * 0.72, x + half * (middle + 0.2), y - high * 0.30, light.window
        )


def paint_boat(painter: Painter, rng: Random, light: Light, waterline: Point, width: float) -> None:
    """A sailing boat with two sails; `waterline` is the middle of its hull at the water."""
    x, y = waterline
    hull = shade(rng.choice(((0.66, 0.22, 0.18), (0.40, 0.26, 0.18), (0.16, 0.30, 0.46))), light.on_things)
    sail = shade(
        rng.choice(((0.99, 0.97, 0.92), (0.99, 0.97, 0.92), (0.95, 0.62, 0.40))), mix(light.on_things, WHITE, 0.2)
    )
    side = rng.choice((-1, 1))
    painter.ellipse((x, y + width * 0.02), (width * 0.52, width * 0.05), shade(hull, 0.55))
    painter.polygon(
        [
            (x - width * 0.5, y - width * 0.18),
            (x + width * 0.5, y - width * 0.18),
            (x + width * 0.34, y + width * 0.02),
            (x - width * 0.34, y + width * 0.02),
        ],
        hull,
    )
    painter.box(x - width * 0.5, y - width * 0.20, x + width * 0.5, y - width * 0.15, mix(hull, WHITE, 0.55))
    painter.box(
        x - width * 0.02,
        y - width * 1.12,
        x + width * 0.02,
        y - width * 0.18,
        shade((0.40, 0.28, 0.20), light.on_things),
    )
    painter.polygon(
        [
            (x + side * width * 0.05, y - width * 1.08),
            (x + side * width * 0.46, y - width * 0.28),
            (x + side * width * 0.05, y - width * 0.28),
        ],
        sail,
    )
    painter.polygon(
        [
            (x - side * width * 0.05, y - width * 0.92),
            (x - side * width * 0.36, y - width * 0.28),
            (x - side * width * 0.05, y - width * 0.28),
        ],
        shade(sail, 0.86),
    )


def paint_cactus(painter: Painter, rng: Random, light: Light, foot: Point, height: float) -> None:
    """A saguaro: trunk and two bent arms, each with a lit left edge."""
    x, y = foot
    green = shade(varied(rng, (0.22, 0.50, 0.28), 0.02), light.on_things)
    thick = height * 0.10
    low, high = sorted((rng.uniform(0.34, 0.44), rng.uniform(0.46, 0.58)))
    side = rng.choice((-1, 1))
    painter.ellipse(
        (x + thick, y), (height * 0.28, height * 0.035), shade((0.60, 0.46, 0.30), shade(light.on_things, 0.8))
    )
    for direction, joint, tip in ((side, low, 0.72), (-side, high, 0.86)):
        arm = x + direction * height * 0.25
        near, far = sorted((x, arm + direction * thick * 0.7))
        painter.capsule(
            near, y - height * joint - thick * 0.75, far, y - height * joint + thick * 0.75, shade(green, 0.85)
        )
        painter.capsule(
            arm - thick * 0.75, y - height * tip, arm + thick * 0.75, y - height * joint + thick * 0.75, green
        )
    painter.capsule(x - thick, y - height, x + thick, y + thick * 0.3, green)
    painter.capsule(x + thick * 0.2, y - height * 0.97, x + thick, y, shade(green, 0.80))
