"""Clips that the video model learns from: windows that move over a picture."""

from random import Random

import pytest
import torch

from stepcache_tiny_model.training.clips import PANS, SIDE, SPEED, VIDEO_WORDS, VIEW, ClipBatches, ClipSchedule, pan
from stepcache_tiny_model.training.scenes import PADDING, choose_words, token_ids

from .scenes import clip_data

PLACES = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE)).view(SIDE, SIDE, 2).movedim(-1, 0)
"""A picture whose colours are row and column."""


@pytest.mark.parametrize("direction", PANS.values(), ids=PANS)
def test_a_window_moves_along_and_stays_inside(direction):
    torch.manual_seed(0)
    corners = torch.stack([pan(PLACES, direction)[:, :, 0, 0] for _ in range(300)])  # (300, FRAMES, 2)
    assert (corners.diff(dim=1) == SPEED * torch.tensor(direction)).all()
    assert corners.min() == 0 and corners.max() == SIDE - VIEW


def test_a_batch_is_clips_with_the_words_of_scene_and_pan():
    data = clip_data()
    torch.manual_seed(0)
    batch = ClipBatches(data, ClipSchedule(1, 1, batch=40)).draw(0)
    assert batch.latents.shape == (40, 16, 5, VIEW // 8, VIEW // 8)
    scenes = {tuple(tokens[:-1]) for tokens in data.tokens.tolist()}
    assert {tuple(tokens[:-1]) for tokens in batch.tokens.tolist()} == scenes
    pans = [VIDEO_WORDS[tokens[-1]] for tokens in batch.tokens.tolist()]
    assert set(pans) == set(PANS)
    stands = (batch.latents.diff(dim=2) == 0).flatten(1).all(dim=1)
    assert stands.tolist() == [word == "still" for word in pans]


def test_there_is_a_while_with_one_way_along_each_axis():
    schedule = ClipSchedule(100, 10, one_way_from=20, one_way_to=30, batch=40)
    batches = ClipBatches(clip_data(), schedule)

    def pans(step: int) -> set[str]:
        return {VIDEO_WORDS[tokens[-1]] for tokens in batches.draw(step).tokens.tolist()}

    torch.manual_seed(0)
    assert pans(19) == pans(30) == set(PANS)
    assert pans(20) == pans(29) == {"right", "down", "still"}


def test_no_scene_has_so_many_words_that_the_pan_would_replace_one():
    padding = VIDEO_WORDS.index(PADDING)
    assert all(token_ids(choose_words(Random(number)))[-1] == padding for number in range(2000))
