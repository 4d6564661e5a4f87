"""The largest effect of a comparison, as subjects and messages name it."""

from __future__ import annotations

import pytest

from slackwater.late.comparison import MetricChange, RowCounts
from slackwater.late.report.headline import largest_effect, largest_metric, metric_effect, rows_effect
from tests.fakes_comparison import comparison

pytestmark = pytest.mark.unit


def moved(name, before, after, total="sum", **options):
    return MetricChange(metric=name, total=total, before=before, after=after, **options)


def rows(**counts):
    return RowCounts(**{"before": 9, "after": 9, "added": 0, "removed": 0, "changed": 0, **counts})


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ([moved("flights", 831, 883)], "flights 831 -> 883 (+6.3 %)"),
        ([moved("flights", 831, 883), moved("cancelled", 12, 13)], "flights 831 -> 883 (+6.3 %)"),
        ([moved("delay", 1.0, 9.0, "mean"), moved("flights", 831, 830)], "flights 831 -> 830 (-0.1 %)"),
        ([moved("delay", 10.0, 10.5, "mean"), moved("wind", 2.0, 1.0, "mean")], "wind 2 -> 1 (-50.0 %)"),
        ([moved("flights", 5, 10), moved("cancelled", 0, 1)], "flights 5 -> 10 (+100.0 %)"),
        ([moved("flights", None, 883)], "flights none -> 883 (new)"),
        ([moved("flights", 883, None)], "flights 883 -> none (gone)"),
        ([moved("flights", 5, 5), moved("delay", 0.3, 0.1 + 0.2, "mean")], "2 rows changed"),
        ([moved("longest", 3.0, 9.0, "max"), moved("delay", 10.0, 10.5, "mean")], "delay 10 -> 10.5 (+5.0 %)"),
        ([moved("longest", 3.0, 9.0, "max"), moved("delay", 10.0, 10.0, "mean")], "longest 3 -> 9 (+200.0 %)"),
        ([moved("earliest", -3.0, None, "min")], "earliest -3 -> none (gone)"),
        ([moved("fares", 0.3, 0.1 + 0.2)], "2 rows changed"),
        ([moved("cents", 10**12, 10**12 + 1, exact=True)], "cents 1,000,000,000,000 -> 1,000,000,000,001 (+1e-10 %)"),
        ([moved("größe\n", 1, 2)], "gr\\xf6\\xdfe\\n 1 -> 2 (+100.0 %)"),
    ],
)
def test_sums_come_before_means_and_means_before_rows(metrics, expected):
    effect = largest_effect(comparison(metrics=tuple(metrics), rows=rows(changed=2)))
    assert effect == expected
    assert effect.isascii()


def test_the_metric_of_the_largest_effect():
    flights = moved("flights", 1, 2)
    assert largest_metric(comparison(metrics=(moved("delay", 1.0, 9.0, "mean"), flights))) == flights
    assert largest_metric(comparison(metrics=(moved("flights", 2, 2),))) is None
    assert metric_effect(flights) == "flights 1 -> 2 (+100.0 %)"


@pytest.mark.parametrize(
    ("counts", "expected"),
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
def test_the_effect_of_rows_counts_added_removed_and_changed_rows(counts, expected):
    assert rows_effect(rows(**counts)) == expected
