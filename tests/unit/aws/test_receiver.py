from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.partitions import PartitionRegistry
from slackwater.errors import CloudError
from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileEntry, FileVersion, Lease
from slackwater.sources.partitions import Partition

pytestmark = pytest.mark.unit


class Dynamo:
    """The DynamoDB operations that the file cache uses; every condition compares the revision."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys
        self.items: dict[tuple[str, ...], dict] = {}

    def _key(self, item: dict) -> tuple[str, ...]:
        return tuple(item[key]["S"] for key in self.keys)

    def put_item(self, *, Item, ConditionExpression, ExpressionAttributeValues, **_):  # noqa: N803
        stored = self.items.get(self._key(Item), {})
        assert "revision" in ConditionExpression
        if stored.get("revision", {"N": "0"}) != ExpressionAttributeValues[":read"]:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}, "PutItem")
        self.items[self._key(Item)] = Item

    def get_item(self, *, Key, ConsistentRead, **_):  # noqa: N803
        assert ConsistentRead
        item = self.items.get(self._key(Key))
        return {"Item": item} if item else {}

    def get_paginator(self, operation):
        assert operation == "query"
        return self

    def paginate(self, *, ExpressionAttributeValues, ConsistentRead, **_):  # noqa: N803
        assert ConsistentRead
        source = ExpressionAttributeValues[":source"]["S"]
        for key, item in sorted(self.items.items()):
            if key[0] == source:
                yield {"Items": [item]}


class Glue:
    """A table that keeps partitions; those of hour 23 cannot be created."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, ...], str] = {}
        self.calls: list[int] = []

    def batch_create_partition(self, *, DatabaseName, TableName, PartitionInputList):  # noqa: N803
        self.calls.append(len(PartitionInputList))
        errors = []
        for item in PartitionInputList:
            values = (DatabaseName, TableName, *item["Values"])
            code = "AlreadyExistsException" if values in self.partitions else "InternalServiceException"
            if values in self.partitions or item["Values"][1] == "23":
                errors.append({"PartitionValues": item["Values"], "ErrorDetail": {"ErrorCode": code}})
            else:
                self.partitions[values] = item["StorageDescriptor"]["Location"]
        return {"Errors": errors}


class TestFileCache:
    def test_an_entry_is_read_as_it_was_saved(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        version = FileVersion(content_sha256="s", partitions=(Partition("2013-03-08", "05"),))
        saved = cache.save(FileEntry(source="a", path="x", version=version))
        assert saved.revision == 1
        assert cache.get("a", "x") == saved
        assert cache.get("a", "y") is None
        cache.save(FileEntry(source="b", path="x"))
        assert cache.entries("a") == [saved]

    def test_the_second_of_two_concurrent_writes_is_refused(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        seen = cache.save(FileEntry(source="a", path="x"))
        cache.save(seen.model_copy(update={"rows": 1}))
        for late in (seen, FileEntry(source="a", path="x"), FileEntry(source="a", path="new", revision=1)):
            with pytest.raises(EntryChanged):
                cache.save(late)
        assert cache.get("a", "x").rows == 1

    def test_contents_are_stored_apart_from_entries(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        new = Content(source="a", content_sha256="sha", received_at=datetime(2013, 3, 8, tzinfo=UTC), first_path="x")
        saved = cache.save_content(new)
        assert (cache.content("a", "sha"), saved.revision) == (saved, 1)
        assert (cache.content("b", "sha"), cache.content("a", "x"), cache.entries("a")) == (None, None, [])
        with pytest.raises(EntryChanged):
            cache.save_content(new)
        changed = cache.save_content(saved.model_copy(update={"sweeps": (Lease(owner="x", until=new.received_at),)}))
        assert cache.content("a", "sha") == changed


class TestPartitions:
    def test_partitions_are_registered_once_and_in_batches_of_100(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        partitions = [Partition(f"2013-03-{day:02d}", f"{hour:02d}") for day in range(1, 11) for hour in range(23)]
        registry.register("weather", partitions)
        assert glue.calls == [100, 100, 30]
        assert len(glue.partitions) == 230
        location = glue.partitions["raw_db", "weather", "2013-03-01", "05"]
        assert location == "s3://raw/raw/source=weather/date=2013-03-01/hour=05/"
        registry.register("weather", partitions)
        assert len(glue.calls) == 3
        registry.register("flights", partitions[:1])
        assert glue.calls[3:] == [1]

    def test_existing_partitions_are_accepted(self):
        glue = Glue()
        for _ in range(2):
            registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
            registry.register("weather", [Partition("2013-03-01", "05")])
        assert glue.calls == [1, 1]

    def test_a_failed_partition_is_reported_and_registered_again_next_time(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        for _ in range(2):
            with pytest.raises(CloudError, match=r"2013-03-01/23 of raw_db\.weather: InternalServiceException"):
                registry.register("weather", [Partition("2013-03-01", "23")])
        assert glue.calls == [1, 1]
