"""Patterns of file names with date and hour."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.sources.file_pattern import FilePattern, WatchedPattern

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


@pytest.mark.parametrize(
    ("pattern", "name", "prefix", "recorded"),
    [
        ("x-{date}.csv", "x-2013-03-08-late.csv", "x-2013-03-08", True),
        ("x-{date}.csv", "x-2013-03-08.csv", "x-2013-03-08", False),
        ("x-{date}.csv", "x-2013-03-09-late.csv", "x-2013-03-08", False),
        ("x-{date}.csv", "x-2013-03-08/a.csv", "x-2013-03-08", False),
        ("x-{date}.csv", "x-2013-03-08.csv.MD5", "x-2013-03-08", False),
        ("{date:%Y}/{date:%m}/{date:%d}-{hour}.csv", "2013/03/08.csv", "2013/03/08", True),
        ("{date}/a-*.csv", "2013-03-08/b.csv", "2013-03-08/", True),
        ("{date}/{hour}/a.csv", "2013-03-08/05/b.csv", "2013-03-08/", True),
        ("{date}/{hour}/a.csv", "2013-03-08/b.csv", "2013-03-08/", False),
    ],
)
def test_a_watched_pattern_records_names_of_its_dates_with_another_end(pattern, name, prefix, recorded):
    watched = WatchedPattern(pattern)
    assert watched.prefix(DAY) == prefix
    assert bool(watched.of_days([DAY]).fullmatch(name)) is FilePattern(pattern).matches(name, DAY)
    assert watched.others == ({name} if recorded else set())
