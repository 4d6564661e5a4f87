from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.json as arrow_json
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.event_checks import RejectedEvent, check_events
from slackwater.receiver.parsing.json_values import MAX_DEPTH
from slackwater.receiver.parsing.rejections import NOT_UTF8, Rejection, RejectionRule
from slackwater.sources.definition import Source, UnknownFields
from slackwater.sources.event_schema import event_schema, partner_schema
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"
NOON = datetime(2013, 3, 8, 12, tzinfo=UTC)
SOURCE = a_source()
SHOP = a_source(
    fields={
        "at": {"type": "timestamp", "from": "Booked At", "formats": ["%d/%m/%Y %H:%M", "epoch_s"]},
        "order": {"type": "string", "from": "Order No."},
        "amount": {"type": "double", "from": "Amount EUR", "decimal": ",", "thousands": ".", "required": True},
        "paid": {"type": "boolean", "true_values": ["ja"], "false_values": ["nein"]},
        "day": {"type": "date", "formats": ["%d.%m.%Y"]},
    },
    timestamp={"field": "at", "timezone": "Europe/Berlin"},
    event_id="order",
    trim=True,
)

NESTED = a_source(
    fields={"id": {"type": "string", "from": "a.id"}, "at": {"type": "timestamp", "from": "a.b.at"}, "n": "int64"},
    timestamp={"field": "at"},
    event_id="id",
)


def an_event(**changes: object) -> dict[str, object]:
    return {"id": "a", "at": AT, **changes}


def check(events: object, source: Source = SOURCE):
    return check_events(events, source, received_at=RECEIVED)


def reasons(checked) -> list[tuple[int, str, str]]:
    return [(item.index, str(item.rule), item.reason) for item in checked.rejected]


def nested(levels: int) -> object:
    """Return a value with which an event has this number of nested levels."""
    value: object = "x"
    for level in range(levels - 1):
        value = {"x": value} if level % 2 else [value]
    return value


class TestFields:
    def test_fields_are_read_by_the_partner_s_names_and_formats(self):
        checked = check(
            [
                {
                    "Booked At": " 08/03/2013 13:00 ",
                    "Order No.": " 17",
                    "Amount EUR": "1.234,50",
                    "paid": "JA",
                    "day": "8.3.2013",
                },
                {"Booked At": 1362744000.25, "Order No.": 18, "Amount EUR": 1234.5, "paid": False, "day": "  "},
            ],
            SHOP,
        )
        assert checked.rejected == []
        assert checked.table.schema == event_schema(SHOP)
        at = NOON + timedelta(milliseconds=250)
        changes = {"amount": 1234.5, "_extra": None}
        assert checked.table.to_pylist() == [
            {"at": NOON, "order": "17", "paid": True, "day": date(2013, 3, 8), "_event_time": NOON, **changes},
            {"at": at, "order": "18", "paid": False, "day": None, "_event_time": at, **changes},
        ]

    def test_reasons_name_the_field_and_the_partner_s_name(self):
        result = reasons(
            check(
                [
                    {"Booked At": "8 March", "Order No.": "1", "Amount EUR": "1"},
                    {"Booked At": None, "Order No.": "1", "Amount EUR": "1"},
                    {"Booked At": 0, "Amount EUR": "1"},
                    {"Booked At": 0, "Order No.": "1", "Amount EUR": "1.5"},
                    {"Booked At": 0, "Order No.": "1", "Amount EUR": " "},
                    {"Booked At": 0, "Order No.": "1", "Amount EUR": "1", "paid": "yes"},
                ],
                SHOP,
            )
        )
        assert result == [
            (
                0,
                "wrong_type",
                "at (Booked At): '8 March' is not a timestamp; expected: %d/%m/%Y %H:%M or seconds since 1970",
            ),
            (1, "missing", "at (Booked At): no value, but every event needs a timestamp"),
            (2, "missing", "order (Order No.): no value, but it is the event id"),
            (3, "wrong_type", "amount (Amount EUR): '1.5' is not a number such as 1.234,5"),
            (4, "missing", "amount (Amount EUR): no value, but it is required"),
            (5, "wrong_type", "paid: 'yes' is neither true nor false"),
        ]

    def test_a_name_with_dots_is_a_path_through_objects_unless_the_event_has_it_as_a_key(self):
        nested = {"a": {"id": "x", "b": {"at": AT, "c": 1}}, "n": 1}
        events = [nested, {"a.id": "y", "a": {"id": "z", "b": {"at": AT}}}, {"a": {"id": "w", "b": None}}, {"a": [1]}]
        checked = check(events, NESTED)
        assert checked.table.select(["id", "n", "_event_time", "_extra"]).to_pylist() == [
            {"id": "x", "n": 1, "_event_time": NOON, "_extra": '{"a":{"b":{"c":1}}}'},
            {"id": "y", "n": None, "_event_time": NOON, "_extra": '{"a":{"id":"z"}}'},
        ]
        assert reasons(checked) == [
            (2, "missing", "at (a.b.at): no value, but every event needs a timestamp"),
            (3, "missing", "id (a.id): no value, but it is the event id"),
        ]

    def test_an_object_of_which_all_values_are_fields_is_not_unknown(self):
        source = NESTED.model_copy(update={"unknown_fields": UnknownFields.REJECT})
        nested = {"id": "x", "b": {"at": AT}}
        checked = check([{"a": nested}, {"a": {**nested, "b": {"at": AT, "c": 1}}}, {"a": nested, "z": 1}], source)
        assert checked.table.num_rows == 1
        fields = "(its fields: a.id, a.b.at, n)"
        assert reasons(checked) == [
            (1, "unknown_field", f"a.b.c: the source has no such field {fields}"),
            (2, "unknown_field", f"z: the source has no such field {fields}"),
        ]

    def test_our_name_of_a_renamed_field_is_unknown(self):
        (row,) = check([{"Booked At": 0, "Order No.": "1", "Amount EUR": 1, "amount": 2}], SHOP).table.to_pylist()
        assert (row["amount"], row["_extra"]) == (1.0, '{"amount":2}')

    def test_strings_are_trimmed_before_they_are_compared_with_null_values(self):
        event = an_event(id="\u00a0\tb ", count=" NA ", size=" 1.5 ", more=" kept ")
        source = a_source(trim=True)
        (row,) = check([event], source).table.to_pylist()
        assert (row["id"], row["count"], row["size"], row["_extra"]) == ("b", None, 1.5, '{"more":" kept "}')
        assert [item.reason for item in check([event]).rejected] == ["count: ' NA ' is not a whole number"]

    def test_a_rejected_event_does_not_affect_others(self):
        events = [an_event(count=n, size=n / 4) for n in range(100)]
        events[17]["count"] = "x"
        events[50]["size"] = math.nan
        events[51] = 7
        checked = check(events)
        assert reasons(checked) == [
            (17, "wrong_type", "count: 'x' is not a whole number"),
            (50, "wrong_type", "size: nan is not a finite number"),
            (51, "not_an_object", "an event is a JSON object, not a number (7)"),
        ]
        left = [n for n in range(100) if n not in {17, 50, 51}]
        assert checked.table["count"].to_pylist() == left
        assert checked.table["size"].to_pylist() == [n / 4 for n in left]

    def test_numbers_are_not_truncated(self):
        events = [an_event(count=value) for value in (5, 5.0, 5.5, 2**63, True)]
        checked = check(events)
        assert checked.table["count"].to_pylist() == [5, 5]
        assert [item.index for item in checked.rejected] == [2, 3, 4]
        events = [an_event(size=value) for value in (1.5, True, 2**53 + 1)]
        checked = check(events)
        assert checked.table["size"].to_pylist() == [1.5, float(2**53 + 1)]
        assert [item.reason for item in checked.rejected] == ["size: true is not a number"]

    def test_the_first_broken_rule_is_the_reason(self):
        assert [item.reason for item in check([{"count": "x", "size": "y"}]).rejected] == [
            "id: no value, but it is required"
        ]
        result = check([an_event(count="x", new=math.nan)]).rejected
        assert [item.rule for item in result] == [RejectionRule.NOT_JSON]

    def test_lines_that_are_not_json_or_not_utf8_are_rejected(self):
        result = check(
            [NOT_UTF8, Rejection(RejectionRule.NOT_JSON, "not JSON: Expecting value at column 1"), an_event()]
        ).rejected
        assert [item.rule for item in result] == [RejectionRule.NOT_UTF8, RejectionRule.NOT_JSON]

    def test_a_batch_without_events_gives_an_empty_table(self):
        for result in (check([]), check(pa.Table.from_pylist([], partner_schema(SOURCE)))):
            assert result.table.schema == event_schema(SOURCE)
            assert (result.table.num_rows, result.rejected) == (0, [])


class TestTimeLimits:
    SOURCE = a_source(timestamp={"field": "at", "max_age_days": 30, "max_future_hours": 1})

    def test_events_outside_the_age_limits_are_rejected(self):
        limits = [RECEIVED - timedelta(days=30), RECEIVED + timedelta(hours=1)]
        beyond = [limits[0] - timedelta(microseconds=1), limits[1] + timedelta(microseconds=1)]
        checked = check([an_event(at=timestamp.isoformat()) for timestamp in (*limits, *beyond)], self.SOURCE)
        assert checked.table["at"].to_pylist() == limits
        assert reasons(checked) == [
            (2, "too_old", "at: 2013-02-10T09:29:59.999999Z is more than 30 days before it was received"),
            (3, "in_the_future", "at: 2013-03-12T10:30:00.000001Z is more than 1 hour after it was received"),
        ]

    def test_invalid_fields_are_reported_before_age_limits(self):
        result = check([an_event(at="1970-01-01T00:00:00Z", count="x"), {"id": "a"}], self.SOURCE).rejected
        assert [item.rule for item in result] == [RejectionRule.WRONG_TYPE, RejectionRule.MISSING]

    def test_the_age_is_measured_at_the_time_of_receipt(self):
        for seconds, rejected in ((0, 0), (1, 1)):
            received_at = NOON + timedelta(days=30, seconds=seconds)
            result = check_events([an_event()], self.SOURCE, received_at=received_at)
            assert (result.table.num_rows, len(result.rejected)) == (1 - rejected, rejected)

    def test_the_reason_names_the_partner_s_field(self):
        source = a_source(
            fields={"id": "string", "at": {"type": "timestamp", "from": "When"}},
            timestamp={"field": "at", "max_age_days": 1},
        )
        assert [item.reason for item in check([{"When": AT}], source).rejected] == [
            "at (When): 2013-03-08T12:00:00Z is more than 1 day before it was received"
        ]

    def test_the_earliest_and_the_latest_timestamp_are_compared_without_overflow(self):
        source = a_source(timestamp={"field": "at", "max_age_days": 36_500, "max_future_hours": 876_000})
        events = [an_event(at="0001-01-01T00:00:00Z"), an_event(at="9999-12-31T23:59:59.999999Z")]
        assert [item.rule for item in check(events, source).rejected] == [
            RejectionRule.TOO_OLD,
            RejectionRule.IN_THE_FUTURE,
        ]


class TestUnknownFields:
    def extra(self, **changes: object) -> str | None:
        (row,) = check([an_event(**changes)]).table.to_pylist()
        return row["_extra"]

    @pytest.mark.parametrize(
        ("changes", "extra_json"),
        [
            ({}, None),
            ({"new": None}, '{"new":null}'),
            (
                {"z": 1, "a": [1.5, {"b": True}], "Stra\u00dfe": "\u00e9"},
                '{"z":1,"a":[1.5,{"b":true}],"Stra\u00dfe":"\u00e9"}',
            ),
            ({"n": 2**64 - 1}, '{"n":18446744073709551615}'),
            ({"n": 2**64, "m": -(2**70)}, '{"n":18446744073709551616,"m":-1180591620717411303424}'),
            ({"half": "\ud800"}, '{"half":"\\ud800"}'),
        ],
    )
    def test_unknown_fields_are_kept_as_json(self, changes, extra_json):
        assert self.extra(**changes) == extra_json

    @pytest.mark.parametrize("value", [math.nan, [-math.inf], {"x": [{"y": math.inf}]}])
    def test_nan_and_infinity_in_unknown_fields_are_rejected(self, value):
        result = check([an_event(new=value), an_event()])
        assert reasons(result) == [(0, "not_json", "new: contains NaN or Infinity, which are not JSON")]

    @pytest.mark.parametrize("innermost", ["x", [], {}])
    def test_too_deeply_nested_events_are_rejected(self, innermost):
        deep = MAX_DEPTH if innermost == "x" else MAX_DEPTH - 1
        value = innermost
        for _ in range(deep - 1):
            value = [value]
        assert json.loads(self.extra(new=value)) == {"new": value}
        result = check([an_event(flat=1, new={"x": value})])
        assert reasons(result) == [(0, "too_deep", "new: nested more than 32 levels deep")]

    def test_ignored_fields_may_be_invalid(self):
        source = a_source(unknown_fields="ignore")
        checked = check([an_event(new=math.nan, deep=nested(100)), an_event()], source)
        assert checked.table["_extra"].to_pylist() == [None, None]

    def test_events_with_unknown_fields_are_rejected(self):
        checked = check([an_event(), an_event(new=None, x=1)], a_source(unknown_fields="reject"))
        assert reasons(checked) == [
            (1, "unknown_field", "new: the source has no such field (its fields: id, count, size, good, day, at)")
        ]
        many = {f"f{n}": "int64" for n in range(50)}
        source = a_source(fields={"id": "string", "at": "timestamp", **many}, unknown_fields="reject")
        (result,) = check([an_event(**{"n" * 1000: 1})], source).rejected
        assert result.reason.endswith("(its fields: id, at, f0, f1, f2, f3, f4, f5, f6, f7, ...)")
        assert len(result.reason) < 200

    def test_the_reason_escapes_a_name_that_utf8_cannot_encode(self):
        (result,) = check([an_event(**{"\ud800": 1})], a_source(unknown_fields="reject")).rejected
        assert result.reason.startswith("\\ud800: the source has no such field")

    def test_unknown_columns_of_strings_are_kept_as_json(self):
        table = pa.table({"id": ["a", "b"], "at": [AT, AT], "gate": ["7", None], "\u00e9": ["", "x"]})
        extra_values = check_events(table, SOURCE, received_at=RECEIVED).table["_extra"].to_pylist()
        assert extra_values == ['{"gate":"7","\u00e9":""}', '{"gate":null,"\u00e9":"x"}']
        ignored = check_events(table, a_source(unknown_fields="ignore"), received_at=RECEIVED)
        assert ignored.table["_extra"].to_pylist() == [None, None]
        rejected = check_events(table, a_source(unknown_fields="reject"), received_at=RECEIVED).rejected
        assert [item.rule for item in rejected] == [RejectionRule.UNKNOWN_FIELD] * 2

    def test_unknown_typed_columns_are_kept_as_json(self):
        table = pa.table(
            {
                "id": ["a"],
                "at": [NOON],
                "n": pa.array([2**64 - 1], pa.uint64()),
                "d": pa.array([Decimal("1.50")]),
                "t": pa.array([1], pa.timestamp("ns", tz="Europe/Berlin")),
                "c": pa.array([datetime(2013, 3, 8, 12)]),
                "day": [date(2013, 3, 8)],
                "z": [date(2013, 3, 8)],
                "k": pa.array(["x"]).dictionary_encode(),
                "l": [[{"a": 1}, None]],
            }
        )
        (row,) = check_events(table, SOURCE, received_at=RECEIVED).table.to_pylist()
        assert json.loads(row["_extra"]) == {
            "n": 2**64 - 1,
            "d": "1.50",
            "t": "1970-01-01T00:00:00.000000001Z",
            "c": "2013-03-08T12:00:00",
            "z": "2013-03-08",
            "k": "x",
            "l": [{"a": 1}, None],
        }

    def test_unknown_typed_columns_that_json_cannot_represent_are_rejected(self):
        broken = pa.array([b"\xff", b"x", b"y"])
        table = pa.table({"id": list("abc"), "at": [NOON] * 3, "t": broken, "n": [1.5, math.nan, 2.5]})
        result = check_events(table, SOURCE, received_at=RECEIVED)
        assert [(item.index, item.rule) for item in result.rejected] == [
            (0, RejectionRule.NOT_UTF8),
            (1, RejectionRule.NOT_JSON),
        ]
        assert result.table["_extra"].to_pylist() == ['{"t":"y","n":2.5}']


class TestFiles:
    def test_a_table_of_strings_is_checked(self):
        table = pa.table({"id": ["a", "b", "c", None], "at": [AT, "NA", AT, AT], "count": ["5", "6", "x", "7"]})
        checked = check_events(table, SOURCE, received_at=RECEIVED)
        (row,) = checked.table.to_pylist()
        assert (row["id"], row["at"], row["count"], row["size"], row["day"]) == ("a", NOON, 5, None, None)
        assert [(item.index, item.rule) for item in checked.rejected] == [
            (1, RejectionRule.MISSING),
            (2, RejectionRule.WRONG_TYPE),
            (3, RejectionRule.MISSING),
        ]

    def test_rejections_of_the_file_reader_come_first(self):
        table = pa.table({"id": ["a", "b", ""], "at": [AT, AT, AT]})
        rejections = {
            0: Rejection(RejectionRule.NOT_UTF8, "id: not UTF-8"),
            2: Rejection(RejectionRule.NOT_UTF8, "day: not UTF-8"),
        }
        checked = check_events(table, SOURCE, received_at=RECEIVED, rejections=rejections)
        assert checked.table["id"].to_pylist() == ["b"]
        assert checked.rejected == [
            RejectedEvent(0, "id: not UTF-8", RejectionRule.NOT_UTF8),
            RejectedEvent(2, "day: not UTF-8", RejectionRule.NOT_UTF8),
        ]

    def test_a_typed_table_is_checked(self):
        table = pa.table(
            {
                "id": pa.array(["a", "b", "c"]).dictionary_encode(),
                "at": pa.array([NOON, None, NOON], pa.timestamp("ns", tz="Europe/Berlin")),
                "count": pa.array([5, 6, 7], pa.int16()),
                "size": pa.array([1.5, 2.5, math.nan]),
            }
        )
        checked = check_events(table, SOURCE, received_at=RECEIVED)
        assert checked.table.schema == event_schema(SOURCE)
        (row,) = checked.table.to_pylist()
        assert (row["id"], row["at"], row["count"], row["size"]) == ("a", NOON, 5, 1.5)
        assert reasons(checked) == [
            (1, "missing", "at: no value, but every event needs a timestamp"),
            (2, "wrong_type", "size: nan is not a finite number"),
        ]

    def test_bytes_that_are_not_utf8_are_rejected(self):
        table = pa.table({"id": pa.array([b"a", b"\xff"]), "at": [AT, AT]})
        checked = check_events(table, SOURCE, received_at=RECEIVED)
        assert checked.table["id"].to_pylist() == ["a"]
        assert reasons(checked) == [(1, "not_utf8", "id: not UTF-8")]

    def test_columns_of_many_chunks_are_checked(self):
        table = pa.table({"id": ["a", "b"], "at": [AT, AT], "gate": ["1", "2"]})
        checked = check_events(pa.concat_tables([table] * 3), SOURCE, received_at=RECEIVED)
        assert checked.table["id"].to_pylist() == ["a", "b"] * 3
        assert checked.table["_extra"].to_pylist() == ['{"gate":"1"}', '{"gate":"2"}'] * 3


_strings = st.one_of(
    st.sampled_from(
        ["", "NA", " NA", "1", "true", "ja", "1.234,5", "08/03/2013 12:00", "10/03/2013 02:30", "8.3.2013"]
    ),
    st.sampled_from([AT, "1362744000", "1362744000.25", "2013-03-08"]),
    st.text(max_size=4),
)
_flat = {
    "id": st.one_of(st.none(), _strings),
    "count": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "size": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)),
    "good": st.one_of(st.none(), st.booleans()),
    "day": st.one_of(st.none(), _strings),
    "at": st.one_of(st.none(), st.just(AT), _strings),
}
_shop = {
    "Booked At": st.one_of(st.none(), st.integers(-(2**36), 2**36)),
    "Order No.": st.one_of(st.none(), _strings),
    "Amount EUR": st.one_of(st.none(), _strings),
    "paid": st.one_of(st.none(), st.booleans()),
    "day": _strings,
}


@pytest.mark.parametrize(("source", "fields"), [(SOURCE, _flat), (SHOP, _shop)], ids=["things", "shop"])
@given(data=st.data())
def test_tables_and_objects_give_the_same_result(source, fields, data):
    events = data.draw(st.lists(st.fixed_dictionaries({}, optional=fields), min_size=1, max_size=8))
    body = "\n".join(map(json.dumps, events)).encode()
    table = arrow_json.read_json(
        io.BytesIO(body),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=partner_schema(source), unexpected_field_behavior="error"
        ),
    )
    assert check(table, source) == check(events, source)


@pytest.mark.parametrize("source", [SOURCE, SHOP, a_source(unknown_fields="reject")], ids=["things", "shop", "strict"])
@given(data=st.data())
def test_tables_and_objects_of_strings_give_the_same_result(source, data):
    names = [*partner_schema(source).names, *data.draw(st.sampled_from([[], ["gate", "\u00e9"]]))]
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, _strings)), max_size=8))
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names})
    assert check_events(table, source, received_at=RECEIVED) == check(table.to_pylist(), source)


@given(
    events=st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.fixed_dictionaries(
                {"at": st.sampled_from([AT, "x", None]), "id": st.sampled_from(["a", "", 5])},
                optional={"count": st.one_of(st.integers(), st.floats()), "new": st.one_of(st.floats(), st.text())},
            ),
        ),
        max_size=12,
    )
)
def test_every_event_is_accepted_or_rejected(events):
    checked = check([{**event, "number": n} if isinstance(event, dict) else event for n, event in enumerate(events)])
    accepted = [json.loads(extra)["number"] for extra in checked.table["_extra"].to_pylist()]
    rejected = [item.index for item in checked.rejected]
    assert accepted == sorted(accepted)
    assert rejected == sorted(rejected)
    assert sorted(accepted + rejected) == list(range(len(events)))
