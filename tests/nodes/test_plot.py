"""The picture of runs: what is drawn where."""

import pytest
import torch
from PIL import ImageColor

from stepcache.cache_core.report import Evaluation, RunReport
from stepcache.nodes.plot import COMPUTED, LIMIT, REUSED, center, reasons, runs_plot, span, ticks
from stepcache.nodes.sheet import INK, MARGIN, WARNING, WIDTH, as_image, text_card

BLUE, ORANGE = ImageColor.getrgb(COMPUTED), ImageColor.getrgb(REUSED)


def report_of(pattern: str, signal: float | None = 0.1, threshold: float | None = 0.2, **values) -> RunReport:
    """A run from letters: c computed, r reused, m some of each."""
    trace = [
        Evaluation(
            index,
            signal=signal,
            threshold=threshold,
            seconds=0.01,
            computed_calls=int(letter in "cm"),
            reused_calls=int(letter in "rm"),
        )
        for index, letter in enumerate(pattern)
    ]
    return RunReport("Method", "Model", trace=trace, finished=True, **values)


def plot(report):
    return runs_plot([("A run", report)])


def columns(picture, color):
    """How many pixels of a colour each column of the decision strip has, from its first row down to the next part."""
    pixels = picture.load()
    strip = next(y for y in range(picture.height) if pixels[WIDTH - 40, y] in (BLUE, ORANGE))
    count = lambda x: sum(pixels[x, y] == color for y in range(strip, strip + 45))  # noqa: E731
    return count


def colors(picture):
    return {color for _, color in picture.getcolors(1 << 24)}


@pytest.mark.parametrize("pattern", ["crrmc", "crcrcrcc", "c" + 27 * "r" + "c", "c" + 98 * "r" + "c"])
def test_each_evaluation_has_a_cell_of_its_action(pattern):
    picture = plot(report_of(pattern))
    blue, orange = columns(picture, BLUE), columns(picture, ORANGE)
    for index, letter in enumerate(pattern):
        x = round(center(index, len(pattern)))
        assert (blue(x) > 20, orange(x) > 10) == {"c": (True, False), "r": (False, True), "m": (True, True)}[letter]


@pytest.mark.parametrize("count", [1, 8, 100, 2000])
def test_columns_fill_the_width_in_order(count):
    edges = [edge for index in range(count) for edge in span(index, count)]
    assert edges == sorted(edges) and edges[-1] <= WIDTH
    assert 1 <= len(ticks(count)) <= 14 and ticks(count)[0] == 0


def test_the_threshold_is_drawn_where_it_was_and_only_there():
    limit = ImageColor.getrgb(LIMIT)
    assert limit in colors(plot(report_of("crrc")))
    assert limit not in colors(plot(report_of("crrc", threshold=None)))


def test_a_run_without_signal_is_told_so_in_less_room():
    with_signal, without = plot(report_of("crrc")), plot(report_of("crrc", None, None))
    assert without.height < with_signal.height


def test_reasons_are_counted_without_their_numbers():
    report = report_of("cccrcrc", threshold=None)
    for index, text in enumerate(["first evaluation", "step 1 is in the plan", "step 2 is in the plan"]):
        report.trace[index].reason = text
    report.trace[4].threshold = 0.2
    report.trace[6].reason = "last step"
    assert reasons(report.trace) == "2 by the plan or a limit · 1 first evaluation · 1 over the threshold · 1 last step"


def test_messages_and_further_runs_make_the_picture_longer():
    bare = plot(report_of("crrc"))
    told = plot(report_of("crrc", messages=["Nothing of this was foreseen. " * 12]))
    assert ImageColor.getrgb(WARNING) in colors(told) and told.height > bare.height
    two = runs_plot([("One", report_of("crrc")), ("Two", report_of("cc"))])
    assert two.height > 2 * bare.height - 100 and {picture.width for picture in (bare, told, two)} == {WIDTH}


def test_an_outlier_is_cut_marked_and_does_not_flatten_the_rest():
    report = report_of("ccrccrcc")
    even, ink = plot(report), ImageColor.getrgb(INK)
    report.trace[0].seconds = 60.0
    cut = plot(report)
    bars = [bar_height(cut, round(center(index, 8))) for index in range(8)]
    assert bars[0] == max(bars) < 3 * min(bars) and min(bars) > 30
    above = cut.height - MARGIN - 20 - bars[0] - 8
    column = [each.getpixel((round(center(0, 8)), above)) for each in (cut, even)]
    assert (column[0] == ink) and (column[1] != ink)


def bar_height(picture, x):
    """Of the lowest bar in a column, from the bottom edge of the last chart."""
    return sum(picture.getpixel((x, y)) in (BLUE, ORANGE) for y in range(picture.height - 180, picture.height))


def test_a_run_without_evaluations_and_a_card_can_be_drawn():
    assert ImageColor.getrgb(INK) in colors(plot(RunReport("Method", finished=True)))
    assert ImageColor.getrgb(INK) in colors(text_card("Title", ["A line"]))


def test_an_image_is_one_picture_between_0_and_1():
    image = as_image(plot(report_of("crc")))
    assert image.shape[0] == 1 and image.shape[2:] == (WIDTH, 3) and image.dtype == torch.float32
    assert 0 <= float(image.min()) < float(image.max()) == 1
