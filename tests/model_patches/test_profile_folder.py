"""Profiles as files."""

import logging
import multiprocessing
import os
import sys
import time
from dataclasses import replace

import pytest

from stepcache.cache_core.learned import MOST_CHARACTERS, ModelProfile
from stepcache.model_patches import profile_folder
from stepcache.model_patches.profile_folder import (
    ProfileFolder,
    profile_files,
    profile_of,
    read_profile,
    safe_name,
    saved_profiles,
    user_profiles,
    write_whole,
)

from ..cache_core.recordings import full_profile, learned
from ..tiny_models import shared

IDENTITY = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path):
    return ProfileFolder(tmp_path / "profiles")


def add(steps):
    return lambda profile: profile.with_learned(learned(steps))


def names(folder):
    return sorted(file.name for file in folder.path.iterdir())


def test_what_was_learned_is_there_the_next_time(folder):
    assert folder.load("Flux", IDENTITY) == ModelProfile("Flux", IDENTITY) and not folder.path.exists()
    for steps in (8, 9):
        written = folder.update("Flux", IDENTITY, add(steps))
    again = ProfileFolder(folder.path).load("Flux", IDENTITY)
    assert again.learned == written.learned and [each.recording.steps for each in again.learned] == [8, 9]
    assert names(folder) == [f"Flux-{IDENTITY}.json"]


def test_every_model_has_a_file(folder):
    folder.update("Flux", IDENTITY, add(8))
    folder.update("Flux", IDENTITY[::-1], add(9))
    assert len(names(folder)) == 2
    assert folder.load("Flux", IDENTITY).learned[0].recording.steps == 8


@pytest.mark.parametrize("text", ["", "no json", "{}", "[" * 100_000, "\x00", full_profile().as_json()[:-9]])
def test_a_damaged_file_is_set_aside_and_told_of(folder, text, caplog):
    folder.update("Flux", IDENTITY, add(8))
    file = folder.file(ModelProfile("Flux", IDENTITY))
    file.write_text(text)
    with caplog.at_level(logging.WARNING, "stepcache"):
        assert folder.load("Flux", IDENTITY).learned == ()
    assert names(folder) == [f"Flux-{IDENTITY}.damaged"] and file.with_suffix(".damaged").read_text() == text
    assert "is not used" in caplog.text and ".damaged" in caplog.text
    folder.update("Flux", IDENTITY, add(9))
    assert len(folder.load("Flux", IDENTITY).learned) == 1


def test_bytes_that_are_no_text_are_damage(folder):
    folder.update("Flux", IDENTITY, add(8))
    folder.file(ModelProfile("Flux", IDENTITY)).write_bytes(b"\xff\xfe\x00\x80")
    assert folder.load("Flux", IDENTITY).learned == ()


def test_no_more_is_read_than_a_profile_can_have(folder):
    folder.path.mkdir()
    file = folder.file(ModelProfile("Flux", IDENTITY))
    with file.open("wb") as stream:
        stream.truncate(50 * MOST_CHARACTERS)  # a sparse file
    with pytest.raises(ValueError, match="at most"):
        read_profile(file)
    assert folder.load("Flux", IDENTITY).learned == ()


def test_a_file_of_another_model_under_this_name_is_not_used_and_the_name_in_it_means_nothing(folder):
    folder.update("Flux", IDENTITY, add(8))
    file = folder.file(ModelProfile("Flux", IDENTITY))
    file.write_text(replace(full_profile(), identity="another").as_json())
    assert folder.load("Flux", IDENTITY).learned == ()
    file.write_text(replace(full_profile(), model="../../elsewhere").as_json())
    folder.update("Flux", IDENTITY, add(9))
    assert names(folder) == [file.name] and len(folder.load("Flux", IDENTITY).learned) == 3


def test_the_files_not_written_for_longest_give_way(folder, monkeypatch):
    monkeypatch.setattr(profile_folder, "MOST_FILES", 3)
    for n in range(5):
        folder.update("Flux", f"{n}", add(8))
        os.utime(folder.file(ModelProfile("Flux", f"{n}")), (n, n))
    folder.update("Flux", "2", add(9))
    assert names(folder) == ["Flux-2.json", "Flux-3.json", "Flux-4.json"]


def test_a_folder_that_cannot_be_made_raises_with_the_cure(tmp_path):
    (tmp_path / "file").write_text("")
    folder = ProfileFolder(tmp_path / "file" / "profiles")
    assert folder.load("Flux", IDENTITY) == ModelProfile("Flux", IDENTITY)
    for attempt in (
        lambda: folder.update("Flux", IDENTITY, add(8)),
        lambda: write_whole(folder.path / "mine.json", ""),
        folder.refuse_if_not_writable,
    ):
        with pytest.raises(OSError, match="let ComfyUI write there"):
            attempt()


def test_a_profile_that_an_editor_marked_as_utf_8_is_read(folder):
    file = folder.file(ModelProfile("Flux", IDENTITY))
    folder.update("Flux", IDENTITY, add(8))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(folder.load("Flux", IDENTITY).learned) == 1


def test_nothing_is_left_of_a_look_whether_the_folder_can_be_written(folder):
    folder.refuse_if_not_writable()
    assert names(folder) == []


def test_a_file_that_cannot_be_read_now_is_not_lost(folder, caplog):
    """As where too many files are open."""
    file = folder.file(ModelProfile("Flux", IDENTITY))
    file.mkdir(parents=True)
    assert folder.load("Flux", IDENTITY).learned == () and "cannot be read" in caplog.text
    with pytest.raises(OSError):
        folder.update("Flux", IDENTITY, add(8))
    assert names(folder) == [file.name]


def test_a_change_that_fails_leaves_the_file_as_it_was(folder):
    before = folder.update("Flux", IDENTITY, add(8))

    def fail(profile):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        folder.update("Flux", IDENTITY, fail)
    assert folder.load("Flux", IDENTITY).learned == before.learned
    with pytest.raises(TypeError):
        write_whole(folder.path / "a.json", None)
    assert names(folder) == [f"Flux-{IDENTITY}.json"]


def keep_writing(folder, first):
    """In a process of its own: write recordings of ever more steps."""
    for steps in range(first, first + 8):
        folder.update("Flux", IDENTITY, add(steps))


def test_processes_that_write_at_once_leave_a_file_that_can_be_read(folder):
    """Forked, so that they need not import all anew. One may lose what the other wrote meanwhile, and learns it again."""
    if "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        pytest.skip("processes cannot be forked here")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=keep_writing, args=(folder, first)) for first in (4, 16, 28)]
    for process in processes:
        process.start()
    seen = 0
    while any(process.is_alive() for process in processes):
        profile = folder.load("Flux", IDENTITY)
        assert profile.learned or not seen
        seen = max(seen, len(profile.learned))
        time.sleep(0.001)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert names(folder) == [f"Flux-{IDENTITY}.json"] and len(folder.load("Flux", IDENTITY).learned) >= 1


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("Wan 2.2 / A14B", "Wan-2-2-A14B"),
        ("../..", "model"),
        ("", "model"),
        ("c:\\x", "c-x"),
        ("中文 模型", "中文-模型"),
        ("…", "model"),
        ("a" * 300, "a" * 100),
        ("é" + "中" * 99, "é" + "中" * 32),
    ],
)
def test_names_of_files(name, safe):
    assert safe_name(name) == safe


def test_they_are_kept_in_the_user_folder(own_user_folder):
    tiny = shared("flux_dev")
    profile = profile_of(tiny.patcher)
    assert (profile.model, profile.learned) == ("Flux", ()) and profile_files() == {}
    user_profiles().update("Flux", profile.identity, add(8))
    assert len(profile_of(tiny.patcher).learned) == 1
    saved_profiles().mkdir()
    write_whole(saved_profiles() / "mine.json", profile.as_json())
    (saved_profiles() / "notes.txt").write_text("")
    assert list(profile_files()) == ["saved/mine.json", f"profiles/Flux-{profile.identity}.json"]
    assert all(own_user_folder in file.parents for file in profile_files().values())
