from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.file_cache import DynamoFileCache
from slackwater.aws.partitions import PartitionRegistry
from slackwater.aws.tokens import TokenTable
from slackwater.errors import CloudError
from slackwater.receiver.file_cache import EntryChanged, FileEntry, Version
from slackwater.receiver.partition import Partition
from slackwater.receiver.tokens import token_hash

pytestmark = pytest.mark.unit


class Dynamo:
    """As much of DynamoDB as these tables ask for; conditions are judged by the attribute that they are about."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys
        self.items: dict[tuple[str, ...], dict] = {}
        self.reads = 0

    def _key(self, item: dict) -> tuple[str, ...]:
        return tuple(item[key]["S"] for key in self.keys)

    def put_item(self, *, Item, ConditionExpression, ExpressionAttributeValues=None, **_):  # noqa: N803
        there = self.items.get(self._key(Item), {})
        values = ExpressionAttributeValues or {}
        if "revision" in ConditionExpression:
            allowed = there.get("revision", {"N": "0"}) == values[":seen"]
        elif "#first" in ConditionExpression:
            allowed = not there or there["first"] in (values[":old"], values[":path"])
        else:
            allowed = not there
        if not allowed:
            raise ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}, "PutItem")
        self.items[self._key(Item)] = Item

    def get_item(self, *, Key, ConsistentRead, **_):  # noqa: N803
        assert ConsistentRead
        self.reads += 1
        found = self.items.get(self._key(Key))
        return {"Item": found} if found else {}

    def get_paginator(self, operation):
        assert operation == "query"
        return self

    def paginate(self, *, ExpressionAttributeValues, ConsistentRead, **_):  # noqa: N803
        assert ConsistentRead
        wanted = ExpressionAttributeValues[":source"]["S"]
        for key, item in sorted(self.items.items()):
            if key[0] == wanted:
                yield {"Items": [item]}


class Glue:
    """A table that keeps partitions; those of the hour 23 cannot be made."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], str] = {}
        self.calls: list[int] = []

    def batch_create_partition(self, *, DatabaseName, TableName, PartitionInputList):  # noqa: N803
        self.calls.append(len(PartitionInputList))
        errors = []
        for item in PartitionInputList:
            values = (DatabaseName, TableName, *item["Values"])
            code = "AlreadyExistsException" if values in self.known else "InternalServiceException"
            if values in self.known or item["Values"][1] == "23":
                errors.append({"PartitionValues": item["Values"], "ErrorDetail": {"ErrorCode": code}})
            else:
                self.known[values] = item["StorageDescriptor"]["Location"]
        return {"Errors": errors}


class TestTokens:
    def test_only_the_hash_is_kept(self):
        dynamo = Dynamo("token_hash")
        table = TokenTable(dynamo, "tokens")
        plain = table.create("acme", ["weather", "weather", "flights"])
        assert plain not in str(dynamo.items)
        assert list(dynamo.items) == [(token_hash(plain),)]
        found = table.find(plain)
        assert found is not None
        assert (found.partner, found.sources, found.revoked, found.expires_at) == (
            "acme",
            frozenset({"flights", "weather"}),
            False,
            None,
        )
        assert (found.allows("flights"), found.allows("other")) == (True, False)
        assert table.create("acme", ["*"]) != plain

    def test_no_such_token(self):
        assert TokenTable(Dynamo("token_hash"), "tokens").find("x") is None

    def test_expiry(self):
        table = TokenTable(Dynamo("token_hash"), "tokens")
        end = datetime(2030, 1, 1, tzinfo=UTC)
        found = table.find(table.create("acme", ["*"], expires_at=end))
        assert found is not None
        assert found.allows("anything")
        assert (found.valid(end - timedelta(seconds=1)), found.valid(end)) == (True, False)

    def test_a_revoked_token_works_a_minute_at_most(self):
        dynamo, now = Dynamo("token_hash"), [1000.0]
        table = TokenTable(dynamo, "tokens", clock=lambda: now[0])
        plain = table.create("acme", ["*"])
        assert table.find(plain)
        dynamo.items[token_hash(plain),]["revoked"] = {"BOOL": True}
        now[0] += 59
        assert not table.find(plain).revoked
        assert dynamo.reads == 1
        now[0] += 1
        assert table.find(plain).revoked


class TestFileCache:
    def test_an_entry_is_read_as_it_was_saved(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        version = Version(content_sha256="s", partitions=(Partition("2013-03-08", "05"),))
        saved = cache.save(FileEntry(source="a", path="x", version=version))
        assert saved.revision == 1
        assert cache.get("a", "x") == saved
        assert cache.get("a", "y") is None
        cache.save(FileEntry(source="b", path="x"))
        assert cache.entries("a") == [saved]

    def test_of_two_writers_the_second_is_refused(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        seen = cache.save(FileEntry(source="a", path="x"))
        cache.save(seen.model_copy(update={"rows": 1}))
        for late in (seen, FileEntry(source="a", path="x"), FileEntry(source="a", path="new", revision=1)):
            with pytest.raises(EntryChanged):
                cache.save(late)
        assert cache.get("a", "x").rows == 1

    def test_the_first_path_of_a_content_stays_the_first(self):
        cache = DynamoFileCache(Dynamo("source", "path"), "files")
        assert [cache.claim("a", "sha", path) for path in ("p", "q", "p")] == ["p", "p", "p"]
        assert cache.claim("b", "sha", "q") == "q"
        assert cache.claim("a", "sha", "q", instead_of="p") == "q"
        assert cache.claim("a", "sha", "p") == "q"
        assert cache.entries("a") == []


class TestPartitions:
    def test_they_are_registered_a_hundred_at_once_and_once(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        partitions = [Partition(f"2013-03-{day:02d}", f"{hour:02d}") for day in range(1, 11) for hour in range(23)]
        registry.register("weather", partitions)
        assert glue.calls == [100, 100, 30]
        assert len(glue.known) == 230
        where = glue.known["raw_db", "weather", "2013-03-01", "05"]
        assert where == "s3://raw/raw/source=weather/date=2013-03-01/hour=05/"
        registry.register("weather", partitions)
        assert len(glue.calls) == 3
        registry.register("flights", partitions[:1])
        assert glue.calls[3:] == [1]

    def test_those_that_exist_are_no_error(self):
        glue = Glue()
        for _ in range(2):
            registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
            registry.register("weather", [Partition("2013-03-01", "05")])
        assert glue.calls == [1, 1]

    def test_any_other_error_is_and_is_tried_again(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        for _ in range(2):
            with pytest.raises(CloudError, match=r"2013-03-01/23 of raw_db\.weather: InternalServiceException"):
                registry.register("weather", [Partition("2013-03-01", "23")])
        assert glue.calls == [1, 1]
