"""Limits of DynamoDB that our records can reach, on the local cloud's DynamoDB and on AWS's DynamoDB Local."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.errors import CloudError
from slackwater.receiver.pull.file_cache import FileEntry, FileState
from tests.fakes_receiver import FILE_TABLE, RECEIVED
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

TABLE = "files"


@pytest.fixture
def dynamodb(each_dynamodb):
    with each_dynamodb.table(TABLE, **FILE_TABLE):
        each_dynamodb.calls.clear()
        yield each_dynamodb


@pytest.fixture
def cache(dynamodb):
    return DynamoFileCache(dynamodb.client, TABLE)


def entry(path, **values):
    return FileEntry(source="a", path=path, **values)


def put(dynamodb, **attributes):
    keys = {"source": {"S": "a"}, "path": {"S": "x"}}
    dynamodb.client.put_item(TableName=TABLE, Item={**keys, **attributes})


@pytest.mark.parametrize(("path", "fits"), [("x" * 1024, True), ("x" * 1025, False), ("é" * 513, False)])
def test_a_sort_key_has_at_most_1024_bytes(cache, path, fits):
    if fits:
        cache.save(entry(path))
        assert cache.entries("a", [path])
    else:
        with pytest.raises(CloudError, match="ValidationException"):
            cache.save(entry(path))


def test_a_key_of_an_index_has_at_most_2048_bytes(dynamodb, cache):
    longest = "x" * (2048 - len("a#"))
    cache.save(entry("1", dated_pattern=longest))
    assert [file.path for file in cache.files_of_date("a", longest)] == ["1"]
    for records in ([entry("2", dated_pattern=longest + "x")], [entry("3"), entry("4", dated_pattern="é" * 1024)]):
        with pytest.raises(CloudError, match="ValidationException"):
            cache.save(*records)
    assert len(dynamodb.items(TABLE)) == 1
    put(dynamodb, open_source={"S": "a"}, due={"S": "x" * 1024})
    with pytest.raises(ClientError, match="ValidationException"):
        put(dynamodb, open_source={"S": "a"}, due={"S": "x" * 1025})


@pytest.mark.parametrize("name", ["open_source", "dated"])
@pytest.mark.parametrize("value", [{"S": ""}, {"N": "1"}, {"NULL": True}])
def test_a_key_of_an_index_is_a_string_that_is_not_empty(dynamodb, name, value):
    with pytest.raises(ClientError, match="ValidationException"):
        put(dynamodb, due={"S": "x"}, **{name: value})


def test_a_transaction_has_at_most_100_records_and_each_of_them_once(cache):
    records = [entry(f"{number}") for number in range(101)]
    with pytest.raises(CloudError, match="ValidationException"):
        cache.save(*records)
    with pytest.raises(CloudError):
        cache.save(records[0], records[0])
    cache.save(*records[:100])
    assert len(cache.entries("a", [record.path for record in records])) == 100


def test_a_transaction_has_at_most_4_mb(cache):
    records = [entry(f"{number}", reason="x" * 390_000) for number in range(11)]
    with pytest.raises(CloudError, match=r"ValidationException.*4MB"):
        cache.save(*records)
    cache.save(*records[:10])
    assert len(cache.entries("a", [record.path for record in records])) == 10


def test_more_than_16_mb_of_records_are_read_in_several_responses(dynamodb, cache, monkeypatch):
    pauses = record_pauses(monkeypatch, "slackwater.aws.dynamodb.requests")
    records = [entry(f"{number:02}", reason="x" * 390_000) for number in range(44)]
    for start in range(0, len(records), 10):
        cache.save(*records[start : start + 10])
    read = cache.entries("a", [record.path for record in records])
    assert sorted(item.path for item in read) == [record.path for record in records]
    assert (dynamodb.calls.count("BatchGetItem"), pauses) == (2, [0.05])


def test_an_index_with_more_than_1_mb_is_read_to_its_end(dynamodb, cache):
    for number in range(7):
        cache.save(
            entry(f"{number}", reason="x" * 300_000, state=FileState.FAILED, due=RECEIVED, not_taken_since=RECEIVED)
        )
    dynamodb.calls.clear()
    assert len(list(cache.not_taken("a"))) == len(cache.due("a", now=RECEIVED, limit=7)) == 7
    assert dynamodb.calls.count("Query") >= 4
