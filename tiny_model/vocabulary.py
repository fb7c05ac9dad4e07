"""The words a tiny model knows, and how a free prompt is reduced to them.

The word list is stored in the metadata of the transformer file, so that words and weights cannot drift apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

SPECIAL_SLOTS = 2  # padding and the null word, which no prompt can name

SYNONYMS = {
    "day": "daytime daylight noon afternoon midday",
    "sunset": "sundown dusk evening dawn sunrise twilight",
    "night": "nighttime midnight dark",
    "sun": "sunny sunshine",
    "moon": "moonlight crescent moonlit",
    "clouds": "cloud cloudy",
    "stars": "star starry starlight",
    "mountains": "mountain peak peaks alps alpine",
    "hills": "hill hilly meadow meadows field fields countryside valley",
    "sea": "ocean water lake seaside waves",
    "desert": "dune dunes sand sahara",
    "trees": "tree forest forests wood woods pine pines",
    "house": "houses home cottage cabin hut",
    "boat": "boats ship sailboat ships yacht",
    "cactus": "cacti cactuses saguaro",
    "snow": "snowy winter snowfall",
    "right": "rightward rightwards",
    "left": "leftward leftwards",
    "down": "downward downwards",
    "up": "upward upwards",
    "still": "static motionless",
}
SILENT = frozenset(
    word
    for words in (
        "a an and at behind by camera few from in is it",
        "moving next of on or over pan panning picture some the there to under video with",
    )
    for word in words.split()
)


@dataclass(frozen=True)
class Vocabulary:
    """`words` in the order of the model's text slots; the first SPECIAL_SLOTS are padding and the null word."""

    words: tuple[str, ...]

    @classmethod
    def of_weights(cls, path: Path) -> Vocabulary:
        """Raises ValueError if the file has no word list in its metadata."""
        with safe_open(path, framework="pt") as weights:
            metadata = weights.metadata() or {}
        if "words" not in metadata:
            raise ValueError(
                f"{path} has no word list in its metadata; restore the file or export it again with "
                "'python train.py export' (the video model: 'python train.py video')."
            )
        return cls(tuple(json.loads(metadata["words"])))

    @property
    def known(self) -> tuple[str, ...]:
        """The words a prompt may use."""
        return self.words[SPECIAL_SLOTS:]

    def slot(self, word: str) -> int | None:
        """Text slot of a word, its plural or a synonym; None if the model does not know it."""
        for known in self.known:
            if word == known or word in SYNONYMS.get(known, "").split():
                return self.words.index(known)
        return None

    def unknown(self, words: Iterable[str]) -> list[str]:
        """Words without a slot, except small words that carry no meaning here."""
        return [word for word in words if word not in SILENT and self.slot(word) is None]
