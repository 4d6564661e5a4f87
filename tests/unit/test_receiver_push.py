from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.nyc_flights import feed
from lambdas.receive_events import handler as receive_events
from slackwater.errors import AccessDenied, CloudError, DefinitionError, PartnerError, Throttled, UnknownName
from slackwater.receiver.api import EventsApi, Request
from slackwater.receiver.batch import Limits
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.encode import encode, split
from slackwater.receiver.events import check_events
from slackwater.receiver.receipts import first_received, receipt_uri
from slackwater.receiver.receive import Received, Receiver, Stamped
from slackwater.receiver.rules import Rule
from slackwater.receiver.schema import event_schema, raw_schema
from slackwater.receiver.source import Source
from tests.fakes_receiver import (
    RECEIVED,
    Clock,
    Crash,
    Fuse,
    MemoryBuffer,
    MemoryPartitions,
    MemoryStore,
    MemoryTokens,
    a_source,
)

pytestmark = pytest.mark.unit

NDJSON = "application/x-ndjson"
SOURCE = a_source()


class Setup:
    """A receiver over fakes."""

    def __init__(self, source: Source = SOURCE, **limits: int) -> None:
        self.source = source
        self.fuse = Fuse()
        self.store = MemoryStore(self.fuse)
        self.partitions = MemoryPartitions(self.fuse)
        self.clock = Clock()
        delivery = Delivery(store=self.store, partitions=self.partitions, raw_bucket="raw")
        self.receiver = Receiver(delivery=delivery, now=self.clock, limits=Limits(**limits))

    def push(self, events: list[object] | bytes, content_type: str = NDJSON, encoding: str | None = None):
        body = events if isinstance(events, bytes) else "\n".join(map(json.dumps, events)).encode()
        return self.receiver.receive(
            body, source=self.source, content_type=content_type, content_encoding=encoding, origin="push:acme"
        )

    def rows(self) -> list[dict[str, object]]:
        tables = [
            pq.read_table(io.BytesIO(self.store.get(uri)), partitioning=None) for uri in self.store.uris("/raw/source=")
        ]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def sidelined(self) -> list[dict[str, object]]:
        return [
            json.loads(line)
            for uri in self.store.uris("/sideline/")
            for line in self.store.get(uri).decode().split("\n")
            if line
        ]

    def check(self, *events: object, received_at: datetime | None = None) -> Received:
        return self.receiver.check(
            "\n".join(map(json.dumps, events)).encode(),
            source=self.source,
            content_type=NDJSON,
            content_encoding=None,
            origin="push:acme",
            received_at=received_at,
        )

    def stamped(self, *events: object, received_at: datetime = RECEIVED) -> Stamped:
        return self.check(*events, received_at=received_at).stamped(self.source)


def event(at: str = "2013-03-08T12:00:00Z", **more: object) -> dict[str, object]:
    return {"id": "a", "at": at, **more}


class TestEvents:
    def test_what_is_accepted_has_the_contract_s_columns(self):
        setup = Setup()
        setup.push([event(count=3, size=2, good=True, day="2013-03-08", more={"x": [1]}, **{"Other \u00e9": None})])
        (uri,) = setup.store.uris("/raw/source=")
        table = pq.read_table(io.BytesIO(setup.store.get(uri)), partitioning=None)
        assert table.schema == raw_schema(SOURCE)
        assert table.column_names == [
            "id",
            "count",
            "size",
            "good",
            "day",
            "at",
            "_event_time",
            "_received_at",
            "_batch_id",
            "_extra",
        ]
        (row,) = table.to_pylist()
        extra = json.loads(row.pop("_extra"))
        assert extra == {"more": {"x": [1]}, "Other \u00e9": None}
        noon = datetime(2013, 3, 8, 12, tzinfo=UTC)
        batch = row.pop("_batch_id")
        assert len(batch) == 32
        assert row == {
            "id": "a",
            "count": 3,
            "size": 2.0,
            "good": True,
            "day": noon.date(),
            "at": noon,
            "_event_time": noon,
            "_received_at": RECEIVED,
        }
        assert setup.store.metadata(uri) == {"rows": "1"}
        assert uri.startswith("s3://raw/raw/source=things/date=2013-03-08/hour=12/")
        assert len(uri.rpartition("/")[2]) == 32 + len(".parquet")

    @pytest.mark.parametrize(
        ("sent", "reason"),
        [
            ({"id": "a"}, "at: missing, and an event needs its timestamp"),
            ({"id": "a", "at": None}, "at: missing, and an event needs its timestamp"),
            ({"id": "a", "at": "NA"}, "at: missing, and an event needs its timestamp"),
            ({"at": "2013-03-08T12:00:00Z"}, "id: missing, and it is required"),
            (event(id=""), "id: missing, and it is required"),
            (event(id={"x": 1}), "id: a string is expected, not a nested object"),
            (event(count=2**63), "count: 9223372036854775808 is outside what 64 bits hold"),
            (event(at=1362744000), "at: 1362744000 is a number, not ISO 8601 such as 2013-03-08T12:00:00Z"),
            (
                event(at="2013-03-08T12:00:00"),
                "at: '2013-03-08T12:00:00' has no offset, and the source names no time zone for it",
            ),
            ([1], "an event is a JSON object, not an array"),
            ("text", "an event is a JSON object, not a text ('text')"),
            (None, "an event is a JSON object, not null"),
            (7, "an event is a JSON object, not a number (7)"),
        ],
    )
    def test_reasons(self, sent, reason):
        setup = Setup()
        result = setup.push([event(), sent])
        assert result.accepted == 1
        assert [(item.index, item.reason) for item in result.rejected] == [(1, reason)]
        (record,) = setup.sidelined()
        assert record.pop("rule") in set(Rule)
        assert record == {
            "index": 1,
            "line": 2,
            "reason": reason,
            "batch_id": result.batch_id,
            "origin": "push:acme",
            "text": json.dumps(sent),
        }
        assert len(setup.rows()) == 1

    @pytest.mark.parametrize(
        "text",
        [
            '{"id":"a","at":"2013-03-08T12:00:00Z","size":NaN}',
            '{"id":"a","at":"2013-03-08T12:00:00Z","new":[-Infinity]}',
        ],
    )
    def test_what_json_does_not_have(self, text):
        setup = Setup()
        result = setup.push(f"{json.dumps(event())}\n{text}".encode())
        assert result.accepted == 1
        assert "finite" in result.rejected[0].reason or "NaN or Infinity" in result.rejected[0].reason
        assert setup.sidelined()[0]["text"] == text

    def test_null_values_are_null_and_optional_fields_may_be_missing(self):
        setup = Setup()
        setup.push([event(count="NA", size="", good=None), event()])
        assert [(row["count"], row["size"], row["good"]) for row in setup.rows()] == [(None, None, None)] * 2

    def test_a_lone_surrogate_stays_readable_in_unknown_fields(self):
        setup = Setup()
        setup.push(b'{"id":"a","at":"2013-03-08T12:00:00Z","new":"\\ud800"}')
        assert json.loads(setup.rows()[0]["_extra"]) == {"new": "\ud800"}


class TestPartitions:
    def test_each_event_goes_to_its_own_hour_utc(self):
        setup = Setup()
        times = [
            "2013-03-08T12:59:59.999999Z",
            "2013-03-08T13:00:00Z",
            "2013-03-08T08:00:00-05:00",
            "1969-12-31T23:59:59.5Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ]
        setup.push([event(at, id=str(n)) for n, at in enumerate(times)])
        places = sorted(uri.rpartition("/")[0].partition("things/")[2] for uri in setup.store.uris("/raw/source="))
        assert places == [
            "date=0001-01-01/hour=00",
            "date=1969-12-31/hour=23",
            "date=2013-03-08/hour=12",
            "date=2013-03-08/hour=13",
            "date=9999-12-31/hour=23",
        ]
        assert {(item.date, item.hour) for _, item in setup.partitions.known} == {
            ("0001-01-01", "00"),
            ("1969-12-31", "23"),
            ("2013-03-08", "12"),
            ("2013-03-08", "13"),
            ("9999-12-31", "23"),
        }
        assert len(setup.rows()) == 6

    def test_an_object_s_name_is_of_its_batch_and_its_partition(self):
        setup = Setup()
        result = setup.push([event(), event("2013-03-08T13:00:00Z")])
        for uri, partition in zip(setup.store.uris("/raw/source="), ("2013-03-08/12", "2013-03-08/13"), strict=True):
            name = hashlib.sha256(f"{result.batch_id}\n{partition}".encode()).hexdigest()[:32]
            assert uri.endswith(f"/{name}.parquet")

    @settings(deadline=None, max_examples=30)
    @given(st.permutations(range(6)))
    def test_events_of_an_hour_keep_their_order(self, places):
        events = [event(f"2013-03-08T{12 + place % 2}:00:00Z", id=str(place)) for place in places]
        found = split(check_events(events, SOURCE, received_at=RECEIVED).table)
        ids = [part.table["id"].to_pylist() for part in found.parts()]
        assert ids == [[str(place) for place in places if place % 2 == hour] for hour in (0, 1)]
        assert [partition.hour for partition in found.partitions] == ["12", "13"]

    def test_nothing_accepted_makes_no_partition(self):
        found = split(check_events([], SOURCE, received_at=RECEIVED).table)
        assert (list(found.partitions), list(found.parts())) == ([], [])
        assert found.table.schema == event_schema(SOURCE)

    def test_the_same_events_make_the_same_bytes(self):
        one, other = Setup(), Setup()
        for setup in (one, other):
            setup.push([event(f"2013-03-08T{place % 3}1:00:00Z", id=str(place)) for place in range(30)])
        assert one.store.objects == other.store.objects

    def test_an_object_tells_its_readers_when_its_events_happened(self):
        table = split(check_events([event(), event("2013-03-08T12:30:00Z")], SOURCE, received_at=RECEIVED).table).table
        footer = pq.read_metadata(io.BytesIO(encode(table)))
        assert footer.num_row_groups == 1
        found = footer.row_group(0).column(table.column_names.index("_event_time")).statistics
        assert (found.min, found.max) == (
            datetime(2013, 3, 8, 12, tzinfo=UTC),
            datetime(2013, 3, 8, 12, 30, tzinfo=UTC),
        )


class TestIds:
    """A source whose events have an id: it counts once in its hour."""

    SOURCE = a_source(event_id="id")

    def test_the_first_of_one_id_stays(self):
        setup = Setup(self.SOURCE)
        result = setup.push([event(count=1), event(id="b"), event("2013-03-08T12:59:00Z", count=2), event(count=3)])
        assert (result.accepted, result.duplicates, result.rejected) == (2, 2, ())
        assert [(row["id"], row["count"]) for row in setup.rows()] == [("a", 1), ("b", None)]
        again = setup.push([event(count=1), event(id="b"), event("2013-03-08T12:59:00Z", count=2), event(count=3)])
        assert (again.accepted, again.duplicates) == (0, 4)

    def test_an_id_counts_in_each_hour(self):
        setup = Setup(self.SOURCE)
        times = ["2013-03-08T13:10:00Z", "2013-03-08T12:00:00Z", "2013-03-08T13:20:00Z", "2013-03-09T12:00:00Z"]
        result = setup.push([event(at, count=n) for n, at in enumerate(times)])
        assert (result.accepted, result.duplicates) == (3, 1)
        assert [row["count"] for row in setup.rows()] == [1, 0, 3]
        assert [setup.store.metadata(uri) for uri in setup.store.uris("/raw/source=")] == [{"rows": "1"}] * 3

    def test_an_event_without_its_id_is_rejected(self):
        setup = Setup(a_source(event_id="count"))
        result = setup.push([event(), event(count=7), event(count="NA"), event(count=7)])
        assert (result.accepted, result.duplicates) == (1, 1)
        assert [item.index for item in result.rejected] == [0, 2]
        assert {item.reason for item in result.rejected} == {"count: missing, and it is the event's id"}

    def test_without_an_id_equal_events_of_a_batch_are_as_many_events(self):
        setup = Setup()
        result = setup.push([event(), event(), event()])
        assert (result.accepted, result.duplicates) == (3, 0)

    def test_a_buffered_source_without_an_id_gets_one_of_its_own(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        result = setup.push([event(id="x"), {"id": "bad"}, event(id="y"), 7, event("2013-03-08T11:00:00Z", id="z")])
        assert [(row["id"], row["_event_id"]) for row in setup.rows()] == [
            ("z", f"{result.batch_id}-4"),
            ("x", f"{result.batch_id}-0"),
            ("y", f"{result.batch_id}-2"),
        ]
        assert (result.accepted, result.duplicates, len(result.rejected)) == (3, 0, 2)
        (first, _) = setup.store.uris("/raw/source=")
        assert pq.read_schema(io.BytesIO(setup.store.get(first))) == raw_schema(setup.source)

    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
    def test_as_many_as_there_are_ids_in_hours(self, items):
        setup = Setup(self.SOURCE)
        events = [event(f"2013-03-08T{hour:02d}:00:00Z", id=str(id_), count=n) for n, (hour, id_) in enumerate(items)]
        result = setup.push(json.dumps(events).encode(), "application/json")
        first = {item: n for n, item in reversed(list(enumerate(items)))}
        assert [row["count"] for row in setup.rows()] == [
            n for _, n in sorted((hour, n) for (hour, _), n in first.items())
        ]
        assert (result.accepted, result.duplicates) == (len(first), len(items) - len(first))


class TestJoined:
    """Several bodies of one source, stored together."""

    SOURCE = a_source(event_id="id")

    def test_each_event_keeps_its_own_receipt(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        early = setup.stamped(event(id="x"), received_at=RECEIVED - timedelta(hours=1))
        late = setup.stamped(event(id="x"), event("2013-03-08T13:00:00Z", id="y"), received_at=RECEIVED)
        assert setup.receiver.store(setup.source, [late, early]) == 3
        assert [(row["id"], row["_received_at"], row["_batch_id"], row["_event_id"]) for row in setup.rows()] == [
            ("x", early.received_at, early.batch_id, f"{early.batch_id}-0"),
            ("x", late.received_at, late.batch_id, f"{late.batch_id}-0"),
            ("y", late.received_at, late.batch_id, f"{late.batch_id}-1"),
        ]
        assert {partition.hour for _, partition in setup.partitions.known} == {"12", "13"}

    def test_an_id_stays_with_the_body_that_was_received_first(self):
        setup = Setup(self.SOURCE)
        late = setup.stamped(event(count=2), event(id="b"), received_at=RECEIVED)
        early = setup.stamped(event(count=1), received_at=RECEIVED - timedelta(seconds=1))
        assert setup.receiver.store(setup.source, [late, early]) == 2
        assert [(row["id"], row["count"]) for row in setup.rows()] == [("a", 1), ("b", None)]

    def test_the_order_in_which_they_are_handed_over_does_not_matter(self):
        setup = Setup(self.SOURCE)
        parts = [setup.stamped(event(id=name), received_at=RECEIVED) for name in "abc"]
        assert setup.receiver.store(setup.source, parts) == 3
        before = dict(setup.store.objects)
        assert setup.receiver.store(setup.source, [*reversed(parts), parts[1]]) == 0
        assert setup.store.objects == before

    def test_an_object_s_name_is_of_all_its_batches_and_its_partition(self):
        setup = Setup(self.SOURCE)
        parts = [setup.stamped(event(id=name, count=n)) for n, name in enumerate("abc")]
        setup.receiver.store(setup.source, parts)
        [uri] = setup.store.uris("/raw/source=")
        batches = "\n".join(sorted(part.batch_id for part in parts))
        assert f"/{hashlib.sha256(f'{batches}{chr(10)}2013-03-08/12'.encode()).hexdigest()[:32]}.parquet" in uri
        assert setup.receiver.store(setup.source, parts[:2]) == 2

    def test_what_is_left_out_keeps_the_other_places(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        received = setup.check(event(), 7, event(), event(), event())
        for without, left in (((), "0234"), ({1}, "0234"), ({0, 3}, "24"), ({1, 2}, "034")):
            table = received.stamped(setup.source, without=without).table
            assert [name.rpartition("-")[2] for name in table["_event_id"].to_pylist()] == list(left)

    def test_equal_events_of_other_bodies_are_told_apart_by_their_own_ids(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        body = json.dumps(event()).encode()
        assert [setup.push(sent).accepted for sent in (body, body + b" ", body)] == [1, 1, 0]
        assert len({row["_event_id"] for row in setup.rows()}) == 2


class TestRetries:
    EVENTS = [event(f"2013-03-08T{hour:02d}:00:00Z", id=str(hour)) for hour in range(12)] + [{"id": "bad"}]

    def test_the_same_batch_again_writes_nothing(self):
        setup = Setup()
        first = setup.push(self.EVENTS)
        before, writes = dict(setup.store.objects), setup.store.writes
        setup.clock.pass_by(minutes=5)
        again = setup.push(self.EVENTS)
        assert (first.accepted, first.duplicates, len(first.rejected)) == (12, 0, 1)
        assert (again.accepted, again.duplicates, again.rejected) == (0, 12, first.rejected)
        assert again.batch_id == first.batch_id
        assert setup.store.objects == before
        assert setup.store.writes == writes

    @pytest.mark.parametrize("moment", [0, 1_362_744_000])
    def test_the_same_body_compressed_otherwise_is_the_same_batch(self, moment):
        setup = Setup()
        body = "\n".join(map(json.dumps, self.EVENTS)).encode()
        first = setup.push(body)
        before = dict(setup.store.objects)
        for sent, encoding in (
            (gzip.compress(body, mtime=moment), "gzip"),
            (pa.compress(body, codec="zstd", asbytes=True), "zstd"),
            (b"\xef\xbb\xbf" + body, None),
        ):
            again = setup.push(sent, encoding=encoding)
            assert (again.batch_id, again.accepted, again.duplicates) == (first.batch_id, 0, 12)
        assert setup.store.objects == before

    def test_the_same_text_as_array_and_line_by_line_is_two_batches(self):
        setup, body = Setup(), json.dumps([event()]).encode()
        lines = setup.push(body)
        array = setup.push(body, "application/json")
        assert (lines.accepted, len(lines.rejected), array.accepted, array.rejected) == (0, 1, 1, ())
        assert lines.batch_id == hashlib.sha256(b"ndjson\n" + body).hexdigest()[:32]
        assert array.batch_id == hashlib.sha256(b"json\n" + body).hexdigest()[:32]

    def test_equal_events_of_other_bodies_are_other_events(self):
        setup = Setup()
        bodies = [[event()], [event(), event("2013-03-08T13:00:00Z")], [event(), event()]]
        assert [setup.push(body).accepted for body in bodies] == [1, 2, 2]
        assert setup.push(json.dumps([event()]).encode(), "application/json").accepted == 1
        assert len(setup.rows()) == 6

    def test_a_batch_is_the_same_by_another_definition(self):
        setup = Setup()
        setup.push(self.EVENTS)
        before = dict(setup.store.objects)
        setup.source = a_source(enrich={"region": {"constant": "eu"}})
        again = setup.push(self.EVENTS)
        assert (again.accepted, again.duplicates, len(again.rejected)) == (0, 12, 1)
        assert setup.store.objects == before

    @pytest.mark.parametrize("writes", range(15))
    def test_a_crash_between_any_two_writes_is_made_good_by_a_retry(self, writes):
        setup = Setup()
        setup.fuse.left = writes
        with pytest.raises(Crash):
            setup.push(self.EVENTS)
        there = len(setup.rows())
        setup.fuse.left = None
        result = setup.push(self.EVENTS)
        assert (result.accepted, result.duplicates, len(result.rejected)) == (12 - there, there, 1)
        assert sorted(row["id"] for row in setup.rows()) == sorted(str(hour) for hour in range(12))
        assert len(setup.sidelined()) == 1
        assert len(setup.partitions.known) == 12

    def test_what_is_answered_is_durable(self):
        setup = Setup()
        setup.fuse.left = 15  # the receipt, 12 partitions, the catalogue, the side-line
        assert setup.push(self.EVENTS).accepted == 12
        assert setup.fuse.left == 0


class TestReceipts:
    """What depends on the time of receipt depends on the first."""

    SOURCE = a_source(timestamp={"field": "at", "max_age_days": 5, "max_future_hours": 1})
    EVENTS = [
        event("2013-03-08T12:00:00Z"),
        event("2013-03-12T10:30:00Z"),
        event("2013-03-12T10:30:01Z"),
        event("2013"),
    ]

    def test_a_batch_in_which_the_time_does_not_matter_has_none(self):
        setup = Setup()
        setup.push([event()])
        assert setup.store.uris("/receipts/") == []

    def test_a_rejected_event_or_a_limit_makes_one(self):
        for setup, sent in ((Setup(), b"7\n8"), (Setup(self.SOURCE), json.dumps(event()).encode())):
            batch_id = setup.push(sent).batch_id
            uri = receipt_uri("raw", "things", batch_id)
            assert uri == f"s3://raw/receipts/source=things/{batch_id}.json"
            assert json.loads(setup.store.get(uri)) == {"received_at": "2013-03-12T09:30:00Z"}

    def test_the_first_time_stays(self):
        store = MemoryStore()
        first = RECEIVED + timedelta(microseconds=1)
        for now in (first, RECEIVED, RECEIVED + timedelta(days=9)):
            assert first_received(store, "raw", "things", "batch", now) == first
        assert first_received(store, "raw", "things", "other", RECEIVED) == RECEIVED
        assert first_received(store, "raw", "others", "batch", RECEIVED) == RECEIVED

    @pytest.mark.parametrize("writes", range(5))
    def test_a_retry_decides_as_the_first_attempt_did(self, writes):
        """Also when the events have become too old meanwhile, or are in the future no more."""
        untroubled, setup = Setup(self.SOURCE), Setup(self.SOURCE)
        whole = untroubled.push(self.EVENTS)
        assert (whole.accepted, [item.index for item in whole.rejected]) == (2, [2, 3])
        setup.fuse.left = writes
        with pytest.raises(Crash):
            setup.push(self.EVENTS)
        there = len(setup.rows())
        setup.fuse.left = None
        if writes:  # What crashed before its receipt was never received.
            setup.clock.pass_by(days=2)
        result = setup.push(self.EVENTS)
        assert (result.accepted, result.duplicates, result.rejected) == (2 - there, there, whole.rejected)
        assert setup.store.objects == untroubled.store.objects

    def test_the_same_events_in_another_body_are_judged_by_its_own_time(self):
        setup = Setup(self.SOURCE)
        setup.push(self.EVENTS)
        setup.clock.pass_by(days=2)
        result = setup.push([*self.EVENTS, event("2013-03-14T09:00:00Z")])
        assert [item.index for item in result.rejected] == [0, 3]
        assert len(setup.sidelined()) == 4

    def test_after_midnight_the_side_line_is_not_written_again(self):
        setup = Setup()
        for _ in range(3):
            assert len(setup.push([event(), 7]).rejected) == 1
            setup.clock.pass_by(hours=20)
        (uri,) = setup.store.uris("/sideline/")
        assert "/date=2013-03-12/" in uri

    def test_whoever_knows_the_time_writes_nothing_to_check_a_body(self):
        setup = Setup(self.SOURCE)
        early = RECEIVED - timedelta(days=20)
        received = setup.check(event("2013-02-20T00:00:00Z"), event(), received_at=early)
        assert (received.received_at, received.checked.table.num_rows) == (early, 1)
        assert [item.rule for item in received.checked.rejected] == [Rule.IN_THE_FUTURE]
        assert setup.store.objects == {}
        setup.receiver.sideline(setup.source, received)
        assert setup.store.uris("/sideline/source=things/date=2013-02-20/")


_moments = st.datetimes(datetime(2013, 3, 8), datetime(2013, 3, 9)).map(lambda moment: moment.isoformat() + "Z")
_events = st.one_of(
    st.fixed_dictionaries(
        {"at": _moments, "id": st.text(max_size=3)}, optional={"count": st.integers(-3, 3), "x": st.integers()}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "at": st.one_of(_moments, st.text(max_size=5), st.none()),
            "id": st.one_of(st.text(), st.integers(), st.booleans()),
            "good": st.one_of(st.booleans(), st.text()),
        },
    ),
    st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers(), max_size=2)),
)


@settings(deadline=None)
@given(batch=st.lists(_events, max_size=20), array=st.booleans(), crash=st.integers(0, 8))
def test_every_event_is_in_one_partition_or_rejected(batch, array, crash):
    # Numbered in a field that the source does not know, so that each can be told from all others.
    batch = [{**item, "place": n} if isinstance(item, dict) else item for n, item in enumerate(batch)]
    setup = Setup()
    body = json.dumps(batch) if array or not batch else "\n".join(map(json.dumps, batch))
    content_type = "application/json" if array or not batch else NDJSON
    setup.fuse.left = crash
    for _ in range(2):
        try:
            result = setup.push(body.encode(), content_type)
        except Crash:
            setup.fuse.left = None
    setup.fuse.left = None
    result = setup.push(gzip.compress(body.encode()), content_type, "gzip")
    assert result.accepted + result.duplicates + len(result.rejected) == len(batch)
    stored = sorted(json.loads(row["_extra"])["place"] for row in setup.rows())
    rejected = [item.index for item in result.rejected]
    assert sorted(stored + rejected) == list(range(len(batch)))
    assert sorted(record["index"] for record in setup.sidelined()) == rejected
    for record in setup.sidelined():
        assert json.loads(record["text"]) == batch[record["index"]]
    for uri in setup.store.uris("/raw/source="):
        hour = datetime.fromisoformat(f"{uri.partition('date=')[2][:10]}T{uri.partition('hour=')[2][:2]}:00:00+00:00")
        for row in pq.read_table(io.BytesIO(setup.store.get(uri)), partitioning=None).to_pylist():
            assert hour <= row["_event_time"] < hour + timedelta(hours=1)


class TestApi:
    def api(self, setup: Setup) -> EventsApi:
        sources = {
            "things": SOURCE,
            "others": a_source(source="others"),
            "pulled": a_source(source="pulled", push=None),
        }

        def source(name: str) -> Source:
            if name not in sources:
                raise UnknownName(name)
            return sources[name]

        tokens = MemoryTokens({"good": ["things"], "all": ["*"]})
        return EventsApi(tokens=tokens, source=source, receiver=setup.receiver, buffer=MemoryBuffer(), now=setup.clock)

    def post(
        self,
        body: bytes,
        *,
        source: str = "things",
        token: str | None = "good",  # noqa: S107
        setup: Setup | None = None,
        **headers: str,
    ):
        sent = {"content-type": NDJSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if token:
            sent["authorization"] = f"Bearer {token}"
        return self.api(setup or Setup()).post(Request(source=source, headers=sent, body=body))

    def test_accepted(self):
        answer = self.post(f"{json.dumps(event())}\n7".encode())
        assert answer.status == 202
        body = json.loads(answer.text())
        assert set(body) == {"batch_id", "accepted", "duplicates", "rejected"}
        assert (body["accepted"], body["duplicates"]) == (1, 0)
        assert body["rejected"] == [{"index": 1, "reason": "an event is a JSON object, not a number (7)"}]

    @pytest.mark.parametrize(
        ("body", "more", "status", "code"),
        [
            (b"{}", {"token": None}, 401, "unauthorized"),
            (b"{}", {"token": "wrong"}, 401, "unauthorized"),
            (b"{}", {"token": "wrong", "source": "nowhere"}, 401, "unauthorized"),
            (b"{}", {"token": None, "authorization": "Basic good"}, 401, "unauthorized"),
            (b"{}", {"token": None, "authorization": "Bearer "}, 401, "unauthorized"),
            (b"{}", {"source": "nowhere"}, 404, "no_such_source"),
            (b"{}", {"source": "others"}, 403, "forbidden"),
            (b"{}", {"source": "pulled"}, 403, "forbidden"),
            (b"{}", {"source": "pulled", "token": "all"}, 404, "no_such_source"),
            (b"", {}, 400, "unreadable_body"),
            (b"hello", {}, 400, "unreadable_body"),
            (b"{}", {"content_type": "text/csv"}, 415, "unsupported_media"),
            (b"{}", {"content_encoding": "br"}, 415, "unsupported_media"),
            (b"[1]" * 10, {"content_type": "text/csv"}, 415, "unsupported_media"),
        ],
    )
    def test_refused(self, body, more, status, code):
        setup = Setup()
        answer = self.post(body, setup=setup, **more)
        assert answer.status == status
        found = json.loads(answer.text())
        assert set(found) == {"error"}
        assert found["error"]["code"] == code
        assert found["error"]["message"]
        assert setup.store.objects == {}

    def test_too_large(self):
        assert self.post(b"[" + b" " * 100, setup=Setup(body_bytes=100)).status == 413
        assert self.post(b"1\n" * 10_001).status == 413
        bomb = pa.compress(b"\n" * 40_000_000, codec="zstd", asbytes=True)
        answer = self.post(bomb, content_encoding="zstd")
        assert (answer.status, answer.body["error"]["code"]) == (413, "too_large")

    @pytest.mark.parametrize("codec", ["gzip", "zstd"])
    def test_compressed(self, codec):
        body = pa.compress(json.dumps(event()).encode(), codec=codec, asbytes=True)
        assert self.post(body, content_encoding=codec).body["accepted"] == 1
        assert self.post(body[:-1], content_encoding=codec).status == 400

    def test_every_event_rejected(self):
        setup = Setup()
        answer = self.post(b'{"id":"x"}\n{"id":"y"}', setup=setup)
        assert answer.status == 422
        assert answer.body["error"]["code"] == "all_rejected"
        assert len(answer.body["rejected"]) == 2
        assert len(setup.sidelined()) == 2

    def test_an_empty_array_is_no_fault(self):
        answer = self.post(b"[]", content_type="application/json")
        assert (answer.status, answer.body["accepted"], answer.body["rejected"]) == (202, 0, [])

    def test_tokens_that_are_over(self):
        setup = Setup()
        for more in ({"revoked": True}, {"expires_at": RECEIVED}):
            api = EventsApi(
                tokens=MemoryTokens({"old": ["*"]}, **more),
                source=lambda _: SOURCE,
                receiver=setup.receiver,
                buffer=MemoryBuffer(),
                now=setup.clock,
            )
            assert api.post(Request(source="things", headers={"authorization": "bearer old"}, body=b"[]")).status == 401
        later = MemoryTokens({"new": ["*"]}, expires_at=RECEIVED + timedelta(seconds=1))
        api = EventsApi(
            tokens=later, source=lambda _: SOURCE, receiver=setup.receiver, buffer=MemoryBuffer(), now=setup.clock
        )
        sent = {"authorization": "bearer new", "content-type": "application/json"}
        assert api.post(Request(source="things", headers=sent, body=b"[]")).status == 202


class TestHandler:
    @pytest.fixture
    def handler(self, monkeypatch):
        self.setup = Setup()
        self.logs = io.StringIO()
        monkeypatch.setattr(receive_events.logger.registered_handler, "stream", self.logs)
        monkeypatch.setattr(receive_events, "_api", lambda: TestApi().api(self.setup))
        return receive_events.handler

    def call(self, handler, body, *, encoded=False, **headers):
        event = {
            "version": "2.0",
            "headers": {"Content-Type": NDJSON, "Authorization": "Bearer good", **headers},
            "pathParameters": {"source": "things"},
            "requestContext": {"requestId": "request-1"},
            "isBase64Encoded": encoded,
        }
        if body is not None:
            event["body"] = body
        return handler(event, None)

    def test_answers(self, handler):
        answer = self.call(handler, json.dumps(event()), **{"X-Correlation-Id": "mine"})
        assert answer["statusCode"] == 202
        assert answer["headers"] == {"content-type": "application/json", "x-correlation-id": "mine"}
        logged = [json.loads(line) for line in self.logs.getvalue().splitlines()]
        assert [line["correlation_id"] for line in logged] == ["mine"]
        assert logged[0]["accepted"] == 1

    def test_binary_bodies_come_as_base64(self, handler):
        body = base64.b64encode(gzip.compress(json.dumps(event()).encode())).decode()
        answer = self.call(handler, body, encoded=True, **{"content-encoding": "gzip"})
        assert json.loads(answer["body"])["accepted"] == 1
        assert self.call(handler, "%%%=", encoded=True)["statusCode"] == 400

    def test_no_body(self, handler):
        answer = self.call(handler, None)
        assert answer["statusCode"] == 400
        assert answer["headers"]["x-correlation-id"] == "request-1"

    def test_the_cloud_failing_is_said_to_be_worth_a_retry(self, handler):
        self.setup.fuse.left = 0
        answer = self.call(handler, json.dumps(event()))
        assert answer["statusCode"] == 503
        assert json.loads(answer["body"])["error"]["code"] == "try_again"
        assert "Crash" in self.logs.getvalue()
        assert issubclass(Crash, CloudError)

    @pytest.mark.parametrize(
        ("failure", "status", "code"),
        [
            (Throttled, 503, "try_again"),
            (PartnerError, 503, "try_again"),
            (AccessDenied, 500, "internal"),
            (DefinitionError, 500, "internal"),
        ],
    )
    def test_only_what_may_pass_is_said_to_be_worth_a_retry(self, handler, monkeypatch, failure, status, code):
        def fail() -> None:
            raise failure("why")

        monkeypatch.setattr(receive_events, "_api", fail)
        answer = self.call(handler, json.dumps(event()))
        assert answer["statusCode"] == status
        assert json.loads(answer["body"])["error"]["code"] == code
        assert "why" in self.logs.getvalue()
        assert "why" not in answer["body"]


def test_a_day_of_real_weather_is_stored_as_it_was_sent(tmp_path):
    """DuckDB over the events as they were sent, and over the Parquet files as they lie there, agree in every cell."""
    source = Source.model_validate(yaml.safe_load(Path("examples/nyc_flights/sources/weather.yaml").read_text()))
    setup = Setup(source)
    text = feed.to_ndjson(
        event
        for day in feed.days(datetime(2013, 3, 8).date(), datetime(2013, 3, 12).date())
        for event in feed.weather_of_day(day)
    )
    result = setup.push(text.encode())
    assert (result.duplicates, result.rejected) == (0, ())
    (tmp_path / "sent.ndjson").write_text(text)
    for uri in setup.store.uris("/raw/source="):
        target = tmp_path / uri.removeprefix("s3://")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(setup.store.get(uri))
    base = duckdb.connect()
    base.execute("SET TimeZone='UTC'")
    columns = ", ".join(source.fields)
    read = f"read_parquet('{tmp_path}/raw/raw/*/*/*/*.parquet', hive_partitioning=false, filename=true)"
    base.execute(f"CREATE VIEW stored AS SELECT * FROM {read}")
    sql = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "timestamp": "VARCHAR"}
    types = ", ".join(f"{name}: '{sql[field.type]}'" for name, field in source.fields.items())
    read = f"read_json('{tmp_path}/sent.ndjson', format='newline_delimited', columns={{{types}}})"
    base.execute(f"CREATE VIEW sent AS SELECT * REPLACE (CAST(time_hour AS TIMESTAMPTZ) AS time_hour) FROM {read}")
    assert base.execute("SELECT count(*) FROM stored").fetchone() == (result.accepted,)
    for one, other in (("sent", "stored"), ("stored", "sent")):
        assert base.execute(f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}").fetchall() == []
    wrong = "NOT contains(filename, strftime(time_hour, '/date=%Y-%m-%d/hour=%H/'))"
    assert base.execute(f"SELECT count(*) FROM stored WHERE {wrong} OR _event_time <> time_hour").fetchone() == (0,)
    assert hashlib.sha256(b"ndjson\n" + text.encode()).hexdigest()[:32] == result.batch_id
