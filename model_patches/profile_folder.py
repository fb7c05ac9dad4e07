"""Profiles of models as files in a folder."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..cache_core.learned import ModelProfile

MOST_FILES = 200
"""Profiles in the folder; the ones not written for longest give way."""

log = logging.getLogger("stepcache")

writing = threading.Lock()


@dataclass(frozen=True)
class ProfileFolder:
    """One file for each model. Files are replaced whole, so that servers which share the folder read old or new ones."""

    path: Path

    def file(self, profile: ModelProfile) -> Path:
        return self.path / f"{safe_name(profile.model)}-{profile.identity}.json"

    def load(self, model: str, identity: str) -> ModelProfile:
        """The model's profile, an empty one if there is none. A file that cannot be read is set aside and told of."""
        empty = ModelProfile(model, identity)
        file = self.file(empty)
        try:
            profile = ModelProfile.from_json(file.read_text(encoding="utf-8"))
            return profile if profile.identity == identity else empty
        except FileNotFoundError:
            return empty
        except (OSError, ValueError) as problem:
            log.warning("StepCache: the profile %s is not used (%s); it is renamed to .damaged", file, problem)
            with contextlib.suppress(OSError):
                os.replace(file, file.with_suffix(".damaged"))
            return empty

    def update(self, model: str, identity: str, change: Callable[[ModelProfile], ModelProfile]) -> Path:
        """Change the newest state of a model's profile.

        Raises:
            OSError: the folder cannot be written.
        """
        with writing:
            profile = change(self.load(model, identity))
            file = self.file(profile)
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(file, profile.as_json())
            self._drop_oldest()
        return file

    def _drop_oldest(self) -> None:
        files = sorted(self.path.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(len(files) - MOST_FILES, 0)]:
            file.unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """Write so that others see the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def safe_name(name: str) -> str:
    """Of letters, digits and dashes alone.

    >>> safe_name("Wan 2.2 / A14B")
    'Wan-2-2-A14B'
    """
    words = "".join(letter if letter.isalnum() and letter.isascii() else " " for letter in name).split()
    return "-".join(words) or "model"
