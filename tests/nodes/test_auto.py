"""StepCache: learn from one picture, then plan."""

import json
import threading
from pathlib import Path

import pytest
import torch

import stepcache
from stepcache.cache_core.recording import MOST_STEPS
from stepcache.model_patches.identity import model_identity
from stepcache.model_patches.profile_folder import profile_of
from stepcache.nodes.auto import NOTHING_LEARNED, RECORDING, StepCache

from ..model_patches.real_configs import FLUX
from ..model_patches.test_identity import with_lora
from ..sampling import run
from ..tiny_models import build, drawer, shared

STEPS = 16
ROOT = Path(stepcache.__file__).parent


def with_stepcache(model, **settings):
    usual = dict(speedup=2.0, mode="learn", start_percent=0.0, end_percent=1.0, max_consecutive=0, cache_device="auto")
    return StepCache.PREPARE_CLASS_CLONE(None).execute(model, **(usual | settings)).result[0]


def files(folder):
    return sorted((folder / "stepcache" / "profiles").glob("*"))


def test_the_first_picture_is_recorded_unchanged_and_the_next_is_planned(reports, own_user_folder):
    tiny = shared("flux_dev")
    plain = run(tiny.patcher, tiny, STEPS)
    cached = with_stepcache(tiny.patcher)
    first, second = run(cached, tiny, STEPS), run(cached, tiny, STEPS)
    assert torch.equal(first, plain) and not torch.equal(second, plain)
    assert [report.reused for report in reports] == [0, STEPS // 2]
    assert reports[0].messages and reports[1].settings["plan"] == "learned from one picture"
    (file,) = files(own_user_folder)
    assert json.loads(file.read_text())["identity"] == model_identity(tiny.patcher)


def test_a_speedup_of_one_leaves_the_model_alone(reports):
    tiny = shared("flux_dev")
    assert with_stepcache(tiny.patcher, speedup=1.0) is tiny.patcher


@pytest.mark.parametrize("speedup", [1.2, 2.0, 3.0, 5.0])
def test_as_many_steps_are_computed_as_the_speedup_says(reports, speedup):
    tiny = shared("flux_dev")
    run(with_stepcache(tiny.patcher, speedup=speedup, mode="general", guard=0.0), tiny, STEPS)
    assert reports[0].computed == max(round(STEPS / speedup), 2)


def test_general_is_faster_from_the_first_picture_on_and_records_nothing(reports, own_user_folder):
    tiny = shared("wan_t2v")
    run(with_stepcache(tiny.patcher, mode="general"), tiny, STEPS)
    assert reports[0].reused > 0 and not files(own_user_folder)


@pytest.mark.parametrize(
    ("later", "origin"),
    [
        (dict(steps=STEPS + 4), "adapted"),
        (dict(scheduler="beta"), "adapted"),
        (dict(denoise=0.8), "adapted"),
        (dict(sampler="dpmpp_2m"), "learned"),
        (dict(sampler="euler_ancestral"), "being learned"),
        (dict(cfg=4.0), "being learned"),
        (dict(seed=8), "learned"),
    ],
)
def test_what_is_learned_serves_settings_that_are_near(reports, later, origin):
    tiny = shared("flux_dev")
    cached = with_stepcache(tiny.patcher)
    run(cached, tiny, STEPS)
    run(cached, tiny, **({"steps": STEPS} | later))
    assert reports[1].settings["plan"].startswith(origin)
    assert (reports[1].reused > 0) == (origin != "being learned")


@pytest.mark.parametrize(
    ("config", "steps", "reason"),
    [(FLUX | dict(guidance_embed=False), 12, "made for few steps"), (FLUX, 8, "8 steps are few")],
)
def test_few_steps_are_left_alone_with_a_reason(reports, own_user_folder, config, steps, reason):
    tiny = build("flux_dev")
    tiny.patcher.model.model_config.unet_config = config
    plain = run(tiny.patcher, tiny, steps)
    assert torch.equal(run(with_stepcache(tiny.patcher), tiny, steps), plain)
    assert reason in reports[0].messages[0] and not files(own_user_folder)


def test_more_pictures_are_asked_for(reports):
    tiny = shared("flux_dev")
    cached = with_stepcache(tiny.patcher, learn_from=2)
    for seed in range(3):
        run(cached, tiny, STEPS, seed=seed)
    assert [report.reused > 0 for report in reports] == [False, False, True]
    assert reports[2].settings["plan"] == "learned from 2 pictures"


def test_an_interrupted_picture_teaches_nothing(reports, own_user_folder):
    tiny = shared("flux_dev")

    def stop(step, *_):
        if step == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        run(with_stepcache(tiny.patcher), tiny, STEPS, callback=stop)
    assert not files(own_user_folder)


@pytest.mark.parametrize("sampler", ["heun", "dpm_2", "dpmpp_sde", "uni_pc", "euler_cfg_pp", "dpmpp_2m_cfg_pp", "lcm"])
def test_every_kind_of_sampler_learns_and_plans(reports, sampler):
    tiny = shared("flux_dev")
    cached = with_stepcache(tiny.patcher, guard=0.0)
    for _ in range(2):
        result = run(cached, tiny, STEPS, sampler=sampler, cfg=3.0)
    assert result.isfinite().all() and reports[0].reused == 0
    assert reports[1].reused >= 0.4 * reports[1].evaluations


@pytest.mark.parametrize("sampler", ["dpmpp_sde", "dpmpp_2m_sde", "er_sde", "seeds_2", "sa_solver", "exp_heun_2_x0"])
def test_samplers_that_begin_below_the_first_sigma_learn(reports, sampler):
    """They begin a flow model without a shift at sigma 0.9999."""
    tiny = build("sd3")
    tiny.patcher.get_model_object("model_sampling").set_parameters(shift=1.0)
    cached = with_stepcache(tiny.patcher, guard=0.0)
    for _ in range(2):
        run(cached, tiny, STEPS, sampler=sampler)
    assert reports[0].trace[0].sigma < 1 and reports[1].settings["plan"] == "learned from one picture"
    assert reports[1].reused > 0


@pytest.mark.parametrize("sampler", ["dpm_fast", "dpm_adaptive"])
def test_samplers_that_leave_the_schedule_are_told_of_with_the_cure(reports, sampler):
    tiny = shared("flux_dev")
    cached = with_stepcache(tiny.patcher)
    run(cached, tiny, STEPS, sampler=sampler)
    assert NOTHING_LEARNED in reports[0].messages and RECORDING not in reports[0].messages
    run(cached, tiny, STEPS)
    run(cached, tiny, STEPS, sampler=sampler)
    assert reports[2].settings["plan"] == "learned from one picture" and "use mode general" in NOTHING_LEARNED


def test_limits_hold_and_are_planned_for(reports):
    tiny = shared("flux_dev")
    run(with_stepcache(tiny.patcher, mode="general", speedup=4.0, max_consecutive=2, guard=0.0), tiny, STEPS)
    mask = "".join(str(int(not each.reused)) for each in reports[0].trace)
    assert "000" not in mask and reports[0].computed == 6
    run(with_stepcache(tiny.patcher, mode="general", guard=0.0, start_percent=0.3, end_percent=0.7), tiny, STEPS)
    assert any(each.reused for each in reports[1].trace[5:11])
    assert not any(each.reused for each in reports[1].trace[:4] + reports[1].trace[12:])


@pytest.mark.parametrize("given", [None, "profiles/mine.json", {}, 5])
def test_profile_mode_needs_a_profile(given):
    """ComfyUI lets any typed value through where a connection is expected."""
    with pytest.raises(ValueError, match="Connect Load Profile"):
        with_stepcache(shared("flux_dev").patcher, mode="profile", profile=given)


@pytest.mark.parametrize("speedup", [float("nan"), 0.5, 9.0])
def test_a_linked_speedup_out_of_range_is_refused_without_word_of_a_threshold(speedup):
    with pytest.raises(ValueError, match=r"Use a number from 1 to 5 \(2 computes half of the evaluations\)\.$"):
        with_stepcache(shared("flux_dev").patcher, speedup=speedup)


def test_a_folder_that_cannot_be_written_costs_no_picture(reports, own_user_folder):
    own_user_folder.mkdir(parents=True)
    (own_user_folder / "stepcache").write_text("a file in the way")
    tiny = shared("flux_dev")
    plain = run(tiny.patcher, tiny, STEPS)
    assert torch.equal(run(with_stepcache(tiny.patcher), tiny, STEPS), plain)
    assert any("could not be kept" in message for message in reports[0].messages)


def test_another_model_of_the_class_learns_for_itself(reports, own_user_folder):
    for seed in (0, 1):
        tiny = build("flux_dev", seed)
        run(with_stepcache(tiny.patcher), tiny, STEPS)
    assert [report.reused for report in reports] == [0, 0] and len(files(own_user_folder)) == 2


def test_threads_that_sample_one_model_learn_and_plan(reports, own_user_folder):
    """What they learned at once is one recording, of as many pictures. ComfyUI wants a copy of the model for each."""
    tinies, results = [build("flux_dev") for _ in range(3)], []
    tiny = tinies[0]
    noise = drawer(3)(*tiny.latent.shape)
    plain = run(tiny.patcher, tiny, STEPS, noise=noise)

    def sample(own):
        cached = with_stepcache(own.patcher)
        results.extend(run(cached, own, STEPS, noise=noise) for _ in range(2))

    threads = [threading.Thread(target=sample, args=(own,)) for own in tinies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(reports) == 6 and all(result.isfinite().all() for result in results)
    learning = [report for report in reports if report.settings["plan"] == "being learned"]
    assert 1 <= len(learning) <= 3 and all(report.reused == 0 for report in learning)
    assert sum(torch.equal(result, plain) for result in results) == len(learning)
    (file,) = files(own_user_folder)
    (learned,) = json.loads(file.read_text())["learned"]
    assert learned["runs"] == len(learning)


def test_a_lora_on_the_model_learns_for_itself_after_what_is_known_served(reports, own_user_folder):
    tiny = shared("flux_dev")
    run(with_stepcache(tiny.patcher), tiny, STEPS)
    patched = with_lora(tiny)
    run(with_stepcache(patched), tiny, STEPS)
    assert reports[1].settings["plan"].startswith("adapted") and reports[1].reused > 0
    for _ in range(2):
        run(with_stepcache(patched, learn_from=2), tiny, STEPS)
    run(with_stepcache(patched), tiny, STEPS)
    assert reports[-1].settings["plan"] == "learned from 2 pictures" and len(files(own_user_folder)) == 1


def test_more_steps_than_can_be_planned_are_computed_with_a_reason(reports, own_user_folder):
    tiny = shared("flux_dev")
    run(with_stepcache(tiny.patcher), tiny, sigmas=torch.linspace(1, 0, MOST_STEPS + 2), cfg=1.0)
    assert "more than can be planned" in reports[0].messages[0] and not files(own_user_folder)


@pytest.mark.parametrize("mode", ["learn", "general"])
@pytest.mark.parametrize(
    "part", [dict(last=8), dict(start=8), dict(start=4, last=12), dict(start=15), dict(start=3, last=4)]
)
def test_parts_of_a_schedule_are_learned_and_planned(reports, mode, part):
    tiny = shared("flux_dev")
    for _ in range(2):
        run(with_stepcache(tiny.patcher, mode=mode), tiny, STEPS, latent=drawer(3)(*tiny.latent.shape), **part)
    steps = part.get("last", STEPS) - part.get("start", 0)
    assert reports[1].evaluations == steps and (reports[1].reused > 0) == (steps > 2)


def test_the_inputs_and_their_order_are_a_contract():
    assert [entry.id for entry in StepCache.define_schema().inputs] == [
        "model", "speedup", "mode", "start_percent", "end_percent", "max_consecutive", "cache_device", "guard", "learn_from",
        "profile",
    ]  # fmt: skip


def test_a_plan_is_kept_with_what_it_was_made_from(reports, tmp_path):
    tiny = shared("flux_dev")
    kept = lambda: profile_of(tiny.patcher).learned[0].plans  # noqa: E731
    for speedup, counts in ((2.0, []), (2.0, [8]), (4.0, [4, 8]), (4.0, [4, 8])):
        run(with_stepcache(tiny.patcher, speedup=speedup), tiny, STEPS)
        assert sorted(kept()) == counts
    run(with_stepcache(tiny.patcher, speedup=3.0, max_consecutive=2), tiny, STEPS)
    assert sorted(kept()) == [4, 8]


def test_where_the_guard_refuses_all_that_was_adapted_the_run_is_learned_from(reports, tmp_path):
    tiny = shared("flux_dev")
    run(with_stepcache(tiny.patcher), tiny, STEPS)
    suspicious = with_stepcache(tiny.patcher, guard=1e-6, speedup=1.1)
    for _ in range(2):
        run(suspicious, tiny, STEPS, scheduler="beta")
    assert reports[1].settings["plan"].startswith("adapted") and reports[1].reused == 0
    assert reports[2].settings["plan"] == "learned from one picture"
