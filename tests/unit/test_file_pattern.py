"""Names of files by date and hour."""

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
def test_names_that_do_not(pattern, name):
    assert not FilePattern(pattern).matches(name, DAY)


def test_an_exact_pattern_makes_its_names():
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
def test_what_all_names_begin_with(pattern, prefix):
    assert FilePattern(pattern).prefix(DAY) == prefix


@given(
    st.sampled_from(["{date}", "{date:%Y%m%d}/{hour}", "a.{hour}-{date}.csv", "({date})[{hour}]"]),
    st.dates(date(1970, 1, 1), date(2100, 1, 1)),
)
def test_every_name_that_is_made_matches_its_day_and_no_other(pattern, day):
    found = FilePattern(pattern)
    for name in found.names(day):
        assert found.matches(name, day)
        assert name.startswith(found.prefix(day))
        assert not found.matches(name, date(1969, 12, 31))
