"""Patterns of file names with date and hour."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.sources.file_pattern import FilePattern

pytestmark = pytest.mark.unit

DAY = date(2013, 3, 8)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("flights-{date}*.csv", "flights-2013-03-08-04.csv"),
        ("flights-{date}*.csv", "flights-2013-03-08.csv"),
        ("{date:%Y/%m/%d}/x-{hour}.json", "2013/03/08/x-05.json"),
        ("{date:%Y%m%d}T{hour}00 ü.csv", "20130308T2300 ü.csv"),
        ("a+b.{date}.csv", "a+b.2013-03-08.csv"),
    ],
)
def test_names_that_match(pattern, name):
    assert FilePattern(pattern).matches(name, DAY)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("flights-{date}*.csv", "flights-2013-03-09-04.csv"),
        ("flights-{date}*.csv", "flights-2013-03-08/04.csv"),
        ("flights-{date}*.csv", "flights-2013-03-08-04.csv\n"),
        ("flights-{date}*.csv", "old-flights-2013-03-08-04.csv"),
        ("x-{date}-{hour}.csv", "x-2013-03-08-24.csv"),
        ("x-{date}-{hour}.csv", "x-2013-03-08-5.csv"),
        ("a+b.{date}.csv", "aab.2013-03-08.csv"),
    ],
)
def test_names_that_do_not_match(pattern, name):
    assert not FilePattern(pattern).matches(name, DAY)


def test_an_exact_pattern_generates_names():
    assert list(FilePattern("x-{date}.csv").names(DAY)) == ["x-2013-03-08.csv"]
    hours = list(FilePattern("{date:%Y/%m/%d}/{hour}.csv").names(DAY))
    assert (hours[0], hours[-1], len(hours)) == ("2013/03/08/00.csv", "2013/03/08/23.csv", 24)
    assert FilePattern("x-{date}.csv").is_exact
    assert not FilePattern("x-{date}*.csv").is_exact


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("flights-{date}*.csv", "flights-2013-03-08"),
        ("{date:%Y/%m/%d}/x-{hour}.csv", "2013/03/08/x-"),
        ("*-{date}.csv", ""),
        ("x-{date}.csv", "x-2013-03-08.csv"),
    ],
)
def test_the_common_prefix_of_all_names(pattern, prefix):
    assert FilePattern(pattern).prefix(DAY) == prefix


@given(
    st.sampled_from(["{date}", "{date:%Y%m%d}/{hour}", "a.{hour}-{date}.csv", "({date})[{hour}]"]),
    st.dates(date(1970, 1, 1), date(2100, 1, 1)),
)
def test_generated_names_match_their_day_only(pattern, day):
    result = FilePattern(pattern)
    for name in result.names(day):
        assert result.matches(name, day)
        assert name.startswith(result.prefix(day))
        assert not result.matches(name, date(1969, 12, 31))
