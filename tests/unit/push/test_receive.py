from __future__ import annotations

import gzip
import hashlib
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from examples.nyc_flights import feed
from slackwater.receiver.parsing.event_checks import check_events
from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.receiver.writing.partitioning import split_by_hour
from slackwater.receiver.writing.raw_writer import encode_parquet
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import raw_schema
from tests.fakes_receiver import (
    RECEIVED,
    Crash,
    a_source,
)
from tests.pushing import NDJSON, SOURCE, Setup, event
from tests.reading import read_parquet

pytestmark = pytest.mark.unit


class TestEvents:
    def test_accepted_events_have_the_columns_of_the_raw_schema(self):
        setup = Setup()
        setup.push([event(count=3, size=2, good=True, day="2013-03-08", more={"x": [1]}, **{"Other \u00e9": None})])
        (uri,) = setup.store.uris("/raw/source=")
        table = pq.read_table(io.BytesIO(setup.store.get(uri)), partitioning=None)
        assert table.schema == raw_schema(SOURCE)
        assert table.column_names == [
            "id", "count", "size", "good", "day", "at", "_event_time", "_received_at", "_batch_id", "_extra",
        ]  # fmt: skip
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
        assert setup.store.metadata(uri) == {"rows": "1", "windows": ",".join(["1", *"0" * 11])}
        assert uri.startswith("s3://raw/raw/source=things/date=2013-03-08/hour=12/")
        assert len(uri.rpartition("/")[2]) == 32 + len("-1.parquet")

    @pytest.mark.parametrize(
        ("pushed", "reason"),
        [
            ({"id": "a"}, "at: no value, but every event needs a timestamp"),
            ({"at": "2013-03-08T12:00:00Z"}, "id: no value, but it is required"),
            (event(count=2**63), "count: 9223372036854775808 does not fit into 64 bits"),
            (7, "an event is a JSON object, not a number (7)"),
        ],
    )
    def test_a_rejected_event_is_stored_with_its_reason(self, pushed, reason):
        setup = Setup()
        result = setup.push([event(), pushed])
        assert result.accepted == 1
        assert list(result.rejected) == [(1, reason)]
        (record,) = setup.reject_records()
        assert record.pop("rule") in set(RejectionRule)
        assert record == {
            "index": 1,
            "line": 2,
            "reason": reason,
            "batch_id": result.batch_id,
            "origin": "push:acme",
            "text": json.dumps(pushed),
        }
        assert len(setup.rows()) == 1


class TestPartitions:
    def test_each_event_is_stored_in_its_utc_hour(self):
        setup = Setup()
        times = [
            "2013-03-08T12:59:59.999999Z", "2013-03-08T13:00:00Z", "2013-03-08T08:00:00-05:00",
            "1969-12-31T23:59:59.5Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
        ]  # fmt: skip
        setup.push([event(at, id=str(n)) for n, at in enumerate(times)])
        partitions = sorted(uri.rpartition("/")[0].partition("things/")[2] for uri in setup.store.uris("/raw/source="))
        assert partitions == [
            "date=0001-01-01/hour=00",
            "date=1969-12-31/hour=23",
            "date=2013-03-08/hour=12",
            "date=2013-03-08/hour=13",
            "date=9999-12-31/hour=23",
        ]
        assert len(setup.rows()) == 6

    def test_the_name_of_an_object_depends_on_its_batch_and_its_partition_and_has_its_rows(self):
        setup = Setup()
        result = setup.push([event(), event("2013-03-08T13:00:00Z"), event()])
        written = zip(setup.store.uris("/raw/source="), (("2013-03-08/12", 2), ("2013-03-08/13", 1)), strict=True)
        for uri, (partition, rows) in written:
            name = hashlib.sha256(f"{result.batch_id}\n{partition}".encode()).hexdigest()[:32]
            assert uri.endswith(f"/{name}-{rows}.parquet")

    @given(st.permutations(range(6)))
    def test_events_of_an_hour_keep_their_order(self, indexes):
        events = [event(f"2013-03-08T{12 + index % 2}:00:00Z", id=str(index)) for index in indexes]
        hours = split_by_hour(check_events(events, SOURCE, received_at=RECEIVED).table)
        ids = [part["id"].to_pylist() for _, part in hours.runs()]
        assert ids == [[str(index) for index in indexes if index % 2 == hour] for hour in (0, 1)]
        assert [partition.hour for partition, _ in hours.runs()] == ["12", "13"]

    @pytest.mark.parametrize("event_id", [None, "id"])
    def test_the_hours_of_a_batch_are_computed_once(self, monkeypatch, event_id):
        setup, computed = Setup(a_source(event_id=event_id)), []
        floor_temporal = pc.floor_temporal
        monkeypatch.setattr(pc, "floor_temporal", lambda *args, **kw: computed.append(1) or floor_temporal(*args, **kw))
        result = setup.push([event(f"2013-03-08T{index % 3}1:00:00Z", id=str(index % 20)) for index in range(30)])
        assert result.accepted + result.duplicates == 30
        assert len(computed) == 1

    def test_equal_events_are_stored_as_equal_bytes(self):
        first, second = Setup(), Setup()
        for setup in (first, second):
            setup.push([event(f"2013-03-08T{index % 3}1:00:00Z", id=str(index)) for index in range(30)])
        assert first.store.objects == second.store.objects

    def test_an_object_has_statistics_of_its_event_times(self):
        table = split_by_hour(
            check_events([event(), event("2013-03-08T12:30:00Z")], SOURCE, received_at=RECEIVED).table
        ).table
        footer = pq.read_metadata(io.BytesIO(encode_parquet(table)))
        assert footer.num_row_groups == 1
        statistics = footer.row_group(0).column(table.column_names.index("_event_time")).statistics
        assert (statistics.min, statistics.max) == (
            datetime(2013, 3, 8, 12, tzinfo=UTC),
            datetime(2013, 3, 8, 12, 30, tzinfo=UTC),
        )


class TestRetries:
    EVENTS = [event(f"2013-03-08T{hour:02d}:00:00Z", id=str(hour)) for hour in range(12)] + [{"id": "bad"}]

    def test_a_repeated_batch_writes_nothing(self):
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

    @pytest.mark.parametrize("mtime", [0, 1_362_744_000])
    def test_the_same_body_compressed_differently_is_the_same_batch(self, mtime):
        setup = Setup()
        body = "\n".join(map(json.dumps, self.EVENTS)).encode()
        first = setup.push(body)
        before = dict(setup.store.objects)
        for pushed, encoding in (
            (gzip.compress(body, mtime=mtime), "gzip"),
            (pa.compress(body, codec="zstd", asbytes=True), "zstd"),
            (b"\xef\xbb\xbf" + body, None),
        ):
            again = setup.push(pushed, encoding=encoding)
            assert (again.batch_id, again.accepted, again.duplicates) == (first.batch_id, 0, 12)
        assert setup.store.objects == before

    def test_the_same_body_as_array_and_as_ndjson_is_two_batches(self):
        setup, body = Setup(), json.dumps([event()]).encode()
        lines = setup.push(body)
        array = setup.push(body, "application/json")
        assert (lines.accepted, len(lines.rejected), array.accepted, array.rejected) == (0, 1, 1, ())
        assert lines.batch_id == hashlib.sha256(b"ndjson\n" + body).hexdigest()[:32]
        assert array.batch_id == hashlib.sha256(b"json\n" + body).hexdigest()[:32]

    def test_equal_events_of_different_bodies_are_different_events(self):
        setup = Setup()
        bodies = [[event()], [event(), event("2013-03-08T13:00:00Z")], [event(), event()]]
        assert [setup.push(body).accepted for body in bodies] == [1, 2, 2]
        assert setup.push(json.dumps([event()]).encode(), "application/json").accepted == 1
        assert len(setup.rows()) == 6

    def test_a_batch_stays_the_same_with_another_definition(self):
        setup = Setup()
        setup.push(self.EVENTS)
        before = dict(setup.store.objects)
        setup.source = a_source(enrich={"region": {"constant": "eu"}})
        again = setup.push(self.EVENTS)
        assert (again.accepted, again.duplicates, len(again.rejected)) == (0, 12, 1)
        assert setup.store.objects == before

    @pytest.mark.parametrize("writes", range(14))
    def test_a_retry_completes_a_batch_after_a_crash_between_any_two_writes(self, writes):
        setup = Setup()
        setup.fuse.left = writes
        with pytest.raises(Crash):
            setup.push(self.EVENTS)
        stored_count = len(setup.rows())
        setup.fuse.left = None
        result = setup.push(self.EVENTS)
        assert (result.accepted, result.duplicates, len(result.rejected)) == (12 - stored_count, stored_count, 1)
        assert sorted(row["id"] for row in setup.rows()) == sorted(str(hour) for hour in range(12))
        assert len(setup.reject_records()) == 1

    def test_every_event_is_durable_after_the_response(self):
        setup = Setup()
        setup.fuse.left = 14  # the receipt, 12 partitions, the rejected event
        assert setup.push(self.EVENTS).accepted == 12
        assert setup.fuse.left == 0


_timestamps = st.datetimes(datetime(2013, 3, 8), datetime(2013, 3, 9)).map(
    lambda timestamp: timestamp.isoformat() + "Z"
)
_events = st.one_of(
    st.fixed_dictionaries(
        {"at": _timestamps, "id": st.text(max_size=3)}, optional={"count": st.integers(-3, 3), "x": st.integers()}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "at": st.one_of(_timestamps, st.text(max_size=5), st.none()),
            "id": st.one_of(st.text(), st.integers(), st.booleans()),
            "good": st.one_of(st.booleans(), st.text()),
        },
    ),
    st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers(), max_size=2)),
)


@given(batch=st.lists(_events, max_size=20), array=st.booleans(), crash=st.integers(0, 8))
def test_every_event_is_in_one_partition_or_rejected(batch, array, crash):
    # Each event has a unique number in a field that the source does not know, so that it can be identified.
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
    rejected = [index for index, _ in result.rejected]
    assert sorted(stored + rejected) == list(range(len(batch)))
    assert sorted(record["index"] for record in setup.reject_records()) == rejected
    for record in setup.reject_records():
        assert json.loads(record["text"]) == batch[record["index"]]
    for uri in setup.store.uris("/raw/source="):
        hour = datetime.fromisoformat(f"{uri.partition('date=')[2][:10]}T{uri.partition('hour=')[2][:2]}:00:00+00:00")
        for row in read_parquet(setup.store.get(uri)).to_pylist():
            assert hour <= row["_event_time"] < hour + timedelta(hours=1)


def test_a_day_of_real_weather_is_stored_unchanged(tmp_path):
    """DuckDB reads the same values from the events as sent and from the stored Parquet files."""
    source = Source.model_validate(yaml.safe_load(Path("examples/nyc_flights/sources/weather.yaml").read_text()))
    setup = Setup(source)
    body = feed.to_ndjson(
        event
        for day in feed.days(datetime(2013, 3, 8).date(), datetime(2013, 3, 12).date())
        for event in feed.weather_of_day(day)
    )
    result = setup.push(body.encode())
    assert (result.duplicates, result.rejected) == (0, ())
    (tmp_path / "sent.ndjson").write_text(body)
    for uri in setup.store.uris("/raw/source="):
        target = tmp_path / uri.removeprefix("s3://")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(setup.store.get(uri))
    base = duckdb.connect()
    base.execute("SET TimeZone='UTC'")
    columns = ", ".join(source.fields)
    table_function = f"read_parquet('{tmp_path}/raw/raw/*/*/*/*.parquet', hive_partitioning=false, filename=true)"
    base.execute(f"CREATE VIEW stored AS SELECT * FROM {table_function}")
    sql = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "timestamp": "VARCHAR"}
    types = ", ".join(f"{name}: '{sql[field.type]}'" for name, field in source.fields.items())
    table_function = f"read_json('{tmp_path}/sent.ndjson', format='newline_delimited', columns={{{types}}})"
    base.execute(
        f"CREATE VIEW sent AS SELECT * REPLACE (CAST(time_hour AS TIMESTAMPTZ) AS time_hour) FROM {table_function}"
    )
    assert base.execute("SELECT count(*) FROM stored").fetchone() == (result.accepted,)
    for left, right in (("sent", "stored"), ("stored", "sent")):
        assert base.execute(f"SELECT {columns} FROM {left} EXCEPT ALL SELECT {columns} FROM {right}").fetchall() == []
    wrong = "NOT contains(filename, strftime(time_hour, '/date=%Y-%m-%d/hour=%H/'))"
    assert base.execute(f"SELECT count(*) FROM stored WHERE {wrong} OR _event_time <> time_hour").fetchone() == (0,)
    assert hashlib.sha256(b"ndjson\n" + body.encode()).hexdigest()[:32] == result.batch_id
