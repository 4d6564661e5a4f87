"""The counts of events in DynamoDB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.errors import CloudError, Throttled
from slackwater.receiver.event_counts import EventCount
from tests.fakes_receiver import FILE_TABLE
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

TABLE = "files"
NOW = datetime(2026, 6, 29, 7, 30, tzinfo=UTC)
HOUR = int(NOW.timestamp() // 3600)


@pytest.fixture
def local(each_dynamodb):
    with each_dynamodb.table(TABLE, **FILE_TABLE):
        each_dynamodb.calls.clear()
        yield each_dynamodb


@pytest.fixture
def counts(local):
    return DynamoEventCounts(local.client, TABLE)


def test_counts_are_added_up_by_source_and_hour(counts, local):
    for events, rejected, minutes in ((5, 1, 0), (3, 0, 20), (2, 2, 40)):
        counts.add("a", EventCount(events, rejected), at=NOW + timedelta(minutes=minutes))
    counts.add("b", EventCount(7, 0), at=NOW)
    assert counts.hours("a", now=NOW) == {HOUR: EventCount(8, 1), HOUR + 1: EventCount(2, 2)}
    assert counts.hours("b", now=NOW) == {HOUR: EventCount(7, 0)}
    assert counts.hours("c", now=NOW) == {}
    assert len(local.items(TABLE)) == 2
    # They are no files.
    assert DynamoFileCache(local.client, TABLE).longest_not_taken("a") is None


def test_today_and_14_days_before_are_read_with_one_request(counts, local):
    for back in (0, 14, 15):
        counts.add("a", EventCount(1, 0), at=NOW - timedelta(days=back))
    local.calls.clear()
    assert set(counts.hours("a", now=NOW)) == {HOUR, HOUR - 14 * 24}
    assert local.calls == ["BatchGetItem"]


def test_a_batch_without_events_writes_nothing(counts, local):
    counts.add("a", EventCount(0, 0), at=NOW)
    assert local.calls == []


def test_an_error_of_dynamodb_is_one_of_the_library(local):
    missing = DynamoEventCounts(local.client, "no-such-table")
    with pytest.raises(CloudError, match="count the events of a"):
        missing.add("a", EventCount(1, 0), at=NOW)
    with pytest.raises(CloudError, match="read the counts of the events of a"):
        missing.hours("a", now=NOW)


class Unprocessed:
    """A client that leaves all keys unprocessed."""

    def batch_get_item(self, *, RequestItems):  # noqa: N803
        return {"Responses": {}, "UnprocessedKeys": RequestItems}


def test_keys_that_stay_unprocessed_are_an_error(monkeypatch):
    pauses = record_pauses(monkeypatch, "slackwater.aws.dynamodb.requests")
    with pytest.raises(Throttled, match="leaves keys unprocessed"):
        DynamoEventCounts(Unprocessed(), TABLE).hours("a", now=NOW)
    assert len(pauses) == 5
