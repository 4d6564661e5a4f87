"""The largest effect of a comparison in words, and numbers as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.late.comparison import MetricChange, RowCounts
from slackwater.late.effect import change, duration, effect, largest_effect, largest_metric, number, pair, rows_effect
from tests.fakes_late import comparison

pytestmark = pytest.mark.unit


def moved(name, before, after, total="sum"):
    return MetricChange(metric=name, total=total, before=before, after=after)


def rows(**counts):
    return RowCounts(**{"before": 9, "after": 9, "added": 0, "removed": 0, "changed": 0, **counts})


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ([moved("flights", 831, 883)], "flights 831 -> 883 (+6.3 %)"),
        ([moved("flights", 831, 883), moved("cancelled", 12, 13)], "flights 831 -> 883 (+6.3 %)"),
        ([moved("delay", 1.0, 9.0, "mean"), moved("flights", 831, 830)], "flights 831 -> 830 (-0.1 %)"),
        ([moved("delay", 10.0, 10.5, "mean"), moved("wind", 2.0, 1.0, "mean")], "wind 2 -> 1 (-50.0 %)"),
        ([moved("flights", 5, 10), moved("cancelled", 0, 1)], "flights 5 -> 10 (+100.0 %)"),
        ([moved("flights", None, 883)], "flights none -> 883 (new)"),
        ([moved("flights", 883, None)], "flights 883 -> none (gone)"),
        ([moved("flights", 5, 5), moved("delay", 0.3, 0.1 + 0.2, "mean")], "2 rows changed"),
        ([moved("größe\n", 1, 2)], "gr\\xf6\\xdfe\\n 1 -> 2 (+100.0 %)"),
    ],
)
def test_sums_come_before_means_and_means_before_rows(metrics, words):
    found = largest_effect(comparison(metrics=tuple(metrics), rows=rows(changed=2)))
    assert found == words
    assert found.isascii()


def test_the_metric_that_the_largest_effect_is_about_can_be_asked_for():
    flights = moved("flights", 1, 2)
    assert largest_metric(comparison(metrics=(moved("delay", 1.0, 9.0, "mean"), flights))) == flights
    assert largest_metric(comparison(metrics=(moved("flights", 2, 2),))) is None
    assert effect(flights) == "flights 1 -> 2 (+100.0 %)"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"added": 3}, "+3 rows"),
        ({"added": 1}, "+1 row"),
        ({"added": 3, "removed": 1200, "changed": 4}, "+3 -1,200 rows"),
        ({"removed": 1}, "-1 row"),
        ({"changed": 1}, "1 row changed"),
        ({"changed": 1200}, "1,200 rows changed"),
        ({}, "no change"),
    ],
)
def test_rows_are_told_as_they_came_and_went(counts, words):
    assert rows_effect(rows(**counts)) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"), (0, "0"), (0.0, "0"), (-0.0, "0"), (883, "883"), (1234567, "1,234,567"), (883.0, "883"),
        (12.6312, "12.63"), (1234.567, "1,234.57"), (-5.5, "-5.5"), (0.8889, "0.8889"), (0.012345, "0.01235"),
        (1e-9, "1e-09"), (123456789012345678, "1.235e+17"), (float("nan"), "nan"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_numbers_have_thousands_separators_and_sensible_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (12.63, 12.64, ("12.63", "12.64")),
        (0.91234, 0.91235, ("0.91234", "0.91235")),
        (1e17, 1e17 + 64, ("1e+17", "1.0000000000000006e+17")),
        (1.5, 1.5, ("1.5", "1.5")),
        (None, 1.23456, ("none", "1.235")),
        (None, None, ("none", "none")),
    ],
)
def test_two_numbers_that_differ_look_different(before, after, texts):
    assert pair(before, after) == texts


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (831, 883, "+6.3 %"), (100, 50, "-50.0 %"), (-10, -5, "+50.0 %"), (1, 100, "+9,900.0 %"), (0, 52, "+52"),
        (0, -0.5, "-0.5"), (7, 7, ""), (None, None, ""), (None, 7, "new"), (7, None, "gone"),
        (100_000, 100_001, "+0.001 %"), (1e18, 1e18 + 256, "+2.6e-14 %"), (1e-300, 1, "+1e+302 %"),
    ],
)  # fmt: skip
def test_a_change_is_relative_to_what_was_there(before, after, text):
    assert change(before, after) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.6, "1 s"), (25, "25 s"), (60, "1 min"), (250, "4 min 10 s"), (3600, "1 h"), (3601, "1 h"),
        (7500, "2 h 5 min"), (86_400, "1 day"), (86_460, "1 day"), (183_600, "2 days 3 h"), (-90, "1 min 30 s"),
    ],
)  # fmt: skip
def test_a_span_is_told_by_its_two_largest_units(seconds, text):
    assert duration(timedelta(seconds=seconds)) == text
