"""The key `counts` of a source."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from slackwater.errors import DefinitionError
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit


def test_the_defaults_are_those_of_the_page():
    counts = a_source(counts={"window": "5m"}).counts
    assert (counts.complete_percent, counts.percent_units, counts.wait, counts.pattern) == (
        99.995,
        99_995,
        timedelta(hours=2),
        None,
    )


@pytest.mark.parametrize(
    ("counts", "more", "reason"),
    [
        ({}, {}, "window"),
        ({"window": "15m"}, {}, "'5m', '10m', '1h' or 'day'"),
        ({"window": "1h", "complete_percent": 0}, {}, "greater than 0"),
        ({"window": "1h", "complete_percent": 101}, {}, "less than or equal to 100"),
        ({"window": "1h", "complete_percent": 99.9999}, {}, "99.9999 has more than three decimals"),
        ({"window": "1h", "within": "soon"}, {}, "'soon' is not a duration such as 30m, 2h or 1d"),
        ({"window": "1h", "files": "counts.json"}, {}, "has no {date}"),
        ({"window": "1h", "files": "{date}.json"}, {"pull": None}, "the source has no `pull`: remove it"),
        ({"window": "1h", "files": "things-{date}.csv"}, {}, "`pull.files` is the same pattern: name other files"),
        (
            {"window": "day"},
            {"timestamp": {"field": "at", "timezone": "Asia/Kolkata"}},
            "days in Asia/Kolkata do not begin with a UTC hour: use 5m, 10m or 1h",
        ),
        ({"window": "1h", "by": "region"}, {}, "Extra inputs are not permitted"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_with_its_remedy(counts, more, reason):
    with pytest.raises((ValidationError, DefinitionError)) as refused:
        a_source(counts=counts, **more)
    assert reason in str(refused.value)


def test_names_of_files_with_counts_are_exact_without_a_listing():
    pull = {"url": "http://127.0.0.1:1/x", "files": "things-{date}.csv", "listing": "none"}
    with pytest.raises((ValidationError, DefinitionError), match=r"no \* with `listing: none`"):
        a_source(pull=pull, counts={"window": "1h", "files": "{date}*.json"})


@pytest.mark.parametrize(("within", "wait"), [("30m", timedelta(minutes=30)), ("1d", timedelta(days=1))])
def test_durations_have_units(within, wait):
    assert a_source(counts={"window": "1h", "within": within}).counts.wait == wait
