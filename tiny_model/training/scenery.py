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
    "day": Light(((.20, .46, .86), (.45, .70, .95), (.80, .92, .99)), (1.0, 1.0, 1.0), (1.0, .90, .42), .45,
                 (1.0, 1.0, 1.0), (.80, .87, .95), (.42, .60, .74)),
    "sunset": Light(((.30, .20, .50), (.88, .40, .46), (1.0, .76, .42)), (.92, .70, .66), (1.0, .90, .60), .75,
                    (1.0, .74, .66), (.72, .42, .54), (1.0, .86, .46)),
    "night": Light(((.03, .05, .17), (.08, .12, .32), (.20, .27, .50)), (.36, .42, .62), (.97, .95, .82), .30,
                   (.33, .38, .58), (.20, .24, .42), (1.0, .84, .40)),
}


def varied(rng: Random, colour: Colour, amount: float = 0.035) -> Colour:
    return tuple(min(1.0, max(0.0, channel + rng.gauss(0, amount))) for channel in colour)


def wave(rng: Random, height: float, amplitude: float, points: int = 65) -> list[Point]:
    """A gently rolling line from the left to the right edge at about `height`."""
    parts = [(rng.uniform(.5, 1.0) / n, n * rng.uniform(.6, .9), rng.uniform(0, 2 * math.pi)) for n in (1, 2)]
    line = []
    for i in range(points):
        x = i / (points - 1)
        swing = sum(size * math.sin(2 * math.pi * turns * x + phase) for size, turns, phase in parts)
        line.append((x, height - amplitude * swing))
    return line


def paint_sky(painter: Painter, rng: Random, light: Light, horizon: float, disc: Point | None) -> None:
    """Sky gradient with a soft glow around the sun or moon at `disc`."""
    bottom = horizon + .12     # hills may dip below the horizon
    sky = vertical_gradient([varied(rng, colour, .02) for colour in light.sky])
    if disc is not None:
        across, down = numpy.meshgrid(*(numpy.linspace(0, 1, SKY_RASTER),) * 2)
        distance = numpy.hypot(across - disc[0], down * bottom - disc[1])
        glow = light.glow * numpy.exp(-distance / .16)[..., None]
        sky = sky + glow * (numpy.array(light.disc) - sky)
    painter.raster(0.0, bottom, sky)


def paint_stars(painter: Painter, rng: Random, horizon: float) -> None:
    for _ in range(rng.randint(26, 46)):
        place = (rng.random(), rng.random() * (horizon - .08))
        radius = rng.choice((.004, .004, .005, .007))
        painter.ellipse(place, (radius, radius), mix((.55, .62, .85), (1.0, 1.0, .92), rng.random()))


def paint_sun(painter: Painter, light: Light, place: Point, radius: float) -> None:
    painter.ellipse(place, (radius, radius), light.disc)
    painter.ellipse(place, (radius * .8,) * 2, mix(light.disc, WHITE, .45))


def paint_moon(painter: Painter, rng: Random, light: Light, place: Point, radius: float) -> None:
    painter.polygon(crescent(place, radius, rng.uniform(.5, .8), rng.choice((-.5, math.pi + .5))), light.disc)


def paint_cloud(painter: Painter, rng: Random, light: Light, place: Point, width: float) -> None:
    """Puffs on a flat base: first all in shadow colour, then a little higher in light."""
    offsets = (-.36, -.14, .12, .36)
    puffs = [(place[0] + width * offset, width * rng.uniform(*limits))
             for offset, limits in zip(offsets, ((.12, .16), (.19, .25), (.17, .24), (.10, .15)))]
    base = place[1]
    for colour, lift, share in ((light.cloud_shadow, 0.0, 1.0), (light.cloud, .035 * width, .93)):
        thickness = width * .11 * share
        painter.capsule(place[0] - width * .5 * share, base - thickness - lift,
                        place[0] + width * .5 * share, base + thickness - lift, colour)
        for x, radius in puffs:
            painter.ellipse((x, base - radius * .55 - lift), (radius * share, radius * share * .9), colour)


def slope(rng: Random, summit: Point, foot: Point, roughness: float) -> list[Point]:
    """A ragged line from a summit to a foot."""
    line = [summit]
    for share in (.22, .42, .6, .8):
        x, y = (a + (b - a) * share for a, b in zip(summit, foot))
        line.append((x + rng.uniform(-1, 1) * roughness, y + rng.uniform(-1, 1) * roughness))
    return [*line, foot]


def paint_peak(painter: Painter, rng: Random, light: Light, summit: Point, base: float, haze: float) -> None:
    """One mountain with a lit and a shadowed face and a snow cap."""
    height = base - summit[1]
    half = height * rng.uniform(.75, 1.0)
    rock = mix(shade(varied(rng, (.50, .47, .53), .02), light.on_things), light.sky[2], haze)
    snow = mix(shade((.96, .97, 1.0), light.on_things), light.sky[2], haze * .6)
    left = slope(rng, summit, (summit[0] - half, base), height * .035)
    right = slope(rng, summit, (summit[0] + half, base), height * .035)
    ridge = slope(rng, summit, (summit[0] + half * rng.uniform(.0, .3), base), height * .06)
    painter.polygon([*left, *reversed(right)], shade(rock, .70))
    painter.polygon([*left, *reversed(ridge)], rock)
    edge = [left[2], (summit[0] - half * .22, summit[1] + height * .33),
            (summit[0] - half * .12, summit[1] + height * .50), ridge[2]]
    painter.polygon([*left[:2], *edge, *reversed(ridge[:2])], snow)
    dark_edge = [ridge[2], (summit[0] + half * .24, summit[1] + height * .32), right[1]]
    painter.polygon([*ridge[:2], *dark_edge, summit], shade(snow, .78))


def paint_mountains(painter: Painter, rng: Random, light: Light, horizon: float) -> None:
    for x in (rng.uniform(-.1, .2), rng.uniform(.3, .6), rng.uniform(.75, 1.1)):
        paint_peak(painter, rng, light, (x, horizon - rng.uniform(.16, .24)), horizon + .08, .5)
    for x in sorted((rng.uniform(.05, .40), rng.uniform(.55, .95)), key=lambda _: rng.random()):
        paint_peak(painter, rng, light, (x, horizon - rng.uniform(.26, .42)), horizon + .08, .12)


def paint_land(painter: Painter, rng: Random, light: Light, horizon: float, colour: Colour,
               layers: int, amplitude: float) -> None:
    """Rolling ground in `layers` from the horizon to the front, hazy far away and darker near."""
    for layer in range(layers):
        nearness = layer / max(1, layers - 1)
        height = horizon + (1 - horizon) * (.02 + .62 * nearness)
        near = shade(varied(rng, colour, .015), light.on_things)
        upper = mix(mix(near, WHITE, .10), light.sky[2], .38 * (1 - nearness))
        lower = shade(upper, .72)
        painter.ground(wave(rng, height, amplitude * (.7 + .6 * nearness)), upper, lower, .42)


def paint_sea(painter: Painter, rng: Random, light: Light, horizon: float, disc: Point | None) -> None:
    """Water that mirrors the sky near the horizon, with ripples and a glitter path below the sun or moon."""
    deep = shade((.07, .34, .56), mix(light.on_things, WHITE, .1))
    painter.gradient(horizon, 1.0, (mix(light.sky[2], deep, .25), mix(light.sky[1], deep, .72), deep))
    for _ in range(22):
        nearness = rng.random()
        y = horizon + (1 - horizon) * (.04 + .94 * nearness)
        length = .03 + .09 * nearness
        colour = mix(mix(light.sky[2], deep, .45 + .4 * nearness), light.sky[2], .22)
        painter.ellipse((rng.random(), y), (length, .0025 + .0035 * nearness), colour)
    if disc is None:
        return
    for step in range(13):
        nearness = (step + .6) / 13
        y = horizon + (1 - horizon) * nearness
        width = (.025 + .06 * nearness) * rng.uniform(.6, 1.25)
        place = (disc[0] + rng.uniform(-.035, .035) * nearness, y)
        painter.ellipse(place, (width, .005 + .006 * nearness), mix(light.disc, deep, .15 + .35 * nearness))


def paint_pine(painter: Painter, rng: Random, light: Light, foot: Point, height: float, snow: bool) -> None:
    x, y = foot
    green = shade(varied(rng, (.12, .40, .26), .025), light.on_things)
    painter.box(x - height * .05, y - height * .2, x + height * .05, y, shade((.36, .24, .16), light.on_things))
    for bottom, top, half in ((.14, .55, .30), (.38, .78, .24), (.62, 1.0, .17)):
        corners = [(x - height * half, y - height * bottom), (x, y - height * top), (x + height * half, y - height * bottom)]
        painter.polygon(corners, green)
        painter.polygon([(x, y - height * bottom), corners[1], corners[2]], shade(green, .76))
        if snow:
            white = shade((.96, .98, 1.0), light.on_things)
            middle = (bottom + 1.2 * top) / 2.2
            painter.polygon([(x - height * half * .5, y - height * middle), corners[1],
                             (x + height * half * .5, y - height * middle)], white)


def paint_round_tree(painter: Painter, rng: Random, light: Light, foot: Point, height: float) -> None:
    x, y = foot
    green = shade(varied(rng, (.25, .52, .20), .03), light.on_things)
    painter.box(x - height * .06, y - height * .45, x + height * .06, y, shade((.40, .27, .17), light.on_things))
    for colour, lift, share in ((shade(green, .74), 0.0, 1.0), (green, .05, .86)):
        for across, up, radius in ((-.18, .52, .21), (.18, .54, .21), (0.0, .74, .26)):
            centre = (x + height * (across - lift * .6), y - height * (up + lift))
            painter.ellipse(centre, (height * radius * share,) * 2, colour)


def paint_house(painter: Painter, rng: Random, light: Light, foot: Point, width: float, snow: bool) -> None:
    """A cottage with a gable roof, chimney, door and two windows; `foot` is the middle of its bottom edge."""
    x, y = foot
    wall = shade(rng.choice(((.96, .90, .78), (.86, .48, .40), (.74, .82, .90))), light.on_things)
    roof = shade((.94, .96, 1.0) if snow else rng.choice(((.60, .24, .20), (.36, .30, .40))), light.on_things)
    wood = shade((.38, .23, .16), light.on_things)
    half, high = width * .42, width * .52
    painter.box(x + half * .42, y - high * 1.85, x + half * .72, y - high * 1.1, shade(wood, 1.3))
    painter.box(x - half, y - high, x + half, y, wall)
    painter.box(x + half * .55, y - high, x + half, y, shade(wall, .85))
    painter.polygon([(x - half * 1.25, y - high * .95), (x, y - high * 1.85), (x + half * 1.25, y - high * .95)], roof)
    painter.box(x - half * .17, y - high * .60, x + half * .23, y, wood)
    for middle in (-.60, .66):
        painter.box(x + half * (middle - .2), y - high * .72, x + half * (middle + .2), y - high * .30, light.window)


def paint_boat(painter: Painter, rng: Random, light: Light, waterline: Point, width: float) -> None:
    """A sailing boat with two sails; `waterline` is the middle of its hull at the water."""
    x, y = waterline
    hull = shade(rng.choice(((.66, .22, .18), (.40, .26, .18), (.16, .30, .46))), light.on_things)
    sail = shade(rng.choice(((.99, .97, .92), (.99, .97, .92), (.95, .62, .40))), mix(light.on_things, WHITE, .2))
    side = rng.choice((-1, 1))
    painter.ellipse((x, y + width * .02), (width * .52, width * .05), shade(hull, .55))
    painter.polygon([(x - width * .5, y - width * .18), (x + width * .5, y - width * .18),
                     (x + width * .34, y + width * .02), (x - width * .34, y + width * .02)], hull)
    painter.box(x - width * .5, y - width * .20, x + width * .5, y - width * .15, mix(hull, WHITE, .55))
    painter.box(x - width * .02, y - width * 1.12, x + width * .02, y - width * .18, shade((.40, .28, .20), light.on_things))
    painter.polygon([(x + side * width * .05, y - width * 1.08), (x + side * width * .46, y - width * .28),
                     (x + side * width * .05, y - width * .28)], sail)
    painter.polygon([(x - side * width * .05, y - width * .92), (x - side * width * .36, y - width * .28),
                     (x - side * width * .05, y - width * .28)], shade(sail, .86))


def paint_cactus(painter: Painter, rng: Random, light: Light, foot: Point, height: float) -> None:
    """A saguaro: trunk and two bent arms, each with a lit left edge."""
    x, y = foot
    green = shade(varied(rng, (.22, .50, .28), .02), light.on_things)
    thick = height * .10
    low, high = sorted((rng.uniform(.34, .44), rng.uniform(.46, .58)))
    side = rng.choice((-1, 1))
    painter.ellipse((x + thick, y), (height * .28, height * .035), shade((.60, .46, .30), shade(light.on_things, .8)))
    for direction, joint, tip in ((side, low, .72), (-side, high, .86)):
        arm = x + direction * height * .25
        near, far = sorted((x, arm + direction * thick * .7))
        painter.capsule(near, y - height * joint - thick * .75, far, y - height * joint + thick * .75, shade(green, .85))
        painter.capsule(arm - thick * .75, y - height * tip, arm + thick * .75, y - height * joint + thick * .75, green)
    painter.capsule(x - thick, y - height, x + thick, y + thick * .3, green)
    painter.capsule(x + thick * .2, y - height * .97, x + thick, y, shade(green, .80))
