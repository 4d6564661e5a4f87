"""The file cache in DynamoDB: records, optimistic locking, transactions and indexes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.errors import CloudError, ObjectInvalid, Throttled
from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.pull.file_cache import (
    Content,
    ContentVersion,
    EntryChanged,
    FileCache,
    FileCounts,
    FileEntry,
    FileOfDate,
    FileState,
    Lease,
)
from slackwater.sources.partitions import Partition
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import FILE_TABLE, RECEIVED, MemoryFileCache, content_id, store_file
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

TABLE = "files"
ENTRY = FileEntry(
    source="a",
    path="2013/x.csv",
    dated_pattern="2013/x*.csv",
    state=FileState.FAILED,
    etag="e",
    size=7,
    modified=RECEIVED,
    content=content_id("one"),
    changed=(Partition("2013-03-08", "05"),),
    uncounted=FileCounts(files=1, rows=5, rejected=1),
    counted_by="pull",
    duplicate_of="w.csv",
    landing_uri="s3://raw/landing/x",
    rows=5,
    rejected=1,
    stored_at=RECEIVED,
    first_received_at=RECEIVED,
    reason="answered 500",
    lease=Lease(owner="pull", until=RECEIVED),
    attempts=3,
    attempted=ListedFile(name="2013/x.csv", size=7, etag="e", modified=RECEIVED),
    attempted_definition="0123456789ab",
    due=RECEIVED,
    not_taken_since=RECEIVED,
    removed_since=RECEIVED,
)
CONTENT = Content(
    source="a",
    id=content_id("one"),
    received_at=RECEIVED,
    first_received_at=RECEIVED,
    files=1,
    paths=("2013/x.csv",),
    removed=1,
    current=ContentVersion(
        definition="1" * 12, partitions=(Partition("2013-03-08", "05"),), rows=5, rejected=1, attempt="2" * 12
    ),
    changed_at=RECEIVED,
)


@pytest.fixture
def local(each_dynamodb: LocalDynamoDB) -> Any:
    with each_dynamodb.table(TABLE, **FILE_TABLE):
        yield each_dynamodb


@pytest.fixture
def cache(local: LocalDynamoDB) -> DynamoFileCache:
    return DynamoFileCache(local.client, TABLE)


@pytest.fixture(params=["local cloud", "DynamoDB Local", "memory"])
def each_cache(request: pytest.FixtureRequest) -> Iterator[FileCache]:
    """The file cache over each DynamoDB, and the fake that other tests use in its place."""
    if request.param == "memory":
        yield MemoryFileCache()
        return
    is_served = request.param == "DynamoDB Local"
    local = LocalDynamoDB(request.getfixturevalue("dynamodb_local_endpoint") if is_served else None)
    with local.table(TABLE, **FILE_TABLE):
        yield DynamoFileCache(local.client, TABLE)


def saved(record: Any) -> Any:
    """Return the record as the cache returns it after it was saved."""
    return record.model_copy(update={"revision": record.revision + 1})


def entry(path: str, **values: Any) -> FileEntry:
    return FileEntry(source="a", path=path, **values)


class TestRecords:
    def test_records_are_read_as_they_were_saved(self, each_cache):
        for record in (ENTRY, CONTENT):
            assert record.model_fields_set == set(type(record).model_fields) - {"revision"}
        each_cache.save(ENTRY, CONTENT)
        assert each_cache.entries("a", [ENTRY.path]) == [saved(ENTRY)]
        assert each_cache.contents("a", [CONTENT.id]) == [saved(CONTENT)]
        each_cache.save(saved(ENTRY).model_copy(update={"lease": None, "due": None, "not_taken_since": None}))
        assert each_cache.entries("a", [ENTRY.path])[0].revision == 2

    def test_only_the_named_records_of_the_source_are_read(self, each_cache):
        each_cache.save(ENTRY, CONTENT)
        each_cache.save(entry(CONTENT.id))
        assert each_cache.entries("b", [ENTRY.path]) == []
        assert each_cache.contents("b", [CONTENT.id]) == []
        assert each_cache.contents("a", [ENTRY.path]) == []
        assert each_cache.entries("a", [CONTENT.id]) == [saved(entry(CONTENT.id))]
        assert each_cache.entries("a", ["missing", ENTRY.path, "missing", ENTRY.path]) == [saved(ENTRY)]
        assert (each_cache.entries("a", []), each_cache.contents("a", [])) == ([], [])

    def test_a_content_with_4000_partitions_is_replaced_within_the_largest_item(self, each_cache):
        """A file may have rows of 4,000 hours, and the longest path has 1,024 bytes."""
        first = datetime(2013, 1, 1, tzinfo=UTC)
        hours = [first + timedelta(hours=number) for number in range(4000)]
        partitions = tuple(Partition(f"{hour:%Y-%m-%d}", f"{hour:%H}") for hour in hours)
        version = ContentVersion(definition="1" * 12, partitions=partitions, rows=9_999_999, attempt="2" * 12)
        paths = tuple(f"{number:01024}" for number in range(20))
        large = CONTENT.model_copy(update={"current": version, "paths": paths})
        # Both the former content and the new one may have rows of 4,000 hours.
        others = tuple(Partition(str(int(day[:4]) - 100) + day[4:], hour) for day, hour in partitions)
        entry = ENTRY.model_copy(update={"changed": (*others, *partitions)})
        each_cache.save(entry, large)
        assert each_cache.contents("a", [large.id]) == [saved(large)]
        assert each_cache.entries("a", [entry.path]) == [saved(entry)]


class TestBatches:
    @pytest.mark.parametrize("record", [ENTRY, CONTENT])
    def test_a_record_that_is_invalid_is_named_by_an_error_that_stops_one_day_of_a_check(self, local, cache, record):
        cache.save(record)
        for item in local.client.scan(TableName=TABLE)["Items"]:
            local.client.put_item(TableName=TABLE, Item=item | {"record": {"S": '{"source": "a"}'}})
        key = record.path if record is ENTRY else record.id
        with pytest.raises(ObjectInvalid, match=f"the record of {key} in the file cache .*{type(record).__name__}: "):
            read(cache, record)
        if record is ENTRY:
            with pytest.raises(ObjectInvalid, match=r"2013/x\.csv"):
                list(cache.not_taken("a"))

    def test_hundreds_of_entries_are_read_in_batches_of_100(self, local, cache):
        names = [f"{number:03}" for number in range(250)]
        for start in range(0, len(names), 50):
            cache.save(*(entry(name) for name in names[start : start + 50]))
        local.calls.clear()
        assert sorted(item.path for item in cache.entries("a", [*names, "missing"])) == names
        assert local.calls == ["BatchGetItem"] * 3

    def test_keys_that_dynamodb_leaves_unprocessed_are_read_again(self, local, cache, monkeypatch):
        pauses = record_pauses(monkeypatch, "slackwater.aws.dynamodb.requests")
        names = [f"{number:03}" for number in range(120)]
        for start in (0, 60):
            cache.save(*(entry(name) for name in names[start : start + 60]))
        leave_unprocessed(monkeypatch, local, beyond=40)
        assert sorted(item.path for item in cache.entries("a", names)) == names
        assert pauses == [0.05, 0.1]

    def test_keys_that_stay_unprocessed_are_throttling(self, local, cache, monkeypatch):
        pauses = record_pauses(monkeypatch, "slackwater.aws.dynamodb.requests")
        cache.save(entry("x"))
        leave_unprocessed(monkeypatch, local, beyond=0)
        with pytest.raises(Throttled, match="could not read the file cache of a"):
            cache.entries("a", ["x"])
        assert sum(pauses) < 15


def leave_unprocessed(monkeypatch: pytest.MonkeyPatch, local: LocalDynamoDB, *, beyond: int) -> None:
    """Let BatchGetItem process only the first keys of each request."""
    batch_get_item = local.client.batch_get_item

    def some(*, RequestItems: Any) -> Any:  # noqa: N803
        request = RequestItems[TABLE]
        assert request["ConsistentRead"]
        done, left = request["Keys"][:beyond], request["Keys"][beyond:]
        answer = batch_get_item(RequestItems={TABLE: {**request, "Keys": done}}) if done else {"Responses": {}}
        return {**answer, "UnprocessedKeys": {TABLE: {**request, "Keys": left}} if left else {}}

    monkeypatch.setattr(local.client, "batch_get_item", some)


class TestConcurrentWrites:
    @pytest.mark.parametrize("record", [ENTRY, CONTENT])
    def test_the_second_of_two_writes_based_on_one_revision_is_refused(self, each_cache, record):
        each_cache.save(record)
        each_cache.save(saved(record))
        for revision in (0, 1, 3):
            with pytest.raises(EntryChanged):
                each_cache.save(record.model_copy(update={"revision": revision}))
        assert read(each_cache, record).revision == 2

    def test_a_record_that_does_not_exist_has_revision_0_only(self, each_cache):
        with pytest.raises(EntryChanged):
            each_cache.save(entry("x", revision=1))
        assert each_cache.entries("a", ["x"]) == []

    @pytest.mark.parametrize("changed", [ENTRY, CONTENT])
    def test_a_transaction_writes_nothing_when_one_of_its_records_has_changed(self, each_cache, changed):
        other = content_id("other")
        each_cache.save(changed)
        with pytest.raises(EntryChanged):
            each_cache.save(ENTRY, CONTENT, CONTENT.model_copy(update={"id": other}))
        assert read(each_cache, changed) == saved(changed)
        assert len(each_cache.entries("a", [ENTRY.path]) + each_cache.contents("a", [CONTENT.id, other])) == 1

    def test_two_files_of_one_content_are_both_counted(self, each_cache):
        for path in ("x.csv", "y.csv"):
            store_file(each_cache, "a", path, "one", [Partition("2013-03-08", "05")])
        (content,) = each_cache.contents("a", [content_id("one")])
        assert (content.files, content.paths) == (2, ("x.csv", "y.csv"))
        store_file(each_cache, "a", "x.csv", "two")
        (content,) = each_cache.contents("a", [content_id("one")])
        assert (content.files, content.paths) == (1, ("y.csv",))


def read(cache: FileCache, record: FileEntry | Content) -> FileEntry | Content:
    if isinstance(record, FileEntry):
        return cache.entries(record.source, [record.path])[0]
    return cache.contents(record.source, [record.id])[0]


class TestRefusedWrites:
    @pytest.mark.parametrize(
        ("reasons", "error"),
        [
            (["None", "TransactionConflict"], EntryChanged),
            (["ConditionalCheckFailed", "None"], EntryChanged),
            (["ThrottlingError", "ConditionalCheckFailed"], EntryChanged),
            (["None", "ThrottlingError"], Throttled),
            (["ValidationError", "None"], CloudError),
        ],
    )
    def test_a_cancelled_transaction_tells_throttling_from_a_change(self, local, cache, monkeypatch, reasons, error):
        refuse(monkeypatch, local, "transact_write_items", "TransactionCanceledException", *reasons)
        with pytest.raises(error) as raised:
            cache.save(ENTRY, CONTENT)
        assert type(raised.value) is error

    @pytest.mark.parametrize(
        ("code", "error"),
        [
            ("TransactionConflictException", EntryChanged),
            ("ConditionalCheckFailedException", EntryChanged),
            ("ThrottlingException", Throttled),
            ("ResourceNotFoundException", CloudError),
        ],
    )
    def test_a_refused_single_write_tells_throttling_from_a_change(self, local, cache, monkeypatch, code, error):
        refuse(monkeypatch, local, "put_item", code)
        with pytest.raises(error) as raised:
            cache.save(ENTRY)
        assert type(raised.value) is error


def refuse(monkeypatch: pytest.MonkeyPatch, local: LocalDynamoDB, method: str, code: str, *reasons: str) -> None:
    def refused(**_: object) -> None:
        details = {
            "Error": {"Code": code, "Message": "no"},
            "CancellationReasons": [{"Code": item} for item in reasons],
        }
        raise ClientError(details, method)

    monkeypatch.setattr(local.client, method, refused)


class TestIndexes:
    def test_unfinished_files_are_returned_when_they_are_due_longest_due_first(self, each_cache):
        for path, minutes in (("late", 3), ("first", 1), ("second", 2), ("not due", 5)):
            each_cache.save(entry(path, state=FileState.FAILED, due=RECEIVED + timedelta(minutes=minutes)))
        each_cache.save(FileEntry(source="b", path="other", state=FileState.FAILED, due=RECEIVED))
        now = RECEIVED + timedelta(minutes=3)
        assert [item.path for item in each_cache.due("a", now=now, limit=10)] == ["first", "second", "late"]
        assert [item.path for item in each_cache.due("a", now=now, limit=2)] == ["first", "second"]
        assert each_cache.due("a", now=RECEIVED, limit=10) == []

    @pytest.mark.parametrize("open_", [{"state": FileState.FAILED}, {"changed": ENTRY.changed}, {"lease": ENTRY.lease}])
    def test_a_file_is_due_while_it_is_unfinished_and_not_after_it(self, local, cache, open_):
        stored = entry("x", state=FileState.STORED, due=RECEIVED)
        unfinished = stored.model_copy(update=open_)
        cache.save(unfinished)
        assert cache.due("a", now=RECEIVED, limit=10) == [saved(unfinished)]
        cache.save(stored.model_copy(update={"revision": 1}))
        assert cache.due("a", now=RECEIVED, limit=10) == []
        assert local.items(TABLE, "due") == []

    def test_the_file_that_is_not_taken_for_longest_is_known_until_it_is_taken(self, local, cache):
        for path, minutes in (("newer", 2), ("older", 1)):
            since = RECEIVED + timedelta(minutes=minutes)
            cache.save(entry(path, state=FileState.FAILED, not_taken_since=since))
        assert cache.longest_not_taken("b") is None
        for path in ("older", "newer"):
            longest = cache.longest_not_taken("a")
            assert longest is not None
            assert longest.path == path
            cache.save(longest.model_copy(update={"state": FileState.STORED}))
        assert cache.longest_not_taken("a") is None
        assert local.items(TABLE, "not-taken") == []

    def test_the_files_of_a_date_are_those_with_its_pattern(self, each_cache):
        each_cache.save(entry("x-08.csv", dated_pattern="x-08*.csv", state=FileState.STORED, content=content_id("one")))
        each_cache.save(entry("x-08b.csv", dated_pattern="x-08*.csv", state=FileState.FAILED))
        each_cache.save(entry("x-09.csv", dated_pattern="x-09*.csv"))
        each_cache.save(FileEntry(source="b", path="x-08.csv", dated_pattern="x-08*.csv"))
        assert each_cache.files_of_date("a", "x-08*.csv") == [
            FileOfDate("x-08.csv", FileState.STORED, is_stored=True, is_taken=True),
            FileOfDate("x-08b.csv", FileState.FAILED, is_stored=False, is_taken=False),
        ]

    def test_an_index_is_read_to_its_end(self, local, cache, monkeypatch):
        """DynamoDB returns at most 1 MB in one response."""
        for number in range(7):
            cache.save(entry(f"{number}", dated_pattern="*", state=FileState.FAILED, due=RECEIVED))
        query = local.client.query

        def pages(**request: Any) -> Any:
            return query(**{**request, "Limit": min(2, request.get("Limit", 2))})

        monkeypatch.setattr(local.client, "query", pages)
        assert [item.path for item in cache.files_of_date("a", "*")] == list("0123456")
        assert len(cache.due("a", now=RECEIVED, limit=5)) == 5

    def test_contents_and_finished_files_are_in_no_index_of_unfinished_files(self, local, cache):
        cache.save(entry("x", state=FileState.STORED, due=RECEIVED, not_taken_since=RECEIVED), CONTENT)
        assert (local.items(TABLE, "due"), local.items(TABLE, "not-taken")) == ([], [])
        (dated,) = local.items(TABLE, "dated")
        assert set(dated) == {"dated", "source", "path", "state", "is_stored", "is_taken"}
        assert len(local.items(TABLE)) == 2
