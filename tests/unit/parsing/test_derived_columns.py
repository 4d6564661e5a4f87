from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slackwater.receiver.parsing.event_checks import check_events, derive_column
from slackwater.sources.event_schema import ARROW_TYPES, TIMESTAMP, event_schema
from slackwater.sources.fields import ConstantColumn, DatePartColumn, LookupColumn, TemplateColumn
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
EVENTS = pa.table(
    {
        "id": ["EWR", "JFK", None, "LGA"],
        "count": [1545, -1, None, 2**63 - 1],
        "size": [3.0, 1e16, None, 1e-7],
        "good": [True, False, None, True],
        "day": [date(2013, 3, 8), date(1, 2, 3), None, date(2013, 3, 8)],
        "at": pa.array([NOON, NOON + timedelta(microseconds=250_000), None, datetime(1, 1, 1, tzinfo=UTC)], TIMESTAMP),
    }
)


def derived(definition, table: pa.Table = EVENTS) -> list[object]:
    array = derive_column(table, definition)
    assert array.type == ARROW_TYPES[definition.type]
    return array.to_pylist()


@pytest.mark.parametrize("value", ["EU", "", 7, 2.5, True])
def test_a_constant_is_the_same_in_every_event(value):
    assert derived(ConstantColumn(constant=value)) == [value] * 4


@pytest.mark.parametrize(
    ("template", "strings"),
    [
        ("{id}-{count}", ["EWR-1545", "JFK--1", None, "LGA-9223372036854775807"]),
        ("at {at}", ["at 2013-03-08T12:00:00Z", "at 2013-03-08T12:00:00.250000Z", None, "at 0001-01-01T00:00:00Z"]),
        ("{day}", ["2013-03-08", "0001-02-03", None, "2013-03-08"]),
        ("{size}|{good}", ["3.0|true", "1e+16|false", None, "1e-07|true"]),
        ("{{{id}}}", ["{EWR}", "{JFK}", None, "{LGA}"]),
        ("nothing", ["nothing"] * 4),
        ("", [""] * 4),
    ],
)
def test_templates_combine_fields_and_text(template, strings):
    assert derived(TemplateColumn(template=template)) == strings


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_in_templates_are_formatted_as_json(numbers):
    strings = derived(TemplateColumn(template="{n}"), pa.table({"n": pa.array(numbers, pa.float64())}))
    assert strings == [json.dumps(number) for number in numbers]


@pytest.mark.parametrize(
    ("mapping", "strings"),
    [
        (LookupColumn(of="id", values={"EWR": "Newark", "LGA": "La Guardia"}), ["Newark", None, None, "La Guardia"]),
        (
            LookupColumn(of="id", values={"EWR": "Newark"}, default="elsewhere"),
            ["Newark", "elsewhere", None, "elsewhere"],
        ),
        (LookupColumn(of="count", values={"1545": "a", "-1": "b"}), ["a", "b", None, None]),
        (LookupColumn(of="good", values={"true": "yes"}, default="no"), ["yes", "no", None, "yes"]),
        (LookupColumn(of="day", values={"2013-03-08": "Friday"}), ["Friday", None, None, "Friday"]),
        (LookupColumn(of="size", values={"3.0": "three"}), ["three", None, None, None]),
    ],
    ids=str,
)
def test_lookups_map_values(mapping, strings):
    assert derived(mapping) == strings


_near_changes = st.builds(
    lambda change, off: change + timedelta(microseconds=off),
    st.sampled_from(
        [datetime(2013, 3, 10, 7, tzinfo=UTC), datetime(2013, 11, 3, 6, tzinfo=UTC), datetime(2012, 12, 31, tzinfo=UTC)]
    ),
    st.integers(-86_400_000_000, 86_400_000_000),
)
_timestamps = st.lists(st.one_of(_near_changes, st.datetimes(timezones=st.just(UTC)), st.none()), max_size=6)


@pytest.mark.parametrize("name", ["America/New_York", "Australia/Lord_Howe", "UTC"])
@pytest.mark.parametrize("part", ["date", "hour", "weekday", "month", "year"])
@given(timestamps=_timestamps)
@example(timestamps=[datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)])
def test_date_parts_equal_those_of_the_local_time(name, part, timestamps):
    result = derived(
        DatePartColumn(part=part, of="at", timezone=name), pa.table({"at": pa.array(timestamps, TIMESTAMP)})
    )
    assert result == [_date_part(timestamp, part, ZoneInfo(name)) for timestamp in timestamps]


def _date_part(timestamp: datetime | None, part: str, timezone: ZoneInfo) -> object:
    try:
        local = timestamp.astimezone(timezone) if timestamp else None
    except OverflowError:
        local = None
    if local is None:
        return None
    parts = {"date": local.date(), "weekday": local.isoweekday()}
    return parts[part] if part in parts else getattr(local, part)


class TestSource:
    SOURCE = a_source(
        enrich={
            "region": {"constant": "EU"},
            "key": {"template": "{id}/{count}"},
            "name": {"of": "id", "values": {"a": "Anna"}},
            "local_day": {"part": "date", "of": "at", "timezone": "America/New_York"},
        }
    )

    def check(self, *events: object):
        return check_events(list(events), self.SOURCE, received_at=RECEIVED)

    def test_accepted_events_have_the_columns(self):
        checked = self.check(
            {"id": "a", "count": 1, "at": "2013-03-08T02:00:00Z"},
            {"id": "x"},
            {"id": "b", "at": "2013-03-08T12:00:00Z", "region": "US"},
        )
        assert checked.table.schema == event_schema(self.SOURCE)
        rows = checked.table.select(["region", "key", "name", "local_day", "_extra"]).to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            ("EU", "a/1", "Anna", date(2013, 3, 7), None),
            ("EU", None, None, date(2013, 3, 8), '{"region":"US"}'),
        ]
        assert [item.index for item in checked.rejected] == [1]

    def test_without_accepted_events_the_table_is_empty(self):
        checked = self.check({"id": "x"})
        assert checked.table.schema == event_schema(self.SOURCE)
        assert checked.table.num_rows == 0
