"""One training serves both transformers: it learns, and goes on from a checkpoint as if it had not stopped."""

import pytest
import torch

from stepcache_tiny_model.training.attention import HEAD_WIDTH, RotaryAttention, attend, grid_positions, rotary_table
from stepcache_tiny_model.training.clips import ClipBatches, ClipSchedule
from stepcache_tiny_model.training.network import TinyFlux
from stepcache_tiny_model.training.pictures import PictureBatches, PictureSchedule
from stepcache_tiny_model.training.transformer import TransformerTraining
from stepcache_tiny_model.training.video_network import TinyWan

from .scenes import clip_data, scene_data


def flux() -> TransformerTraining:
    schedule = PictureSchedule(2, 1, 2, small_batch=2, large_batch=1)
    return TransformerTraining(TinyFlux, PictureBatches(scene_data(), schedule), schedule, seed=1)


def wan() -> TransformerTraining:
    schedule = ClipSchedule(3, 2, batch=2)
    return TransformerTraining(TinyWan, ClipBatches(clip_data(), schedule), schedule, seed=1)


@pytest.mark.parametrize(("make", "kinds"), [(flux, {"128 px", "256 px"}), (wan, {"clips"})])
def test_a_training_that_was_stopped_ends_as_one_that_was_not(make, kinds, tmp_path):
    whole = make()
    whole.run(tmp_path / "whole.pt")
    stopped = make()
    stopped.train_step()
    stopped.save(tmp_path / "stopped.pt")
    resumed = make()
    resumed.load(tmp_path / "stopped.pt")
    resumed.run(tmp_path / "stopped.pt")
    assert resumed.step == whole.step == 3 and set(whole.losses) == kinds and resumed.losses == whole.losses
    assert same(resumed.average, whole.average) and not same(whole.average, make().average)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_the_rate_rises_stays_and_falls_to_nearly_nothing():
    rates = [ClipSchedule(100, 50, warmup_steps=10, peak_rate=1.0).rate(step) for step in range(100)]
    assert rates[:11] == pytest.approx([*(n / 10 for n in range(1, 11)), 1.0])
    assert rates[50] == 1.0 and rates[75] == pytest.approx(0.5) and rates[99] == pytest.approx(0.02)


def test_the_last_axis_of_a_grid_is_the_fastest():
    assert grid_positions(1, 2, 3).tolist() == [[0, row, column] for row in range(2) for column in range(3)]


def test_attention_depends_on_distances_not_on_places():
    widths = (44, 42, 42)
    torch.manual_seed(0)
    tokens = torch.randn(3, 1, 2, 6, HEAD_WIDTH)
    here = grid_positions(1, 2, 3)
    there = here + torch.tensor([7, 3, 5])
    results = [RotaryAttention(places, widths, torch.float32)(*tokens) for places in (here, there, here.flip(0))]
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert (results[0] - results[2]).abs().max() > 0.01
    cosine, sine = rotary_table(torch.zeros(6, 3), widths)
    assert cosine.eq(1).all() and sine.eq(0).all()
    normalised = [torch.nn.functional.rms_norm(each, (HEAD_WIDTH,)) for each in tokens[:2]]
    unplaced = RotaryAttention(torch.zeros(6, 3), widths, torch.float32)(*tokens)
    torch.testing.assert_close(
        unplaced, attend(*normalised, tokens[2]).transpose(1, 2).flatten(2), rtol=1e-4, atol=1e-5
    )
