"""The HTML page of a comparison: complete, escaped, self-contained, and its bars proportional to the numbers."""

from __future__ import annotations

import itertools
import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.late.changes.hour_totals import quarters_of_day
from slackwater.late.comparison import (
    MAX_ROWS,
    MAX_STRING_LENGTH,
    HourTotals,
    MetricChange,
    Mover,
    RowChange,
    RowCounts,
)
from slackwater.late.report.message import compose
from slackwater.late.report.page import MAX_HOURS, bar_extents, hour_names, report_page
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.period import day_of, parse_date
from tests.fakes_notification import a_comparison

pytestmark = pytest.mark.unit

MARKUP = "<script>alert('1')</script>&\"><img src=http://evil/x>"
NASTY = f"{MARKUP}\u2028\x1b[31m"
# All attributes of a page; none of them loads or runs anything.
ATTRIBUTES = {
    "lang", "charset", "name", "content", "http-equiv", "class", "scope", "viewbox", "preserveaspectratio",
    "aria-hidden", "aria-label", "role", "x", "y", "width", "height",
}  # fmt: skip


class Page(HTMLParser):
    """The tags with their attributes, the text, and whether every element was closed in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text, self.cells = [], [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        elif tag in {"td", "th"}:
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data + "\n"
        if {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data

    def rows(self):
        """The rows of all tables, without the blanks that align numbers."""
        return [[cell.strip() for cell in row] for row in self.cells]

    def rects(self, class_):
        return [attrs for tag, attrs in self.tags if tag == "rect" and attrs["class"] == class_]


def hours_of(source, count, rows=lambda index: index + 1, begin=datetime(2013, 3, 10)):
    """A source whose late data arrived in `count` hours, with that many rows each."""
    hours = [begin + timedelta(hours=index) for index in range(count)]
    changes = tuple(
        InputChange(
            source=source, date=f"{hour:%Y-%m-%d}", hour=f"{hour:%H}", file=None, change=Change.ADDED,
            now=Amount(objects=1, rows=rows(index), bytes=10),
        )
        for index, hour in enumerate(hours)
    )  # fmt: skip
    return SourceDifference(source=source, before=Amount(), now=Amount(), changes=changes)


def metric_hours(date, pairs, timezone="America/New_York"):
    """The hours of a day with those values before and after; other hours have none."""
    quarters = quarters_of_day(day_of(parse_date(date), timezone), timezone)
    starts = list(dict.fromkeys(hour.start(date) for hour in quarters))
    values = {index: pairs.get(index, (None, None)) for index in range(len(starts))}
    return tuple(
        HourTotals(hour=start, before=values[index][0], after=values[index][1]) for index, start in enumerate(starts)
    )


def with_hours(*hours, total="sum"):
    """A comparison of one metric with these hours, and no chart of inputs."""
    metric = MetricChange(metric="flights", total=total, exact=True, before=7, after=7, hours=hours)
    return a_comparison().model_copy(update={"metrics": (metric,), "inputs": ()})


def largest_comparison():
    """As many rows, metrics and files as a stored comparison may have, with names and values of the largest size."""
    long = "<&\"'" * (MAX_STRING_LENGTH // 4)
    key = {f"key_{index}_{long}": long for index in range(5)}
    values = {f"column_{index}_{long}": (long, long[::-1]) for index in range(100)}
    rows = tuple(RowChange(change=Change.CHANGED, key=key, values=values) for _ in range(MAX_ROWS))
    movers = tuple(Mover(key=key, before=index, after=index + 1) for index in range(5))
    metrics = tuple(
        MetricChange(
            metric=f"m{index}" * 100, total="sum", before=1.1 * index, after=1e300, movers=movers,
            hours=metric_hours("2013-11-03", dict.fromkeys(range(25), (-1.1e300, 1.23456789e-300))),
        )
        for index in range(300)
    )  # fmt: skip
    update = {
        "examples": rows,
        "metrics": metrics,
        "rows": RowCounts(before=0, after=9999, added=9999, removed=0, changed=0),
    }
    sources = tuple(hours_of(f"source_{index}", 200) for index in range(10))
    return a_comparison(inputs=sources).model_copy(update=update | {"key": tuple(key)})


def test_the_page_is_whole_and_shows_every_section_of_the_e_mail():
    page = report_page(a_comparison())
    parsed = Page(page)
    assert parsed.open == []
    ElementTree.fromstring(re.sub(r"<meta [^>]*>", "", page.removeprefix("<!DOCTYPE html>\n")))  # noqa: S314 - our page
    assert parsed.text.lstrip().startswith("Late data has changed daily_delays for 2013-03-10\n")
    titles = [line for line in compose(a_comparison()).body.splitlines() if line and not line.startswith((" ", "Late"))]
    assert set(titles[1:]) <= set(parsed.text.replace("\N{WORD JOINER}", "").splitlines())


def test_the_page_needs_nothing_from_elsewhere():
    parsed = Page(report_page(largest_comparison()))
    assert {tag for tag, _ in parsed.tags} <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "section", "figure", "figcaption", "div",
        "span", "svg", "rect", "text", "table", "thead", "tbody", "tr", "th", "td", "g", "details", "summary",
    }  # fmt: skip
    assert {name for _, attrs in parsed.tags for name in attrs} == ATTRIBUTES
    assert "url(" not in report_page(a_comparison())
    assert "@import" not in report_page(a_comparison())


def test_data_is_escaped_wherever_it_appears():
    row = RowChange(change=Change.CHANGED, key={NASTY: NASTY}, values={NASTY: (NASTY, 1)})
    movers = tuple(Mover(key={NASTY: NASTY}, before=1, after=after) for after in (2, 3))
    hours = (HourTotals(hour=f"{MARKUP}T01:00", before=1, after=2),)
    metric = MetricChange(metric=NASTY, total="sum", before=1, after=2, movers=movers, hours=hours)
    change = InputChange(
        source=MARKUP, date="2013-03-10", hour="12", file=NASTY, change=Change.ADDED, now=Amount(objects=1, rows=3)
    )
    source = SourceDifference(source=MARKUP, before=Amount(), now=Amount(rows=3), changes=(change,))
    comparison = a_comparison(inputs=(source,))
    after = comparison.after.model_copy(update={"files_not_taken": {MARKUP: 1}})
    update = {"examples": (row,), "metrics": (metric,), "key": (NASTY,), "pipeline": MARKUP, "after": after}
    page = report_page(comparison.model_copy(update=update))
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    parsed = Page(page)
    assert parsed.open == []
    assert {name for tag, attrs in parsed.tags for name in attrs} <= ATTRIBUTES
    # The title twice, the summary, five commands, and the source in its chart, twice in its table and as missing.
    assert parsed.text.count("<script>alert('1')</script>") > 12


def test_the_largest_page_is_small():
    assert len(report_page(largest_comparison()).encode()) < 300_000


def test_bars_of_metrics_are_proportional_to_the_totals():
    metrics = (
        MetricChange(metric="flights", total="sum", before=831, after=883),
        MetricChange(metric="delay", total="mean", before=-5, after=15),
        MetricChange(metric="seats", total="sum", before=None, after=7),
        MetricChange(metric="nothing", total="sum", before=0, after=0),
        MetricChange(metric="unknown", total="sum", before=None, after=None),
    )
    parsed = Page(report_page(a_comparison().model_copy(update={"metrics": metrics})))
    before = [(float(rect["x"]), float(rect["width"])) for rect in parsed.rects("before")][:4]
    after = [(float(rect["x"]), float(rect["width"])) for rect in parsed.rects("after")][:4]
    assert before == [(0, pytest.approx(100 * 831 / 883, abs=1e-4)), (0, 25), (0, 0), (0, 0)]
    assert after == [(0, 100), (25, 75), (0, 100), (0, 0)]
    assert "unknown (sum)" not in parsed.text


@given(values=st.tuples(*[st.floats(allow_nan=False, allow_infinity=False) | st.none()] * 2))
def test_bars_stay_within_the_chart_for_any_numbers(values):
    for start, width in bar_extents(values):
        assert 0 <= start <= 100
        assert 0 <= width <= 100
        assert start + width <= 100.001


def test_columns_of_hours_are_proportional_to_the_rows_before_and_after():
    source = hours_of("weather", 4, rows=lambda index: [10, 0, 25, 50][index])
    gone = InputChange(
        source="weather", date="2013-03-10", hour="05", file=None, change=Change.REMOVED, before=Amount(rows=20)
    )
    corrected = source.changes[2].model_copy(update={"change": Change.CHANGED, "before": Amount(rows=40)})
    source = source.model_copy(update={"changes": (*source.changes, corrected, gone)})
    parsed = Page(report_page(a_comparison(inputs=(source,)).model_copy(update={"metrics": ()})))
    # Nothing has changed in hour 04, and hour 02 has a new and a corrected input.
    before, after = [0, 0, 40, 0, 0, 20], [10, 0, 50, 50, 0, 0]
    for side, rows in (("before", before), ("after", after)):
        assert [float(rect["height"]) for rect in parsed.rects(side)] == [80 * count / 50 for count in rows]
        assert {float(rect["y"]) + float(rect["height"]) for rect in parsed.rects(side)} == {80}
    assert "weather, 2013-03-10 00:00 to 06:00 UTC: at most 50 rows in an hour" in parsed.text
    assert "2013-03-10 02:00 UTC: 40 -> 50 rows" in parsed.text


def test_a_metric_has_columns_by_hour_up_and_down_from_zero():
    parsed = Page(report_page(with_hours(*metric_hours("2013-03-10", {0: (30, 30), 1: (10, -10), 2: (None, 20)}))))
    hours = {"before": parsed.rects("before")[1:], "after": parsed.rects("after")[1:]}
    shown = {side: [(float(rect["y"]), float(rect["height"])) for rect in rects] for side, rects in hours.items()}
    nothing = [(60, 0)] * 20
    assert shown == {
        "before": [(0, 60), (40, 20), (60, 0), *nothing], "after": [(0, 60), (60, 20), (20, 40), *nothing]
    }  # fmt: skip
    assert [rect["y"] for rect in parsed.rects("base")] == ["60.0"]
    groups = [attrs["class"] for tag, attrs in parsed.tags if tag == "g"]
    assert groups == ["same", "moved", "moved", *["same"] * 20]
    assert "from -10 to 30" in parsed.text
    assert "01:00: 10 -> -10 (-200.0 %)" in parsed.text
    table = parsed.rows()
    index = table.index(["hour", "version 1", "version 2", "change"])
    assert table[index + 1 : index + 5] == [
        ["00:00", "30", "30", ""], ["01:00", "10", "-10", "-200.0 %"], ["03:00", "none", "20", "new"],
        ["04:00", "none", "none", ""],
    ]  # fmt: skip


def test_a_metric_without_changed_hours_has_no_chart_by_hour():
    for hours in ((), metric_hours("2013-03-10", {3: (5, 5)})):
        assert "By local hour" not in Page(report_page(with_hours(*hours))).text


def test_an_hour_that_occurs_twice_is_named_with_its_offset():
    names = hour_names([*metric_hours("2013-11-03", {}), HourTotals(hour=None, before=1, after=2)])
    assert names[:4] == ["00:00", "01:00 -04:00", "01:00 -05:00", "02:00"]
    assert (names[-2:], len(names)) == (["23:00", "no hour"], 26)
    assert hour_names([HourTotals(hour="2013-11-03T01:00", before=1, after=2)]) == ["01:00"]


@pytest.mark.parametrize("hours", [["23", "00"], ["20", "21", "22", "23", "00"], ["12"]])
def test_labels_of_a_chart_stay_within_it_and_apart(hours):
    begin = datetime(2013, 3, 10, int(hours[0]))
    source = hours_of("weather", len(hours), begin=begin)
    parsed = Page(report_page(a_comparison(inputs=(source,)).model_copy(update={"metrics": ()})))
    (svg,) = [attrs for tag, attrs in parsed.tags if tag == "svg"]
    labels = [(float(attrs["x"]), attrs["y"]) for tag, attrs in parsed.tags if tag == "text"]
    for line, width in (("95", 14), ("111", 76)):
        positions = [x for x, y in labels if y == line]
        assert all(later - earlier >= width for earlier, later in itertools.pairwise(positions))
        assert positions[0] == 0
        assert positions[-1] + width <= float(svg["width"])


def test_many_hours_are_counted_and_not_drawn():
    comparison = a_comparison(inputs=(hours_of("weather", MAX_HOURS + 3),)).model_copy(update={"metrics": ()})
    parsed = Page(report_page(comparison))
    assert len(parsed.rects("after")) == MAX_HOURS
    assert "; 3 later hours not shown" in parsed.text


def test_published_days_of_other_pipelines_have_no_chart_of_hours():
    change = InputChange(
        source="days", date="2013-03-10", hour="00", file="daily 2013-03-10", change=Change.CHANGED,
        before=Amount(objects=1, rows=10), now=Amount(objects=1, rows=11),
    )  # fmt: skip
    source = SourceDifference(source="days", before=Amount(rows=70), now=Amount(rows=71), changes=(change,))
    parsed = Page(report_page(a_comparison(inputs=(source,))))
    assert "Rows of the changed inputs by hour" not in parsed.text
    assert ["days", "daily 2013-03-10", "changed", "10", "11", "", "", ""] in parsed.rows()


def test_a_day_of_another_pipeline_shows_how_long_after_the_listing_it_was_published():
    comparison = a_comparison()
    published = comparison.before.frozen_at + timedelta(hours=2)
    change = InputChange(
        source="days", date="2013-03-10", hour="", file="daily 2013-03-10", change=Change.CHANGED,
        before=Amount(objects=1, rows=10), now=Amount(objects=1, rows=11), arrived=published,
    )  # fmt: skip
    source = SourceDifference(source="days", before=Amount(rows=70), now=Amount(rows=71), changes=(change,))
    [cells] = [row for row in Page(report_page(a_comparison(inputs=(source,)))).rows() if row[0] == "days"]
    assert cells[5] == f"{published:%Y-%m-%d %H:%M} UTC, 2 h later"


def test_late_files_and_changed_rows_are_tables():
    rows = Page(report_page(a_comparison())).rows()
    assert rows[rows.index(["change", "origin", "carrier", "flights", "dep_delay_mean", "cancelled"]) + 1 :][:2] == [
        ["changed", "EWR", "UA", "120 -> 131", "3.1 -> 4.25", ""],
        ["added", "LGA", "OO", "3", "", "0"],
    ]
    names = ["input", "file", "change", "rows before", "rows after", "arrived", "hours", "size"]
    assert rows[rows.index(names) + 1 :] == [
        ["flights", "flights-2013-03-10-08.csv", "changed", "118", "120",
         "2013-03-11 10:14 UTC, 3 h 12 min later", "2013-03-10 12:00 to 13:00 UTC", "9.9 kB"],
        ["flights", "flights-2013-03-10-20.csv", "added", "0", "50",
         "2013-03-12 09:02 to 10:02 UTC, up to 1 day 3 h later", "2013-03-11 01:00 to 03:00 UTC", "7.5 kB"],
    ]  # fmt: skip


def test_rows_with_many_columns_show_those_that_changed_most_often():
    often = {f"often_{index}": (index, index + 1) for index in range(8)}
    rows = tuple(
        RowChange(change=Change.CHANGED, key={"origin": origin}, values={"seldom": (1, 2), **often} if first else often)
        for origin, first in (("EWR", True), ("JFK", False))
    )
    comparison = a_comparison().model_copy(update={"examples": rows, "key": ("origin",)})
    shown = Page(report_page(comparison)).rows()
    index = shown.index(["change", "origin", *often, "1 more column"])
    assert [row[-1] for row in shown[index + 1 : index + 3]] == ["1 not shown", ""]


def test_a_comparison_without_differences_says_so():
    same = RowCounts(before=5, after=5, added=0, removed=0, changed=0)
    assert "<h1>daily_delays for 2013-03-10: no change</h1>" in report_page(a_comparison(rows=same))
