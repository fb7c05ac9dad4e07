"""Pictures next to each other."""

import pytest
import torch

from stepcache.nodes.side_by_side import AMPLIFY, GAP, LARGEST, fitting, side_by_side

CAPTIONS = ["without the cache", "First Block Cache, 1.93x", "difference, 8x brighter"]


@pytest.mark.parametrize(("width", "count"), [(64, 1), (128, 3), (1024, 1)])
def test_plain_cached_and_difference_in_a_row_for_each_frame(width, count):
    plain, cached = torch.full((count, 40, width, 3), 0.5), torch.full((count, 40, width, 3), 0.55)
    sheet = side_by_side(plain, cached, CAPTIONS)
    rows = sheet[:, -40:]
    assert sheet.shape == (count, sheet.shape[1], 3 * width + 2 * GAP, 3) and sheet.shape[1] > 40
    assert (rows[:, :, :width] == 0.5).all() and (rows[:, :, width + GAP : 2 * width + GAP] == 0.55).all()
    assert torch.allclose(rows[:, :, 2 * (width + GAP) :], torch.tensor(0.05 * AMPLIFY))


def test_captions_get_smaller_until_they_fit():
    assert fitting(CAPTIONS, 2000) == LARGEST > fitting(CAPTIONS, 128) >= 8
