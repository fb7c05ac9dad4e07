"""Calibrate, Load Profile and Save Profile, and what other nodes make of a profile."""

import json
import math
from contextlib import contextmanager
from inspect import signature

import comfy.sample
import comfy.utils
import pytest
import torch

from stepcache.cache_core.learned import ModelProfile
from stepcache.cache_core.methods import stepcache
from stepcache.cache_core.tuning import free_factors
from stepcache.model_patches.install import apply_cache
from stepcache.model_patches.profile_folder import profile_files, profile_of
from stepcache.nodes.calibrate import Calibrate
from stepcache.nodes.calibration_runs import planned_counts
from stepcache.nodes.planned_nodes import DPCache, MagCache, MeanCache
from stepcache.nodes.profiles import NO_FILE, LoadProfile, SaveProfile
from stepcache.nodes.sampling import RATIOS
from stepcache.nodes.threshold_nodes import TeaCache

from ..sampling import count_block_runs, run
from ..tiny_models import build, shared
from .test_auto import with_stepcache

STEPS = 16
SHARED = dict(start_percent=0.0, end_percent=1.0, max_consecutive=0, cache_device="auto")


def calibrate(tiny, latent=None, **settings):
    usual = dict(seed=1, steps=STEPS, cfg=1.0, sampler_name="euler", scheduler="simple", runs=1, speedup=1.0, trials=0)
    usual |= dict(measure_gains=False)
    latent = latent or {"samples": tiny.latent}
    return (
        Calibrate.PREPARE_CLASS_CLONE(None)
        .execute(tiny.patcher, tiny.positive, tiny.negative, latent, **(usual | settings))
        .result
    )


def with_plan(model, learned):
    return apply_cache(model, stepcache(learned.plan(STEPS // 2)))


def test_a_calibrated_model_is_faster_from_the_first_picture_on(reports):
    tiny = shared("flux_dev")
    profile, summary = calibrate(tiny)
    run(with_stepcache(tiny.patcher), tiny, STEPS)
    assert reports[-1].settings["plan"] == "learned from one picture" and reports[-1].reused == STEPS // 2
    assert set(profile.learned[0].plans) == set(range(2, STEPS)) and "teacache" in summary


def test_gains_are_measured_on_request():
    tiny = shared("flux_dev")
    (learned,) = calibrate(tiny, measure_gains=True)[0].learned
    assert len(learned.recording.gains) == STEPS and min(learned.recording.gains) > 0
    assert calibrate(tiny)[0].learned[0].recording.gains is None


def test_gains_are_measured_with_a_sampler_that_looks_at_the_branches():
    (learned,) = calibrate(shared("flux_dev"), measure_gains=True, sampler_name="euler_cfg_pp", cfg=3.0)[0].learned
    assert min(learned.recording.gains) > 1e-3, "a millionth is what is left where no output was held"


def test_a_plan_is_tuned_by_trying(reports):
    tiny = shared("qwen_image")
    plain, tuned = (calibrate(tiny, runs=2, speedup=2.0, trials=trials)[0].learned[0] for trials in (0, 12))
    changed = {count for count in plain.plans if plain.plans[count] != tuned.plans[count]}
    assert changed == {STEPS // 2} and tuned.plans[STEPS // 2].tuned
    exact = run(tiny.patcher, tiny, STEPS)
    off = [run(with_plan(tiny.patcher, learned), tiny, STEPS) - exact for learned in (plain, tuned)]
    assert off[1].norm() < off[0].norm()
    used = run(with_stepcache(tiny.patcher, guard=0.0), tiny, STEPS)
    assert torch.equal(used - exact, off[1]) and reports[-1].settings["plan"] == "learned from 2 pictures, tuned"


def test_plans_are_tried_as_they_will_be_used_for_a_sampler_that_looks_at_the_branches(reports):
    tiny = shared("flux_dev")
    with count_block_runs(tiny.patcher) as runs:
        profile, _ = calibrate(tiny, speedup=2.0, trials=1, sampler_name="euler_cfg_pp", cfg=3.0)
    (learned,), half = profile.learned, STEPS // 2
    trials = 2 + len(free_factors(learned.plan(half).segments))
    assert learned.plans[half].tuned and runs.count == STEPS + trials * half, "both branches are one call"
    run(with_stepcache(tiny.patcher), tiny, STEPS, sampler="euler_cfg_pp", cfg=3.0)
    assert reports[-1].settings["plan"].endswith("tuned") and reports[-1].reused == half


def test_the_plan_is_tuned_that_the_run_will_ask_for(reports):
    """The scheduler makes 24 steps of 23, of which a speed of 1.5 computes 16, not 15."""
    tiny = shared("flux_dev")
    calibrate(tiny, speedup=1.5, trials=1, steps=23, scheduler="ddim_uniform")
    run(with_stepcache(tiny.patcher, speedup=1.5), tiny, 23, scheduler="ddim_uniform")
    assert reports[-1].settings["plan"].endswith("tuned") and reports[-1].computed == 16


def test_where_all_steps_are_computed_nothing_is_tried():
    tiny = shared("flux_dev")
    with count_block_runs(tiny.patcher) as runs:
        (learned,) = calibrate(tiny, speedup=1.02, trials=4)[0].learned
    assert runs.count == STEPS and STEPS not in learned.plans


def test_progress_ends_where_it_was_said_to(monkeypatch):
    bars = []

    class Bar(comfy.utils.ProgressBar):
        def __init__(self, *args):
            super().__init__(*args)
            bars.append(self)

        def update_absolute(self, value, total=None, *rest):
            super().update_absolute(value, total, *rest)
            shown.append((self.current, self.total))

    shown = []
    monkeypatch.setattr("comfy.utils.ProgressBar", Bar)
    calibrate(shared("flux_dev"), runs=2, speedup=2.0, trials=4)
    done = [current for current, _ in shown]
    (bar,) = bars
    assert done == sorted(done) and all(current <= total for current, total in shown) and bar.current == bar.total
    assert bar.current - done[-2] <= 6 * STEPS, "the last leap is what no better plan left to try"


def test_a_video_with_sound_is_tuned_and_measured_by_all_of_it():
    profile, summary = calibrate(shared("ltx_av"), speedup=2.0, trials=2, measure_gains=True)
    (learned,) = profile.learned
    assert min(learned.recording.gains) > 1e-3 and learned.plans[STEPS // 2].tuned
    assert "\ntuned for 2.0x: 8 steps computed\n" in summary


@pytest.mark.skipif(
    RATIOS[0] not in signature(comfy.sample.fix_empty_latent_channels).parameters,
    reason="this ComfyUI does not resize empty latents",
)
def test_an_empty_latent_of_another_model_is_resized_as_a_ksampler_does():
    """The tiny model's latents have 8 pixels a cell; this one says it was made for 16."""
    tiny = shared("flux_dev")
    half = torch.zeros(1, 4, tiny.latent.shape[-2] // 2, tiny.latent.shape[-1] // 2)
    profile, _ = calibrate(tiny, latent={"samples": half, RATIOS[0]: 16})
    assert profile.learned[0].conditions == calibrate(tiny)[0].learned[0].conditions


def test_what_cannot_be_recorded_is_told_with_the_cure():
    with pytest.raises(ValueError, match=r"take another sampler \(euler\)"):
        calibrate(shared("flux_dev"), sampler_name="dpm_fast")


def test_runs_are_merged_over_the_branches_of_guidance():
    profile, _ = calibrate(shared("flux_dev"), runs=3, cfg=3.0)
    (learned,) = profile.learned
    assert learned.recording.runs == 3 and learned.conditions.guided
    assert set(profile.calibrations["magcache"]["ratios"]) == {"cond", "uncond"}


def test_meancache_plans_by_what_was_learned(reports):
    tiny = build("flux_dev")
    cached = MeanCache.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, computed=0.5, **SHARED).result[0]
    run(cached, tiny, STEPS)
    calibrate(tiny)
    run(cached, tiny, STEPS)
    assert [report.settings["table"].split()[0] for report in reports] == ["no", "learned"]
    assert reports[1].computed == STEPS // 2 and reports[0].settings["computes"] != reports[1].settings["computes"]


@pytest.mark.parametrize("node", [TeaCache, MagCache, DPCache])
def test_other_nodes_take_their_figures_from_it(reports, node):
    tiny = build("flux_dev")
    own = dict(threshold=-1.0) if node is not DPCache else dict(computed=0.5, order=1)
    if node is MagCache:
        own |= dict(max_skip_steps=-1, retention=-1.0, profile_file="")
    cached = node.PREPARE_CLASS_CLONE(None).execute(tiny.patcher, **own, **SHARED).result[0]
    told = lambda: " ".join(f"{value}" for value in reports[-1].settings.values())  # noqa: E731
    run(cached, tiny, STEPS)
    assert "calibrated" not in told()
    calibrate(tiny)
    run(cached, tiny, STEPS)
    assert "calibrated" in told() and 0 < reports[-1].reused <= STEPS // 2 + 1


def test_a_profile_goes_through_a_file_and_through_text(own_user_folder):
    profile, _ = calibrate(shared("flux_dev"), measure_gains=True)
    (text,) = SaveProfile.execute(profile, "my: model/..").result
    assert [file.name for file in (own_user_folder / "stepcache" / "saved").iterdir()] == ["my-model.json"]
    for given in (("saved/my-model.json", ""), (NO_FILE, text)):
        (loaded,) = LoadProfile.execute(*given).result
        assert json.loads(loaded.as_json()) == json.loads(profile.as_json())
    assert json.loads(text)["model"] == "Flux"


@pytest.mark.parametrize("text", ["", "  ", "no json", "{}", "[]", '{"format": "stepcache profile", "version": 99}'])
def test_what_is_no_profile_is_refused_with_the_cure(text):
    with pytest.raises(ValueError, match="profile"):
        LoadProfile.execute(NO_FILE, text)


def test_files_are_chosen_from_the_folders_alone():
    calibrate(shared("flux_dev"))
    (name,) = profile_files()
    assert LoadProfile.validate_inputs(name) is True and LoadProfile.validate_inputs(NO_FILE) is True
    assert "There is no profile" in LoadProfile.validate_inputs("../../etc/passwd")


def test_profile_mode_uses_what_is_connected_on_another_model_too(reports):
    profile, _ = calibrate(shared("flux_dev"))
    other = build("flux_dev", 1)
    run(with_stepcache(other.patcher, mode="profile", profile=profile, guard=0.0), other, STEPS)
    assert reports[-1].settings["plan"] == "learned from one picture (on another model)" and reports[-1].reused > 0
    run(with_stepcache(other.patcher, mode="profile", profile=ModelProfile("", "")), other, STEPS)
    assert reports[-1].reused == 0 and "use mode learn" in reports[-1].messages[0]


def test_few_steps_cannot_be_calibrated():
    with pytest.raises(ValueError, match="nothing to calibrate: 8 steps are few"):
        calibrate(shared("flux_dev"), steps=8)


def test_a_folder_that_cannot_be_written_is_told_of_before_sampling(own_user_folder):
    own_user_folder.mkdir(parents=True)
    (own_user_folder / "stepcache").write_text("a file in the way")
    tiny = shared("flux_dev")
    with count_block_runs(tiny.patcher) as runs, pytest.raises(OSError, match="let ComfyUI write there"):
        calibrate(tiny)
    assert runs.count == 0
    with pytest.raises(OSError, match="let ComfyUI write there"):
        SaveProfile.execute(ModelProfile("Flux", ""), "mine")


@pytest.mark.parametrize("wrong", [dict(steps=0), dict(runs=0), dict(runs=-1), dict(speedup=math.nan), dict(speedup=0.5),
    dict(trials=-1), dict(cfg=math.nan), dict(seed=-1)], ids=str)  # fmt: skip
def test_a_linked_number_out_of_range_is_refused_with_the_cure(wrong):
    """ComfyUI checks the range of typed numbers only."""
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} is .* Use a number"):
        calibrate(shared("flux_dev"), **wrong)


def test_the_last_seed_is_followed_by_the_first():
    assert calibrate(shared("flux_dev"), seed=2**64 - 1, runs=2)[0].learned[0].recording.runs == 2


@contextmanager
def stopped_at(step, monkeypatch):
    """The user stops when so many steps were sampled."""
    done = []

    def stop(self, value):
        done.append(value)
        if len(done) == step:
            raise InterruptedError

    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr("comfy.utils.ProgressBar.update", stop)
        yield


def test_a_stop_loses_one_run(monkeypatch):
    tiny = shared("flux_dev")
    with stopped_at(2 * STEPS + 3, monkeypatch):
        calibrate(tiny, runs=4)
    assert profile_of(tiny.patcher).learned[0].recording.runs == 2


def test_a_stop_keeps_what_was_learned_before_from_more_pictures(monkeypatch):
    tiny = shared("flux_dev")
    (before,) = calibrate(tiny, runs=2, speedup=2.0, trials=1)[0].learned
    with stopped_at(STEPS + 3, monkeypatch):
        calibrate(tiny, runs=2, seed=5)
    assert profile_of(tiny.patcher).learned[0].plans == before.plans and before.plans[STEPS // 2].tuned
    calibrate(tiny, runs=1)
    assert profile_of(tiny.patcher).learned[0].recording.runs == 1, "what is whole replaces it"


@pytest.mark.parametrize("at", [0, 2, 6], ids=["before a plan was tried", "among plans", "among factors"])
def test_a_stop_while_tuning_keeps_plans_for_every_number_of_steps(monkeypatch, reports, at):
    tiny = shared("flux_dev")
    with stopped_at((2 + at) * STEPS + 3, monkeypatch):
        calibrate(tiny, runs=2, speedup=2.0, trials=2)
    assert set(profile_of(tiny.patcher).learned[0].plans) == set(range(2, STEPS))
    run(with_stepcache(tiny.patcher), tiny, STEPS)
    assert reports[-1].settings["plan"] == "learned from 2 pictures" and reports[-1].reused == STEPS // 2


def test_plans_that_were_tuned_stay_until_there_is_a_better_one(monkeypatch):
    tiny = shared("flux_dev")
    kept = lambda: profile_of(tiny.patcher).learned[0].tuned_plans  # noqa: E731
    calibrate(tiny, runs=2, speedup=2.0, trials=2)
    slow = kept()[STEPS // 2]
    calibrate(tiny, runs=2, speedup=3.2, trials=2, seed=7)
    assert set(kept()) == {5, STEPS // 2} and kept()[STEPS // 2] == slow

    with stopped_at(3 * STEPS + 3, monkeypatch):
        calibrate(tiny, runs=2, speedup=2.0, trials=2, seed=11)
    assert set(kept()) == {5, STEPS // 2} and kept()[STEPS // 2] == slow


def test_the_model_is_left_as_it_was():
    tiny = shared("flux_dev")
    before = run(tiny.patcher, tiny, STEPS)
    calibrate(tiny, measure_gains=True)
    assert torch.equal(run(tiny.patcher, tiny, STEPS), before)


@pytest.mark.parametrize(
    ("node", "inputs"),
    [
        (
            Calibrate,
            "model positive negative latent_image seed steps cfg sampler_name scheduler runs speedup trials measure_gains",
        ),
        (LoadProfile, "file text"),
        (SaveProfile, "profile name"),
    ],
)
def test_the_inputs_and_their_order_are_a_contract(node, inputs):
    assert [entry.id for entry in node.define_schema().inputs] == inputs.split()


def test_a_damaged_or_huge_file_is_refused_with_the_cure(own_user_folder):
    folder = own_user_folder / "stepcache" / "saved"
    folder.mkdir(parents=True)
    (folder / "folder.json").mkdir()
    with pytest.raises(ValueError, match="saved/folder.json is no profile"):
        LoadProfile.execute("saved/folder.json")
    for name, content in (("bad.json", b"\xff\xfe"), ("cut.json", b'{"format": "stepcache profile"')):
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"saved/{name} is no profile.*Save it again"):
            LoadProfile.execute(f"saved/{name}")


def test_plans_are_made_for_every_number_of_steps_or_every_speed():
    assert list(planned_counts(16)) == list(range(2, 16))
    many = planned_counts(100)
    assert len(many) == 16 and (many[0], many[-1]) == (20, 80) and 50 in many
