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
from slackwater.errors import CloudError, UnknownName
from slackwater.receiver.api import EventsApi, Request
from slackwater.receiver.batch import Limits
from slackwater.receiver.deliver import Delivery
from slackwater.receiver.encode import content_hashes, split
from slackwater.receiver.events import check_events
from slackwater.receiver.receive import Receiver
from slackwater.receiver.schema import event_schema, raw_schema
from slackwater.receiver.source import Source
from tests.fakes_receiver import RECEIVED, Clock, Crash, Fuse, MemoryPartitions, MemoryStore, MemoryTokens, a_source

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

    def test_the_content_hash_is_of_the_events_alone(self):
        def hashes(*events: dict[str, object], source: Source = SOURCE):
            return content_hashes(split(check_events(list(events), source).table))

        one, two = event(id="a", size=1.5), event(id="b", good=False)
        assert hashes(one, two) == hashes(one, two)
        assert hashes(one, two) != hashes(two, one)
        assert hashes(one) == hashes({"at": "2013-03-08T13:00:00+01:00", "size": "1.5", "id": "a", "count": None})
        assert hashes(one) != hashes({**one, "more": 1})
        assert hashes(event(id="")) == []
        # Null, empty, zero and false are four different things; so are ("ab", "c") and ("a", "bc").
        source = a_source(
            fields={"at": "timestamp", "x": "string", "y": "string", "n": "int64", "b": "boolean"}, null_values=[]
        )
        at = {"at": "2013-03-08T12:00:00Z"}
        variants = [
            {},
            {"x": ""},
            {"y": ""},
            {"x": "ab", "y": "c"},
            {"x": "a", "y": "bc"},
            {"n": 0},
            {"n": 1},
            {"b": False},
            {"b": True},
        ]
        assert len({tuple(hashes({**at, **variant}, source=source)) for variant in variants}) == len(variants)

    def test_a_part_hashes_the_same_alone_and_among_others(self):
        among = split(
            check_events(
                [
                    event("2013-03-08T14:00:00Z"),
                    event("2013-03-08T12:10:00Z", id="x\u00e9"),
                    event("2013-03-08T13:00:00Z"),
                ],
                SOURCE,
            ).table
        )
        alone = split(check_events([event("2013-03-08T12:10:00Z", id="x\u00e9")], SOURCE).table)
        assert content_hashes(among)[0] == content_hashes(alone)[0]

    def test_nothing_accepted_makes_no_partition(self):
        found = split(check_events([], SOURCE).table)
        assert (list(found.partitions), list(found.parts()), content_hashes(found)) == ([], [], [])
        assert found.table.schema == event_schema(SOURCE)


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
        assert setup.store.writes == writes + 1  # the side-line, with the same bytes

    def test_the_same_events_in_another_form_are_duplicates(self):
        setup = Setup()
        setup.push(self.EVENTS)
        again = setup.push(gzip.compress(json.dumps(self.EVENTS).encode()), "application/json", "gzip")
        assert (again.accepted, again.duplicates) == (0, 12)
        assert len(setup.rows()) == 12

    @pytest.mark.parametrize("writes", range(14))
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
        setup.fuse.left = 14  # 12 partitions, the side-line, the catalogue
        assert setup.push(self.EVENTS).accepted == 12
        assert setup.fuse.left == 0


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
    result = setup.push(body.encode(), content_type)
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
        return EventsApi(tokens=tokens, source=source, receiver=setup.receiver, now=setup.clock)

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
                now=setup.clock,
            )
            assert api.post(Request(source="things", headers={"authorization": "bearer old"}, body=b"[]")).status == 401
        later = MemoryTokens({"new": ["*"]}, expires_at=RECEIVED + timedelta(seconds=1))
        api = EventsApi(tokens=later, source=lambda _: SOURCE, receiver=setup.receiver, now=setup.clock)
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
    assert hashlib.sha256(text.encode()).hexdigest()[:32] == result.batch_id
