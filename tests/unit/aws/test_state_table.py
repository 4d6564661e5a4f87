"""The state table over two implementations of DynamoDB: facts are kept once, whatever is repeated or interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.dynamodb import state_items
from slackwater.aws.dynamodb.state_items import instant_key, item
from slackwater.aws.dynamodb.state_table import DynamoStateTable
from slackwater.errors import CloudError, Throttled
from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, RejectedEvents
from slackwater.state.reports import new_report
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import a_source
from tests.fakes_state import STATE_TABLE, MemoryState

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = a_source(counts={"window": "5m"})


@pytest.fixture
def table(each_dynamodb: LocalDynamoDB) -> Iterator[DynamoStateTable]:
    with each_dynamodb.table("state", **STATE_TABLE) as name:
        yield DynamoStateTable(each_dynamodb.client, name)


def a_report(minutes: int = 60, windows: int = 30):
    counts = {START + timedelta(minutes=5 * number): number for number in range(windows)}
    at = START + timedelta(minutes=minutes)
    return new_report(SOURCE, as_of=at, through=at, counts=counts, principal="push:acme")


def test_facts_are_read_as_they_were_stored(table):
    memory, hours = MemoryState(), [START + number * HOUR for number in range(-1, 4)]
    assert table.coverage("things") is None
    for stored in (memory, table, table):
        stored.put_report(a_report())
        stored.put_report(a_report(30, windows=0))
        stored.put_rejected("things", {START: RejectedEvents("batch", {ALL: (1,) * 12}, 3)})
        stored.put_rejected("things", {START: RejectedEvents("file-a-b", {ALL: (0,) * 12}, 0)})
        stored.put_report(a_report(90, windows=1))
    for hour, facts in memory.facts("things", hours).items():
        read = table.facts("things", hours)[hour]
        assert sorted(read.reports, key=lambda item: item.id) == sorted(facts.reports, key=lambda item: item.id)
        assert sorted(read.rejected) == sorted(facts.rejected)
    assert table.coverage("things") == memory.coverage("things")
    assert table.coverage("other") is None


def test_facts_by_value_are_read_as_they_were_stored(table):
    memory, source = MemoryState(), a_source(counts={"window": "5m", "by": "id", "values": ["EU", "Süd"]})
    at, keys = START + HOUR, source.count_keys
    counts = {START: {"id=EU": 1, "id=": 2}, START + timedelta(minutes=5): {"id=Süd": 3}}
    rejected = RejectedEvents("batch", {key: (number,) * 12 for number, key in enumerate(keys)}, 1)
    for stored in (memory, table):
        stored.put_report(new_report(source, as_of=at, through=at, counts=counts, principal="push:acme"))
        stored.put_rejected("things", {START: rejected})
    assert table.facts("things", [START]) == memory.facts("things", [START])


def test_items_expire_after_their_hour_and_have_the_documented_keys(table, each_dynamodb):
    table.put_report(a_report(windows=1))
    items = {(item["pk"]["S"], item["sk"]["S"]): item for item in each_dynamodb.items("state")}
    id_ = a_report(windows=1).id
    key = f"2026-01-01T13:00:00.000000Z#{id_}"
    assert items.keys() == {("things#2026-01-01T12", f"report#{key}"), ("things#reports", "covered")}
    covered = items["things#reports", "covered"]
    assert covered["first"] == {"S": "2026-01-01T12:00:00.000000Z"}
    assert covered["through"] == {"S": "2026-01-01T13:00:00.000000Z"}
    for stored, hour in ((items["things#2026-01-01T12", f"report#{key}"], START), (covered, START + HOUR)):
        assert datetime.fromtimestamp(int(stored["expires"]["N"]), UTC) == hour + HOUR + timedelta(days=400)


def operations_of(table, each_dynamodb, report) -> list[str]:
    """The requests that store a report."""
    operations = []
    each_dynamodb.before = operations.append
    table.put_report(report)
    each_dynamodb.before = lambda _: None
    return operations


def test_of_the_reports_of_an_hour_only_the_first_moves_what_is_covered(table, each_dynamodb):
    def report(minute: int, *, names: int | None = None):
        at = START + timedelta(minutes=minute)
        counts = {START + timedelta(minutes=minute - 5 if names is None else names): 1}
        return new_report(SOURCE, as_of=at, through=at, counts=counts, principal="push:acme")

    put, moved = ["BatchWriteItem", "Query"], ["UpdateItem"]
    # The second query: there may be reports of an earlier version.
    assert operations_of(table, each_dynamodb, report(0)) == [*put, "Query", *moved, *moved]
    for minute in range(5, 65, 5):
        assert operations_of(table, each_dynamodb, report(minute)) == put
    assert operations_of(table, each_dynamodb, report(65)) == put + moved
    # One that names another hour says more about this one, and one about an earlier window moves the beginning.
    assert operations_of(table, each_dynamodb, report(70, names=0)) == put + moved
    assert operations_of(table, each_dynamodb, report(-50)) == put + moved
    assert table.coverage("things") == (START - timedelta(minutes=55), START + timedelta(minutes=70))


def test_what_is_covered_only_grows_whatever_was_read_before(table, monkeypatch):
    table.put_report(a_report(90, windows=1))
    # A read that is not consistent has not seen the report.
    monkeypatch.setattr(table, "_covered", lambda *_, **__: {})
    table.put_report(a_report(60, windows=0))
    monkeypatch.undo()
    assert table.coverage("things") == (START, START + timedelta(minutes=90))


def put_earlier_reports(each_dynamodb) -> None:
    """Store what two reports cover as the version before `covered` did: an item for each end."""
    for at in (START, START + HOUR):
        for name, instant in (("from", at - HOUR), ("through", at)):
            sort_key = f"{name}#{instant_key(instant)}#{instant_key(at)}#id"
            each_dynamodb.client.put_item(TableName="state", Item=item("things#reports", sort_key, expires=at))


def test_what_reports_of_an_earlier_version_cover_is_read_and_stored_with_the_next_one(table, each_dynamodb):
    put_earlier_reports(each_dynamodb)
    assert table.coverage("things") == (START - HOUR, START + HOUR)
    moved = ["UpdateItem"]
    later = a_report(180, windows=1)
    found = operations_of(table, each_dynamodb, later)
    assert found == ["BatchWriteItem", *["Query"] * 4, *moved * 3]
    assert table.coverage("things") == (START - HOUR, START + 3 * HOUR)
    assert operations_of(table, each_dynamodb, later) == ["BatchWriteItem", "Query"]


def test_what_an_earlier_version_has_covered_is_not_lost_when_a_process_ends(table, each_dynamodb):
    put_earlier_reports(each_dynamodb)
    for requests in range(9):
        calls = []

        def fail(operation: str, calls: list[str] = calls, most: int = requests) -> None:
            calls.append(operation)
            if len(calls) > most:
                raise ClientError({"Error": {"Code": "500"}}, operation)

        each_dynamodb.before = fail
        with suppress(CloudError):
            table.put_report(a_report(180, windows=1))
        each_dynamodb.before = lambda _: None
        assert table.coverage("things") == (START - HOUR, START + (1 if requests < 8 else 3) * HOUR)


def test_the_time_before_the_facts_that_are_kept_is_not_covered(table):
    table.put_report(a_report(windows=1))
    later = START + timedelta(days=500)
    table.put_report(new_report(SOURCE, as_of=later, through=later, counts={}, principal="push:acme"))
    assert table.coverage("things") == (later - timedelta(days=400), later)


def test_a_report_that_ends_half_way_makes_no_window_empty(table, each_dynamodb):
    """Each number of writes: before the last, nothing says that unnamed windows are empty."""
    report = a_report(windows=2_000)
    for writes in range(20):
        calls = []

        def fail(operation: str, calls: list[str] = calls, most: int = writes) -> None:
            calls.append(operation)
            if len(calls) > most:
                raise ClientError({"Error": {"Code": "500"}}, operation)

        each_dynamodb.before = fail
        with suppress(CloudError):
            table.put_report(report)
            break
        each_dynamodb.before = lambda _: None
        assert table.coverage("things") is None
    each_dynamodb.before = lambda _: None
    table.put_report(report)
    assert len(table.facts("things", [START])[START].reports) == 1


def test_unprocessed_items_are_sent_again(table, monkeypatch):
    monkeypatch.setattr(state_items.time, "sleep", lambda _: None)
    real, left = table._dynamodb.batch_write_item, [3]

    def some(RequestItems):  # noqa: N803
        [(name, puts)] = RequestItems.items()
        if not left[0]:
            return real(RequestItems=RequestItems)
        left[0] -= 1
        real(RequestItems={name: puts[:1]})
        return {"UnprocessedItems": {name: puts[1:]} if puts[1:] else {}}

    monkeypatch.setattr(table._dynamodb, "batch_write_item", some)
    table.put_report(a_report())
    assert len(table.facts("things", [START])[START].reports[0].counts) == 12
    monkeypatch.setattr(
        table._dynamodb,
        "batch_write_item",
        lambda RequestItems: {"UnprocessedItems": RequestItems},  # noqa: N803
    )
    with pytest.raises(Throttled, match="could not store a report about things: DynamoDB leaves items unprocessed"):
        table.put_report(a_report())


def test_files_are_known_by_how_they_were_listed(table):
    assert table.read_files("things", ["a.json"]) == {}
    table.put_file("things", "a.json", "1", at=START)
    table.put_file("things", "a.json", "2", at=START)
    assert table.read_files("things", ["a.json", "b.json"]) == {"a.json": "2"}
