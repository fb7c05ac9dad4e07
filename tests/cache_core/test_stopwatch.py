"""Laps by the host's clock. Those by events need a device that has some."""

import time

import pytest
import torch

from stepcache.cache_core.stopwatch import Stopwatch


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_laps_lie_between_the_marks(device):
    """A device without events of its own, as "meta" is, is timed by the host's clock."""
    watch, slept = Stopwatch(), (0.0, 0.02, 0.0)
    watch.mark(torch.device(device))
    for seconds in slept:
        time.sleep(seconds)
        watch.mark(torch.device(device))
    laps = watch.laps()
    assert len(laps) == 3 and laps[1] >= 0.02 > laps[0] >= 0


def test_nothing_was_marked():
    assert Stopwatch().laps() == [] and Stopwatch().since() == 0.0
