"""A picture of runs: decisions, signal and threshold, time of each evaluation, and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from PIL import Image

from ..cache_core.report import Evaluation, RunReport
from .sheet import GRID, INK, MARGIN, PALE, SMALL, TEXT, TITLE, WARNING, WIDTH, Sheet, font

AXIS = 76
"""Room for the labels left of a chart; pixels."""

LEFT, RIGHT = MARGIN + AXIS, WIDTH - MARGIN
COMPUTED, REUSED, LIMIT = "#0072b2", "#e69f00", "#d55e00"
"""Told apart by people who see fewer colours too (Okabe and Ito); height differs as well."""

SIGNAL_ROOM, TIME_ROOM = 2.0, 2.5
"""Charts end at so many times the largest threshold, and the median time; what is larger is cut and marked."""


def runs_plot(titled: Sequence[tuple[str, RunReport]], left_out: int = 0) -> Image.Image:
    """One panel a run, each under its title; above them how many earlier ones are left out."""
    sheet = Sheet()
    if left_out:
        sheet.text(f"{left_out} earlier runs are not drawn; the summary and the JSON have them.", TEXT, PALE)
    for number, (title, report) in enumerate(titled):
        if number:
            top = sheet.reserve(40)
            sheet.draw.line([(MARGIN, top + 12), (RIGHT, top + 12)], GRID, 2)
        draw_run(sheet, title, report)
    return sheet.image


def draw_run(sheet: Sheet, title: str, report: RunReport) -> None:
    sheet.text(title, TITLE)
    for line in figures(report):
        sheet.text(line)
    sheet.text(", ".join(f"{name} {value}" for name, value in report.settings.items()), TEXT, PALE)
    for message in report.messages:
        sheet.text(f"! {message}", TEXT, WARNING)
    if not report.trace:
        sheet.text("The model was not evaluated in this run.", TEXT, PALE)
        return
    sheet.gap(12)
    draw_decisions(sheet, report.trace)
    draw_signal(sheet, report.trace)
    draw_times(sheet, report)


def figures(report: RunReport) -> list[str]:
    asked = f", asked for {report.asked:.2f}x" if report.asked else ""
    return [
        f"{report.computed} of {report.evaluations} evaluations computed, {report.reused} reused · about "
        f"{report.speedup:.2f}x{asked}",
        f"{report.seconds:.2f} s in all · {report.cache_bytes / 2**20:.1f} MiB held · "
        f"{report.device_reads} values read from the device",
        *([f"computed: {reasons(report.trace)}"] if report.computed else []),
    ]


def reasons(trace: Sequence[Evaluation]) -> str:
    """Why evaluations were computed, the most frequent first."""
    counts = Counter(reason(each) for each in trace if not each.reused)
    return " · ".join(f"{count} {text}" for text, count in counts.most_common())


def reason(evaluation: Evaluation) -> str:
    """In words that are the same for every evaluation: those of plans and limits have numbers in them."""
    if evaluation.threshold is not None:
        return "over the threshold"
    return "by the plan or a limit" if any(map(str.isdigit, evaluation.reason)) else evaluation.reason


def span(index: int, count: int) -> tuple[float, float]:
    """Left and right edge of an evaluation's column, with a gap where there is room for one."""
    column = (RIGHT - LEFT) / count
    gap = min(3.0, column / 4)
    return LEFT + index * column + gap / 2, LEFT + (index + 1) * column - gap / 2


def center(index: int, count: int) -> float:
    return sum(span(index, count)) / 2


def draw_decisions(sheet: Sheet, trace: Sequence[Evaluation]) -> None:
    """A full cell for computed, a low one for reused, both in one for an evaluation that did some of each."""
    top = sheet.reserve(34)
    x = legend(sheet, LEFT, top, COMPUTED, "computed", 18)
    legend(sheet, x, top, REUSED, "reused", 8)
    top, height = sheet.reserve(44), 40
    for evaluation in trace:
        left, right = span(evaluation.index, len(trace))
        low = top + height - height // 3
        if not evaluation.reused:
            sheet.draw.rectangle([left, top, right, top + height], COMPUTED)
        if evaluation.reused_calls:
            sheet.draw.rectangle([left, low, right, top + height], REUSED)
    top = sheet.reserve(34)
    for index in ticks(len(trace)):
        sheet.draw.text((center(index, len(trace)), top), str(index), PALE, font(SMALL), anchor="ma")
    sheet.draw.text((LEFT - 8, top - 26), "evaluation", PALE, font(SMALL), anchor="rm")


def legend(sheet: Sheet, x: float, top: float, color: str, name: str, height: int) -> float:
    """A sample and its name; returns where the next one goes."""
    sheet.draw.rectangle([x, top + 20 - height, x + 14, top + 20], color)
    sheet.draw.text((x + 22, top + 10), name, INK, font(SMALL), anchor="lm")
    return x + 44 + sheet.draw.textlength(name, font(SMALL))


def ticks(count: int) -> range:
    """About ten columns to number, as the trace does: from 0."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, count) if count <= 14 * step or step == count)
    return range(0, count, step)


def draw_signal(sheet: Sheet, trace: Sequence[Evaluation]) -> None:
    signals = [each.signal for each in trace if each.signal is not None]
    if not signals:
        sheet.text(
            "No signal was judged: the steps were known before sampling, or nothing could be reused.", SMALL, PALE
        )
        return
    limits = [each.threshold for each in trace if each.threshold is not None]
    end = min(max(signals), SIGNAL_ROOM * max(limits)) if limits else max(signals)
    chart = Chart(sheet, 170, max([end, *limits]) * 1.05 or 1.0)
    x = legend(sheet, LEFT, chart.top - 30, INK, "signal", 3)
    if limits:
        legend(sheet, x, chart.top - 30, LIMIT, "threshold", 3)
    for each in trace:
        if each.threshold is not None:
            left, right = span(each.index, len(trace))
            sheet.draw.line([(left, chart.y(each.threshold)), (right, chart.y(each.threshold))], LIMIT, 3)
    for before, after in zip(trace, trace[1:], strict=False):
        if before.signal is not None and after.signal is not None:
            ends = [(center(each.index, len(trace)), chart.y(each.signal or 0.0)) for each in (before, after)]
            sheet.draw.line(ends, INK, 2)
    for each in trace:
        if each.signal is not None:
            chart.point(center(each.index, len(trace)), each.signal, REUSED if each.reused else COMPUTED)


def draw_times(sheet: Sheet, report: RunReport) -> None:
    trace = report.trace
    usual = median(each.seconds for each in trace if not each.reused) if report.computed else 0.0
    longest = max(each.seconds for each in trace)
    chart = Chart(sheet, 110, 1000 * min(longest, TIME_ROOM * usual or longest) * 1.05 or 1.0)
    sheet.draw.text((LEFT, chart.top - 20), "milliseconds per evaluation", INK, font(SMALL), anchor="lm")
    for each in trace:
        left, right = span(each.index, len(trace))
        sheet.draw.rectangle(
            [left, chart.y(1000 * each.seconds), right, chart.bottom], REUSED if each.reused else COMPUTED
        )
        chart.mark_cut((left + right) / 2, 1000 * each.seconds)


class Chart:
    """Axes from 0 to `end` on the next free part of a sheet."""

    def __init__(self, sheet: Sheet, height: int, end: float):
        self.draw_on, self.end = sheet, end
        self.top = sheet.reserve(height + 60) + 40
        self.bottom = self.top + height
        for part in (0.0, 0.5, 1.0):
            y = self.y(part * end)
            sheet.draw.line([(LEFT, y), (RIGHT, y)], GRID, 1)
            sheet.draw.text((LEFT - 8, y), f"{part * end:.3g}", PALE, font(SMALL), anchor="rm")

    def y(self, value: float) -> float:
        """Pixels; values above the end are drawn at the end."""
        return self.bottom - min(value / self.end, 1.0) * (self.bottom - self.top)

    def point(self, x: float, value: float, color: str) -> None:
        """A dot for reused, a square for computed."""
        y = self.y(value)
        shape = self.draw_on.draw.ellipse if color == REUSED else self.draw_on.draw.rectangle
        shape([x - 4, y - 4, x + 4, y + 4], color)
        self.mark_cut(x, value)

    def mark_cut(self, x: float, value: float) -> None:
        """A small arrow above what is larger than the axis."""
        if value > self.end:
            self.draw_on.draw.polygon([(x - 5, self.top - 4), (x + 5, self.top - 4), (x, self.top - 12)], INK)
