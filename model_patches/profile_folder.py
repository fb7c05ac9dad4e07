"""Profiles of models as files in a folder."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from comfy.model_patcher import ModelPatcher

from ..cache_core.learned import MOST_CHARACTERS, ModelProfile
from .architectures import model_name
from .identity import model_identity

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
        """The model's profile, an empty one if there is none. What cannot be read is told of."""
        try:
            return self._read(model, identity)
        except OSError as problem:
            log.warning("StepCache: the profile of %s cannot be read: %s", model, problem)
            return ModelProfile(model, identity)

    def _read(self, model: str, identity: str) -> ModelProfile:
        """As `load`, but an OSError is raised. A damaged file is set aside."""
        empty = ModelProfile(model, identity)
        file = self.file(empty)
        try:
            profile = read_profile(file)
            return profile if profile.identity == identity else empty
        except FileNotFoundError:
            return empty
        except ValueError as problem:
            log.warning("StepCache: the profile %s is not used (%s); it is renamed to .damaged", file, problem)
            with contextlib.suppress(OSError):
                os.replace(file, file.with_suffix(".damaged"))
            return empty

    def update(self, model: str, identity: str, change: Callable[[ModelProfile], ModelProfile]) -> ModelProfile:
        """Change the newest state of a model's profile, and return it. If `change` returns it as it is, nothing is written.

        Raises:
            OSError: the folder cannot be written.
        """
        with writing:
            with told_of(self.path):
                known = self._read(model, identity)
            profile = change(known)
            if profile is known:
                return known
            write_whole(self.file(ModelProfile(model, identity)), profile.as_json())
            self._drop_oldest()
        return profile

    def refuse_if_not_writable(self) -> None:
        """Raises OSError if nothing can be kept here: better told before hours of sampling than after."""
        with told_of(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass

    def _drop_oldest(self) -> None:
        files = list(self.path.glob("*.json"))
        if len(files) > MOST_FILES:
            with contextlib.suppress(FileNotFoundError):  # another server drops them too
                for file in sorted(files, key=lambda file: file.stat().st_mtime)[:-MOST_FILES]:
                    file.unlink()


def read_profile(file: Path) -> ModelProfile:
    """The profile in a file, of which no more is read than a profile can have.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no profile; says why.
    """
    with file.open(encoding="utf-8-sig") as stream:  # editors on Windows put a mark in front
        return ModelProfile.from_json(stream.read(MOST_CHARACTERS + 1))


@contextlib.contextmanager
def told_of(folder: Path) -> Iterator[None]:
    """What goes wrong with files of the folder is raised with the cure."""
    try:
        yield
    except OSError as problem:
        raise OSError(
            f"{problem}. StepCache keeps what it learns in {folder}: let ComfyUI write there, or start it with another "
            "--user-directory."
        ) from problem


def write_whole(file: Path, text: str) -> None:
    """Write so that others see the old file or the new one, never a part; the folder is made if it is missing.

    Raises:
        OSError: it cannot be written.
    """
    with told_of(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.stem}.{uuid.uuid4().hex}.tmp")
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def safe_name(name: str) -> str:
    """Of letters of any script, digits and dashes alone; at most 100 bytes.

    >>> safe_name("Wan 2.2 / A14B")
    'Wan-2-2-A14B'
    """
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    return "-".join(words).encode()[:100].decode(errors="ignore") or "model"


def user_folder() -> Path:
    """The pack's folder in ComfyUI's user folder."""
    import folder_paths

    return Path(folder_paths.get_user_directory()) / "stepcache"


def user_profiles() -> ProfileFolder:
    """Where what was learned is kept."""
    return ProfileFolder(user_folder() / "profiles")


def saved_profiles() -> Path:
    """Where profiles that people named are kept."""
    return user_folder() / "saved"


def profile_of(model: ModelPatcher) -> ModelProfile:
    """What was learned of a model, an empty profile if nothing was."""
    return user_profiles().load(model_name(model.model.diffusion_model), model_identity(model))


def profile_files() -> dict[str, Path]:
    """Files by the name shown: those saved, then those learned."""
    return {
        f"{folder.name}/{file.name}": file
        for folder in (saved_profiles(), user_profiles().path)
        for file in sorted(folder.glob("*.json"))
    }
