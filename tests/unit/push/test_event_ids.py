"""Event ids, joined bodies and receipts: each event is stored once."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.rejections import RejectionRule
from slackwater.receiver.push.body import BatchTooLarge
from slackwater.receiver.push.receive import Receipt, receipt_uri
from slackwater.sources.event_schema import raw_schema
from tests.fakes_receiver import (
    RECEIVED,
    Crash,
    a_source,
)
from tests.pushing import Setup, event, pushed_body

pytestmark = pytest.mark.unit


class TestEventIds:
    """A source whose events have ids: each id is stored once per hour."""

    SOURCE = a_source(event_id="id")

    def test_an_event_without_its_id_is_rejected(self):
        setup = Setup(a_source(event_id="count"))
        result = setup.push([event(), event(count=7), event(count="NA"), event(count=7)])
        assert (result.accepted, result.duplicates) == (1, 1)
        assert [index for index, _ in result.rejected] == [0, 2]
        assert {reason for _, reason in result.rejected} == {"count: no value, but it is the event id"}

    def test_events_of_a_buffered_source_without_ids_get_generated_ids(self):
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

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
    def test_one_event_is_stored_for_each_id_and_hour(self, items):
        setup = Setup(self.SOURCE)
        events = [event(f"2013-03-08T{hour:02d}:00:00Z", id=str(id_), count=n) for n, (hour, id_) in enumerate(items)]
        result = setup.push(json.dumps(events).encode(), "application/json")
        first = {item: n for n, item in reversed(list(enumerate(items)))}
        assert [row["count"] for row in setup.rows()] == [
            n for _, n in sorted((hour, n) for (hour, _), n in first.items())
        ]
        assert (result.accepted, result.duplicates) == (len(first), len(items) - len(first))


class TestJoinedBatches:
    """Several bodies of one source, stored together."""

    SOURCE = a_source(event_id="id")

    def test_each_event_keeps_its_own_time_of_receipt(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        early = setup.checked_events(event(id="x"), received_at=RECEIVED - timedelta(hours=1))
        late = setup.checked_events(event(id="x"), event("2013-03-08T13:00:00Z", id="y"), received_at=RECEIVED)
        assert setup.write_events([late, early]) == 3
        assert [(row["id"], row["_received_at"], row["_batch_id"], row["_event_id"]) for row in setup.rows()] == [
            ("x", early.receipt.received_at, early.batch_id, f"{early.batch_id}-0"),
            ("x", late.receipt.received_at, late.batch_id, f"{late.batch_id}-0"),
            ("y", late.receipt.received_at, late.batch_id, f"{late.batch_id}-1"),
        ]

    def test_the_first_received_body_stores_the_event_of_an_id(self):
        setup = Setup(self.SOURCE)
        late = setup.checked_events(event(count=2), event(id="b"), received_at=RECEIVED)
        early = setup.checked_events(event(count=1), received_at=RECEIVED - timedelta(seconds=1))
        assert setup.write_events([late, early]) == 2
        assert [(row["id"], row["count"]) for row in setup.rows()] == [("a", 1), ("b", None)]

    def test_the_order_of_the_batches_does_not_matter(self):
        setup = Setup(self.SOURCE)
        batches = [setup.checked_events(event(id=name), received_at=RECEIVED) for name in "abc"]
        assert setup.write_events(batches) == 3
        before = dict(setup.store.objects)
        assert setup.write_events([*reversed(batches), batches[1]]) == 0
        assert setup.store.objects == before

    def test_the_name_of_an_object_depends_on_its_batches_and_its_partition_and_has_its_rows(self):
        setup = Setup(self.SOURCE)
        batches = [setup.checked_events(event(id=name, count=n)) for n, name in enumerate("abc")]
        setup.write_events(batches)
        [uri] = setup.store.uris("/raw/source=")
        batch_ids = "\n".join(sorted(batch.batch_id for batch in batches))
        assert f"/{hashlib.sha256(f'{batch_ids}{chr(10)}2013-03-08/12'.encode()).hexdigest()[:32]}-3.parquet" in uri
        assert setup.write_events(batches[:2]) == 2

    def test_rejected_events_do_not_change_the_generated_ids_of_the_others(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        for accepted in ("0234", "24", "034", "01234"):
            batch = setup.checked_events(*(event() if str(index) in accepted else 7 for index in range(5)))
            setup.store.objects.clear()
            assert setup.write_events([batch]) == len(accepted)
            assert [row["_event_id"].rpartition("-")[2] for row in setup.rows()] == list(accepted)

    def test_equal_events_of_different_bodies_have_different_generated_ids(self):
        setup = Setup(a_source(push={"buffer": "queue"}))
        body = json.dumps(event()).encode()
        assert [setup.push(sent).accepted for sent in (body, body + b" ", body)] == [1, 1, 0]
        assert len({row["_event_id"] for row in setup.rows()}) == 2


class TestReceipts:
    """Decisions that depend on the time of receipt use the first one."""

    SOURCE = a_source(timestamp={"field": "at", "max_age_days": 5, "max_future_hours": 1})
    EVENTS = [
        event("2013-03-08T12:00:00Z"),
        event("2013-03-12T10:30:00Z"),
        event("2013-03-12T10:30:01Z"),
        event("2013"),
    ]

    def test_every_batch_has_a_receipt_with_its_time_and_its_definition(self):
        for setup, body in ((Setup(), b"7\n8"), (Setup(self.SOURCE), json.dumps(event()).encode()), (Setup(), b"[]")):
            batch_id = setup.push(body).batch_id
            uri = receipt_uri("raw", "things", batch_id)
            assert uri == f"s3://raw/receipts/source=things/{batch_id}.json"
            receipt = Receipt.model_validate_json(setup.store.get(uri))
            assert (receipt.received_at, receipt.definition) == (RECEIVED, setup.source)

    def test_a_refused_body_has_no_receipt(self):
        setup = Setup(a_source(push={"max_events": 1}))
        with pytest.raises(BatchTooLarge):
            setup.push([event(), event(id="b")])
        assert setup.store.objects == {}

    @pytest.mark.parametrize("writes", range(4))
    def test_a_retry_makes_the_same_decisions_as_the_first_attempt(self, writes):
        """The decisions also stay when the events have become too old, or are no longer in the future."""
        untroubled, setup = Setup(self.SOURCE), Setup(self.SOURCE)
        whole = untroubled.push(self.EVENTS)
        assert (whole.accepted, [index for index, _ in whole.rejected]) == (2, [2, 3])
        setup.fuse.left = writes
        with pytest.raises(Crash):
            setup.push(self.EVENTS)
        stored_count = len(setup.rows())
        setup.fuse.left = None
        if writes:  # A batch that crashed before its receipt was written counts as not received.
            setup.clock.pass_by(days=2)
        result = setup.push(self.EVENTS)
        assert (result.accepted, result.duplicates, result.rejected) == (2 - stored_count, stored_count, whole.rejected)
        assert setup.store.objects == untroubled.store.objects

    def test_the_same_events_in_another_body_are_checked_by_its_own_time(self):
        setup = Setup(self.SOURCE)
        setup.push(self.EVENTS)
        setup.clock.pass_by(days=2)
        result = setup.push([*self.EVENTS, event("2013-03-14T09:00:00Z")])
        assert [index for index, _ in result.rejected] == [0, 3]
        assert len(setup.reject_records()) == 4

    def test_after_midnight_rejected_events_are_not_written_again(self):
        setup = Setup()
        for _ in range(3):
            assert len(setup.push([event(), 7]).rejected) == 1
            setup.clock.pass_by(hours=20)
        (uri,) = setup.store.uris("/sideline/")
        assert "/date=2013-03-12/" in uri

    def test_checking_by_a_receipt_writes_nothing(self):
        setup = Setup(self.SOURCE)
        early = RECEIVED - timedelta(days=20)
        body = pushed_body("\n".join(map(json.dumps, [event("2013-02-20T00:00:00Z"), event()])).encode())
        setup.clock.time = early
        receipt = setup.receiver.check(body, setup.source).receipt
        setup.store.objects.clear()
        setup.clock.time = RECEIVED
        checked = setup.receiver.check_again(body, receipt)
        assert (checked.receipt.received_at, checked.split.table.num_rows) == (early, 1)
        assert checked.rejects["rule"].to_pylist() == [RejectionRule.IN_THE_FUTURE]
        assert setup.store.objects == {}
        setup.receiver.write_rejects(checked)
        assert setup.store.uris("/sideline/source=things/date=2013-02-20/")
