"""One run on plain tensors: what shares a decision, what is dropped, what is counted."""

import re
import threading

import pytest
import torch

from stepcache.cache_core.branch import Branch
from stepcache.cache_core.methods import first_block_cache, meancache, softcache, taylorseer, teacache
from stepcache.cache_core.model_call import MOST_REPEATS, joined
from stepcache.cache_core.predictors import Newton, Taylor
from stepcache.cache_core.report import RunReport
from stepcache.cache_core.session import CacheSession
from stepcache.cache_core.types import Decision, Run

SIGMAS = tuple(1 - i / 10 for i in range(11))


def session(threshold=1e9, listener=None, **limits):
    run = Run(SIGMAS, start_sigma=1e9, end_sigma=0.0)
    return CacheSession(teacache(threshold, **limits), run, RunReport("TeaCache"), listener=listener)


def call(session, orders, signal=1.0, residual=None, place="model", facts="same"):
    """One model call with a branch for each order; True if it was reused."""
    signals = signal if isinstance(signal, torch.Tensor) else torch.full((len(orders), 2), signal)
    opened = session.open_call([Branch(place, order, f"uuid{order}", facts) for order in orders])
    if opened.decide(signals):
        opened.predict()
        opened.reused()
        return True
    opened.computed((torch.ones(len(orders), 3) if residual is None else residual,))
    return False


def evaluate(session, *calls, sigma):
    session.next_evaluation(torch.tensor([sigma]))
    return [call(session, **given) for given in calls]


def test_first_and_last_are_computed_and_the_rest_reused():
    running = session()
    reused = [evaluate(running, {"orders": [0]}, sigma=sigma)[0] for sigma in SIGMAS[:-1]]
    running.end()
    assert reused == [False] + [True] * 8 + [False]
    report = running.report
    assert (report.evaluations, report.computed, report.reused, report.steps) == (10, 2, 8, 10)
    assert report.trace[0].signal is None  # an infinite one would not be JSON
    assert report.trace[0].reason == "first evaluation" and report.trace[-1].reason == "last step"


def test_a_decision_is_shared_by_later_calls_of_the_evaluation():
    """The second branch changes a lot, but guidance must not mix a reused and a computed branch."""
    running = session(threshold=0.5)
    evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=1.0)
    assert evaluate(running, {"orders": [0]}, {"orders": [1], "signal": 9.0}, sigma=0.9) == [True, True]
    assert evaluate(running, {"orders": [0], "signal": 9.0}, {"orders": [1], "signal": 9.0}, sigma=0.8) == [
        False,
        False,
    ]


def test_the_lowest_order_of_the_first_call_leads_wherever_it_lies_in_the_batch():
    changed, same = torch.full((1, 2), 9.0), torch.ones(1, 2)
    for signal, reuse in ((torch.cat((changed, same)), True), (torch.cat((same, changed)), False)):
        running = session(threshold=0.5)
        evaluate(running, {"orders": [1, 0]}, sigma=1.0)
        assert evaluate(running, {"orders": [1, 0], "signal": signal}, sigma=0.9) == [reuse]


def test_context_windows_share_the_decision_of_the_first():
    running = session(threshold=0.5)
    windows = [{"orders": [0], "place": name} for name in "ab"]
    evaluate(running, *windows, sigma=1.0)
    assert evaluate(running, windows[0], windows[1] | {"signal": 9.0}, sigma=0.9) == [True, True]
    assert running.report.device_reads == 2


def test_another_layout_of_the_streams_is_computed():
    running = session()
    for layout, reuse in (((4, 2), False), ((4, 2), True), ((5, 2), False), ((5, 2), True)):
        running.next_evaluation(torch.tensor(0.9))
        opened = running.open_call([Branch("model", 0, "uuid")])
        assert opened.decide(torch.ones(1, 2), layout) is reuse
        opened.reused() if reuse else opened.computed((torch.ones(1, 3),))


@pytest.mark.parametrize("basis", [Taylor(), Newton()])
def test_another_layout_leaves_no_slope_behind(basis):
    """Values of two shapes have no difference."""
    method = taylorseer(interval=9, warmup_steps=1, basis=basis)
    running = CacheSession(method, Run(SIGMAS, 1e9, 0.0), RunReport("TaylorSeer"))
    for sigma, width, reuse in ((1.0, 3, False), (0.9, 3, True), (0.8, 4, False), (0.7, 4, True)):
        running.next_evaluation(torch.tensor(sigma))
        opened = running.open_call([Branch("model", 0, "uuid")])
        assert opened.decide(None, width) is reuse
        if reuse:
            assert torch.equal(opened.predict()[0], torch.full((1, width), sigma + 0.1))
            opened.reused()
        else:
            opened.computed((torch.full((1, width), sigma),))
    assert running.report.trace[2].reason == "the token streams changed their shape"


def test_another_batch_of_the_same_branches_keeps_their_slope():
    """The call is computed, as its layout differs, but what is stored fits."""
    running = CacheSession(taylorseer(9, 1, 1), Run(SIGMAS, 1e9, 0.0), RunReport("TaylorSeer"))
    for sigma, batches, value in ((1.0, [[0, 1]], 1.0), (0.9, [[0], [1]], 3.0), (0.8, [[0], [1]], None)):
        running.next_evaluation(torch.tensor(sigma))
        for orders in batches:
            opened = running.open_call([Branch("model", order, f"uuid{order}") for order in orders])
            assert opened.decide(None, len(orders)) is (value is None)
            if value is None:
                assert opened.predict()[0].tolist() == [[5.0]]
                opened.reused()
            else:
                opened.computed((torch.full((len(orders), 1), value),))


def test_calls_from_several_threads():
    running = session()
    for sigma in SIGMAS[:-1]:
        running.next_evaluation(torch.tensor(sigma))
        calls = [{"orders": [order], "place": order % 2} for order in range(8)]
        threads = [threading.Thread(target=call, args=(running,), kwargs=given) for given in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(e.computed_calls, e.reused_calls) for e in running.report.trace] == [(8, 0)] + [(0, 8)] * 8 + [(8, 0)]


def test_batched_and_split_branches_hold_the_same():
    running = session()
    evaluate(running, {"orders": [1, 0], "residual": torch.tensor([[1.0], [0.0]])}, sigma=1.0)
    running.next_evaluation(torch.tensor(0.9))
    for order, value in ((0, 0.0), (1, 1.0)):
        opened = running.open_call([Branch("model", order, f"uuid{order}", "same")])
        assert opened.decide(torch.ones(1, 2)) and opened.predict()[0].item() == value
        opened.reused()


def test_branches_that_are_kept_on_different_devices_become_one_batch_on_that_of_the_first():
    """Free memory is looked at for each, so it may run out between two."""
    first = torch.empty(1, 2, device="meta")
    batch = joined([first, torch.ones(1, 2)])
    assert batch.device == first.device and batch.shape == (2, 2)


def test_a_new_branch_is_computed_even_if_the_evaluation_is_reused():
    running = session()
    evaluate(running, {"orders": [0]}, sigma=1.0)
    assert evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=0.9) == [True, False]
    assert not running.report.trace[-1].reused  # a mixed evaluation is not counted as reused


def test_a_new_branch_in_the_batch_computes_the_whole_batch():
    running = session()
    evaluate(running, {"orders": [0]}, sigma=1.0)
    assert evaluate(running, {"orders": [1, 0]}, sigma=0.9) == [False]
    assert evaluate(running, {"orders": [1, 0]}, sigma=0.8) == [True]


def test_a_repeated_call_of_a_branch_in_one_evaluation_is_another_branch():
    running = session()
    assert evaluate(running, {"orders": [0]}, {"orders": [0]}, sigma=1.0) == [False, False]
    assert len(running.branches) == 2


@pytest.mark.parametrize("facts", ["other shape", "other weights"])
def test_changed_facts_drop_what_was_stored(facts):
    running = session()
    evaluate(running, {"orders": [0]}, sigma=1.0)
    assert evaluate(running, {"orders": [0], "facts": facts}, sigma=0.9) == [False]


def test_a_branch_that_missed_an_evaluation_is_dropped_and_its_memory_freed():
    running = session()
    evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=1.0)
    evaluate(running, {"orders": [0]}, sigma=0.9)
    evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=0.8)
    assert [e.reused for e in running.report.trace] == [False, True, False]


def test_a_rising_sigma_starts_anew():
    running = session()
    results = [evaluate(running, {"orders": [0]}, sigma=sigma)[0] for sigma in (1.0, 0.9, 0.95, 0.9)]
    assert results == [False, True, False, True]
    assert any("rose" in message for message in running.report.messages)


def test_a_rising_sigma_leaves_no_history_behind():
    """A mean over the step that rose would be one of no descent."""
    method = meancache(lambda run: frozenset({0, 1}), 2)
    running = CacheSession(method, Run(SIGMAS, 1e9, 0.0), RunReport("MeanCache"))
    for sigma, x, reuse in ((1.0, 0.0, False), (0.9, 1.0, False), (0.95, 9.0, False), (0.8, 8.0, True)):
        running.next_evaluation(torch.tensor(sigma))
        opened = running.open_call([Branch("model", 0, "uuid")])
        entry = (torch.full((1, 2), x),)
        assert opened.decide(None, 2, entry=entry) is reuse
        if reuse:
            assert torch.equal(opened.predict()[0], torch.full((1, 2), 0.95))
            opened.reused()
        else:
            opened.computed((torch.full((1, 2), sigma),))


def test_unobserved_blocks_store_nothing():
    running = session()
    running.next_evaluation(torch.tensor(1.0))
    opened = running.open_call([Branch("model", 0, "uuid")])
    opened.decide(torch.ones(1, 2))
    opened.computed(None)
    assert not running.branches


def test_one_device_read_per_evaluation():
    """I-26: sigma and the leader's score come in one read, however many branches there are."""
    running = session()
    for sigma in SIGMAS[:-1]:
        evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=sigma)
    assert running.report.device_reads == running.report.evaluations


def test_where_evaluations_can_be_counted_only_scores_are_read():
    """I-26. Past the last step nothing is known any more."""
    watching = CacheSession(teacache(1e9), Run(SIGMAS, 1e9, 0.0), RunReport("TeaCache"), counted=True)
    planned = CacheSession(taylorseer(2, 1, 1), Run(SIGMAS, 1e9, 0.0), RunReport("TaylorSeer"), counted=True)
    for running, reads in ((watching, 1), (planned, 0)):
        for index, sigma in enumerate(SIGMAS[:-1]):
            evaluate(running, {"orders": [0]}, {"orders": [1]}, sigma=sigma)
            assert running.report.trace[-1].sigma == sigma and running.report.trace[-1].position == index
        assert running.report.device_reads == reads * 10
        evaluate(running, {"orders": [0]}, sigma=0.25)
        assert running.report.device_reads == reads * 10 + 1
        assert running.report.trace[-1].sigma == 0.25 and running.report.trace[-1].position == 7.5


def test_of_equal_sigmas_the_last_is_meant_also_where_evaluations_are_counted():
    traces = []
    for counted in (False, True):
        run = Run((1.0, 0.5, 0.5, 0.25, 0.0), start_sigma=1e9, end_sigma=0.0)
        running = CacheSession(taylorseer(2, 1, 1), run, RunReport("TaylorSeer"), counted=counted)
        for sigma in run.sigmas[:-1]:
            evaluate(running, {"orders": [0]}, sigma=sigma)
        traces.append([(each.sigma, each.position, each.reason) for each in running.report.trace])
    assert traces[0] == traces[1] and [position for _, position, _ in traces[0]] == [0, 2, 2, 3]


def test_memory_is_signal_and_residual_of_each_branch():
    running = session()
    evaluate(running, {"orders": [1, 0], "residual": torch.ones(2, 5)}, sigma=1.0)
    assert running.report.cache_bytes == 4 * (2 * 2 + 2 * 5)
    running.end()
    assert not running.branches


def test_poisoned_branch_does_not_reach_another():
    """I-3."""
    running = session()
    evaluate(running, {"orders": [1, 0], "residual": torch.tensor([[float("nan")], [2.0]])}, sigma=1.0)
    running.next_evaluation(torch.tensor(0.9))
    opened = running.open_call([Branch("model", 0, "uuid0", "same")])
    assert opened.decide(torch.ones(1, 2)) and opened.predict()[0].item() == 2.0


def test_outside_an_evaluation_nothing_is_cached():
    assert session().open_call([Branch("model", 0, "uuid")]) is None


def test_the_listener_hears_of_every_evaluation_and_of_the_end():
    heard = []
    running = session(listener=lambda report: heard.append((report.evaluations, report.finished)))
    for sigma in SIGMAS[:3]:
        evaluate(running, {"orders": [0]}, sigma=sigma)
    running.end()
    assert heard == [(1, False), (2, False), (3, False), (3, True)]


def test_a_listener_that_fails_does_not_stop_the_run(caplog):
    def fail(report):
        raise RuntimeError("no page")

    running = session(listener=fail)
    evaluate(running, {"orders": [0]}, sigma=1.0)
    running.end()
    assert running.report.finished and "sampling goes on" in caplog.text


def test_parts_are_copied_for_every_branch():
    method = first_block_cache(0.1)
    first, second = method.new_policy(), method.new_policy()
    first.observe(torch.ones(1))
    assert second.inner.current is None and method.policy.current is None


@pytest.mark.parametrize(
    ("limits", "fraction", "refused"),
    [
        ({}, 1.0, None),
        ({"min_steps": 10}, 1.0, None),
        ({"min_steps": 11}, 1.0, "^10 steps are few"),
        ({"min_steps": 11}, 0.5, None),  # half of 20 steps
        ({"few_step_model": True}, 0.1, "made for few steps"),
    ],
)
def test_few_steps_are_left_alone_and_the_report_names_the_cure(limits, fraction, refused):
    run = Run(SIGMAS, start_sigma=1e9, end_sigma=0.0, fraction=fraction)
    running = CacheSession(teacache(1e9, **limits), run, RunReport("TeaCache"))
    opened = []
    for sigma in SIGMAS[:-1]:
        running.next_evaluation(torch.tensor([sigma]))
        opened.append(running.open_call([Branch("model", 0, "uuid")]))
    running.end()
    if not refused:
        assert all(opened) and running.report.messages == []
        return
    assert not any(opened) and (running.report.evaluations, running.report.computed) == (10, 10)
    (message,) = running.report.messages
    assert re.search(refused, message) and "a value of your own" in message
    assert {evaluation.reason for evaluation in running.report.trace} == {message}
    assert (running.report.cache_bytes, running.report.device_reads) == (0, 0)


class MostOf:
    """A judge that reuses while no change is above a limit, and notes what it was asked."""

    def __init__(self, limit):
        self.limit, self.asked = limit, []

    def decide(self, step, change):
        self.asked.append(change)
        return Decision(change is not None and change <= self.limit, "judged")


def judged(limit=0.5):
    run = Run(SIGMAS, start_sigma=1e9, end_sigma=0.0)
    return CacheSession(softcache(1.0), run, RunReport("SoftCache"), judge=MostOf(limit))


def test_a_judge_hears_the_largest_change_of_a_call():
    running = judged()
    evaluate(running, {"orders": [0, 1]}, sigma=1.0)
    both = torch.tensor([[1.1, 1.1], [1.3, 1.3]])
    assert evaluate(running, {"orders": [0, 1], "signal": both}, sigma=0.9) == [True]
    assert running.judge.asked == [pytest.approx(0.3)] and running.report.device_reads == 2
    assert running.report.trace[-1].signal == pytest.approx(0.3)


def test_a_judge_hears_every_call_and_a_reused_one_is_repeated_if_another_has_to_be_computed():
    running = judged()
    calls = [{"orders": [0]}, {"orders": [1]}]
    evaluate(running, *calls, sigma=1.0)
    assert evaluate(running, {"orders": [0]}, {"orders": [1], "signal": 1.2}, sigma=0.9) == [True, True]
    assert not running.disagreed
    assert evaluate(running, {"orders": [0]}, {"orders": [1], "signal": 9.0}, sigma=0.8) == [True, True]
    assert running.disagreed
    running.repeat_evaluation()
    assert [call(running, **given) for given in calls] == [False, False]
    assert not running.disagreed and running.report.evaluations == 3
    assert (running.report.trace[-1].computed_calls, running.report.trace[-1].reused) == (2, False)
    assert evaluate(running, *calls, sigma=0.7) == [True, True]


def test_a_branch_that_cannot_be_reused_has_the_others_computed_and_at_last_nothing_is_reused():
    running = judged()
    for index, sigma in enumerate(SIGMAS[:-1]):
        calls = [{"orders": [0]}, {"orders": [1], "facts": index}]  # other facts each time
        reused = evaluate(running, *calls, sigma=sigma)
        assert reused == [0 < index <= MOST_REPEATS, False] and running.disagreed is reused[0]
        if running.disagreed:
            running.repeat_evaluation()
            assert [call(running, **given) for given in calls] == [False, False]
    assert running.repeats == MOST_REPEATS and running.report.reused == 0
