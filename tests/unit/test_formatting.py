"""Numbers, durations, timestamps and hours as plain strings."""

from __future__ import annotations

from datetime import timedelta

import pytest
from humanize import naturalsize

from slackwater.formatting import (
    counted,
    duration,
    escape_control_characters,
    hour_range,
    number,
    number_pair,
    percentage,
    relative_change,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 Bytes"),
        (1, "1 Byte"),
        (999, "999 Bytes"),
        (14_200, "14.2 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (3_100_000_000_000, "3.1 TB"),
        (4_000_000_000_000_000, "4.0 PB"),
    ],
)
def test_sizes_are_shown_in_si_units(count, expected):
    assert naturalsize(count) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [(97, 924, "10.5 %"), (996, 100_000, "0.996 %"), (1, 100, "1 %"), (30, 20, "150.0 %"), (3, 0, "no rows before")],
)
def test_percentages_keep_enough_digits_to_compare_them_with_a_threshold(part, whole, expected):
    assert percentage(part, whole) == expected


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        ([("2013-03-10", "12")], "2013-03-10 12:00 to 13:00 UTC"),
        ([("2013-03-10", "23")], "2013-03-10 23:00 to 2013-03-11 00:00 UTC"),
        ([("2013-03-11", "00"), ("2013-03-10", "23")], "2013-03-10 23:00 to 2013-03-11 01:00 UTC"),
        ([("2013-03-10", "12")] * 2 + [("2013-03-10", "14")], "2 hours of 2013-03-10 12:00 to 15:00 UTC"),
    ],
)
def test_hours_are_shown_as_the_time_that_they_cover(hours, expected):
    assert hour_range(hours) == expected


def test_counted_nouns_have_the_right_plural():
    assert [counted(count, "row") for count in (0, 1, 2, 1234)] == ["0 rows", "1 row", "2 rows", "1,234 rows"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "none"), (0, "0"), (0.0, "0"), (-0.0, "0"), (883, "883"), (1234567, "1,234,567"), (883.0, "883"),
        (12.6312, "12.63"), (1234.567, "1,234.57"), (-5.5, "-5.5"), (0.8889, "0.8889"), (0.012345, "0.01235"),
        (1e-9, "1e-09"), (123456789012345678, "1.235e+17"), (float("nan"), "nan"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_numbers_have_thousands_separators_and_sensible_digits(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (12.63, 12.64, ("12.63", "12.64")),
        (0.91234, 0.91235, ("0.91234", "0.91235")),
        (1e17, 1e17 + 64, ("1e+17", "1.0000000000000006e+17")),
        (1.5, 1.5, ("1.5", "1.5")),
        (None, 1.23456, ("none", "1.235")),
        (None, None, ("none", "none")),
    ],
)
def test_two_numbers_that_differ_look_different(before, after, expected):
    assert number_pair(before, after) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (831, 883, "+6.3 %"), (100, 50, "-50.0 %"), (-10, -5, "+50.0 %"), (1, 100, "+9,900.0 %"), (0, 52, "+52"),
        (0, -0.5, "-0.5"), (7, 7, ""), (None, None, ""), (None, 7, "new"), (7, None, "gone"),
        (100_000, 100_001, "+0.001 %"), (1e18, 1e18 + 256, "+2.6e-14 %"), (1e-300, 1, "+1e+302 %"),
    ],
)  # fmt: skip
def test_a_change_is_relative_to_the_value_before(before, after, expected):
    assert relative_change(before, after) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"), (0.6, "1 s"), (25, "25 s"), (60, "1 min"), (250, "4 min 10 s"), (3600, "1 h"), (3601, "1 h"),
        (7500, "2 h 5 min"), (86_400, "1 day"), (86_460, "1 day"), (183_600, "2 days 3 h"), (-90, "1 min 30 s"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_by_its_two_largest_units(seconds, expected):
    assert duration(timedelta(seconds=seconds)) == expected


def test_control_characters_are_written_out_on_one_line():
    assert escape_control_characters("a\n\x1b[31m\u2028é") == "a\\n\\x1b[31m\\u2028é"
