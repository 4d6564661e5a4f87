"""The key `counts` of a source."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from slackwater.errors import DefinitionError
from slackwater.sources.counts import ALL, column_of, value_of
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
        ({"window": "1h", "per": "region"}, {}, "Extra inputs are not permitted"),
        ({"window": "1h", "by": "id"}, {}, "values: list the values of 'id' that are counted, such as [EU, US]"),
        ({"window": "1h", "values": ["EU"]}, {}, "by: name the field whose values `values` lists"),
        (
            {"window": "1h", "by": "region", "values": ["EU"]},
            {},
            "'region' must be listed in `fields` with type string",
        ),
        ({"window": "1h", "by": "count", "values": ["1"]}, {}, "'count' must be listed in `fields` with type string"),
        ({"window": "1h", "by": "id", "values": ["EU", "other"]}, {}, "'other' is the name of all values that are not"),
        ({"window": "1h", "by": "id", "values": ["EU", "US", "EU"]}, {}, "'EU' is listed twice: remove one"),
        ({"window": "1h", "by": "id", "values": [""]}, {}, "at least 1 character"),
        ({"window": "1h", "by": "id", "values": [*"abcdefghi"]}, {}, "at most 8 items"),
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


def test_a_definition_without_values_is_written_as_before():
    assert a_source(counts={"window": "1h"}).model_dump(mode="json")["counts"].keys() == {
        *("window", "complete_percent", "within", "files")
    }
    by = {"window": "1h", "by": "id", "values": ["EU"]}
    assert a_source(counts=by).model_dump(mode="json", exclude_defaults=True)["counts"] == by


def test_keys_name_the_column_and_the_value():
    counts = a_source(counts={"window": "1h", "by": "id", "values": ["a=b", "Süd"]}).counts
    assert counts.keys == ("id=a=b", "id=Süd", "id=")
    assert [value_of(key) for key in (*counts.keys, ALL)] == ["a=b", "Süd", "other", None]
    assert column_of(counts.keys) == ("id", ["a=b", "Süd"])
    assert column_of(a_source(counts={"window": "1h"}).count_keys) is None
