"""Random landscapes together with the words that describe them.

A scene is fully decided by its number: `paint_scene(number)` always paints the same picture.
"""

from __future__ import annotations

from random import Random

from .painter import Painter
from .scenery import (
    LIGHTS,
    Light,
    paint_boat,
    paint_cactus,
    paint_cloud,
    paint_house,
    paint_land,
    paint_moon,
    paint_mountains,
    paint_pine,
    paint_round_tree,
    paint_sea,
    paint_sky,
    paint_stars,
    paint_sun,
)

PADDING, NULL = "<pad>", "<null>"
WORDS = (
    PADDING,
    NULL,
    "day",
    "sunset",
    "night",
    "sun",
    "moon",
    "clouds",
    "stars",
    "mountains",
    "hills",
    "sea",
    "desert",
    "trees",
    "house",
    "boat",
    "cactus",
    "snow",
)
PROMPT_TOKENS = 10  # the null word and up to nine words
TIMES = ("day", "sunset", "night")
LANDS = ("mountains", "hills", "sea", "desert")
GRASS, SAND, SNOW = (0.40, 0.66, 0.28), (0.93, 0.76, 0.48), (0.93, 0.95, 1.0)


def choose_words(rng: Random) -> list[str]:
    """A random description: one time of day, one land, and things that fit them."""
    time, land = rng.choice(TIMES), rng.choice(LANDS)
    chances = {"moon" if time == "night" else "sun": 0.7, "clouds": 0.45}
    if time == "night":
        chances["stars"] = 0.6
    if land in ("mountains", "hills"):
        chances |= {"trees": 0.55, "house": 0.5, "snow": 0.3}
    elif land == "sea":
        chances["boat"] = 0.65
    else:
        chances["cactus"] = 0.65
    return [time, land, *(word for word, chance in chances.items() if rng.random() < chance)]


def token_ids(words: list[str]) -> list[int]:
    """Indices into WORDS: the null word, the words, padding. Always PROMPT_TOKENS long."""
    known = [WORDS.index(word) for word in words[: PROMPT_TOKENS - 1]]
    return [WORDS.index(NULL), *known, *[WORDS.index(PADDING)] * (PROMPT_TOKENS - 1 - len(known))]


def paint_heavens(painter: Painter, rng: Random, light: Light, words: list[str], horizon: float):
    """Sky with stars, sun or moon and clouds. Returns the place of the sun or moon, or None."""
    disc = (rng.uniform(0.15, 0.85), rng.uniform(0.13, 0.34)) if "sun" in words or "moon" in words else None
    paint_sky(painter, rng, light, horizon, disc)
    if "stars" in words:
        paint_stars(painter, rng, horizon)
    if "sun" in words:
        paint_sun(painter, light, disc, rng.uniform(0.07, 0.10))
    if "moon" in words:
        paint_moon(painter, rng, light, disc, rng.uniform(0.08, 0.10))
    if "clouds" in words:
        for centre in rng.sample((0.15, 0.5, 0.85), rng.randint(2, 3)):
            place = (centre + rng.uniform(-0.1, 0.1), rng.uniform(0.10, 0.34))
            paint_cloud(painter, rng, light, place, rng.uniform(0.22, 0.34))
    return disc


def paint_ground(painter: Painter, rng: Random, light: Light, words: list[str], horizon: float, disc) -> None:
    if "sea" in words:
        paint_sea(painter, rng, light, horizon, disc)
    elif "desert" in words:
        paint_land(painter, rng, light, horizon, SAND, 4, 0.045)
    elif "mountains" in words:
        paint_mountains(painter, rng, light, horizon)
        paint_land(painter, rng, light, horizon + 0.02, SNOW if "snow" in words else GRASS, 2, 0.015)
    else:
        paint_land(painter, rng, light, horizon - 0.04, SNOW if "snow" in words else GRASS, 4, 0.06)


def tree_places(rng: Random, horizon: float, house_x: float | None) -> list[tuple[float, float]]:
    """Four to seven places on the land, far ones first, none in front of the house."""
    places = []
    for _ in range(rng.randint(4, 7)):
        x, y = rng.random(), horizon + (1 - horizon) * rng.uniform(0.14, 0.8)
        if house_x is None or abs(x - house_x) > 0.22:
            places.append((x, y))
    return sorted(places, key=lambda place: place[1])


def paint_things(painter: Painter, rng: Random, light: Light, words: list[str], horizon: float) -> None:
    depth = 1 - horizon
    snow = "snow" in words
    house_x = rng.choice((0.28, 0.72)) + rng.uniform(-0.08, 0.08) if "house" in words else None
    if "house" in words:
        paint_house(
            painter, rng, light, (house_x, horizon + depth * rng.uniform(0.45, 0.65)), rng.uniform(0.24, 0.32), snow
        )
    if "trees" in words:
        pines = snow or rng.random() < 0.6
        for x, y in tree_places(rng, horizon, house_x):
            height = (0.15 + 0.22 * (y - horizon) / depth) * rng.uniform(0.85, 1.15)
            if pines:
                paint_pine(painter, rng, light, (x, y), height, snow)
            else:
                paint_round_tree(painter, rng, light, (x, y), height * 0.85)
    if "boat" in words:
        place = (rng.choice((0.28, 0.72)) + rng.uniform(-0.12, 0.12), horizon + depth * rng.uniform(0.25, 0.65))
        paint_boat(painter, rng, light, place, rng.uniform(0.22, 0.32))
    if "cactus" in words:
        for centre in rng.sample((0.2, 0.5, 0.8), rng.randint(1, 2)):
            place = (centre + rng.uniform(-0.1, 0.1), horizon + depth * rng.uniform(0.3, 0.75))
            paint_cactus(painter, rng, light, place, rng.uniform(0.24, 0.36))


def paint_scene(number: int, canvas_size: int, words: list[str] | None = None) -> tuple[Painter, list[str]]:
    """Paint scene `number`, with random words unless `words` are given.

    Returns the painter, whose `picture(pixels)` gives the scene in any smaller size, and the words.
    """
    rng = Random(number)
    words = choose_words(rng) if words is None else words
    light = LIGHTS[next(word for word in words if word in TIMES)]
    horizon = rng.uniform(0.54, 0.66)
    painter = Painter(canvas_size)
    disc = paint_heavens(painter, rng, light, words, horizon)
    paint_ground(painter, rng, light, words, horizon, disc)
    paint_things(painter, rng, light, words, horizon)
    return painter, words
