"""Recipes of tiny models by family. To add an architecture, add an entry to its family's RECIPES."""

from . import (
    audio,
    cosmos,
    flux,
    hunyuan,
    image,
    ltx,
    lumina,
    minimax,
    omnigen,
    pixart,
    pixel,
    qwen,
    sd3,
    seedvr,
    three_d,
    video,
    wan,
)
from .recipe import Draw, Recipe

FAMILIES = (
    flux, wan, qwen, lumina, hunyuan, sd3, ltx, image, omnigen, pixart, cosmos, video, minimax, three_d, audio, pixel, seedvr
)  # fmt: skip

RECIPES: dict[str, Recipe] = {name: recipe for family in FAMILIES for name, recipe in family.RECIPES.items()}

__all__ = ["RECIPES", "Draw", "Recipe"]
