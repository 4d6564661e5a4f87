"""Fakes of the clients of DynamoDB, S3 and Glue in memory, with the limits that AWS documents, and their requests."""

# ruff: noqa: N803 - the names of the arguments are boto3's
from __future__ import annotations

import hashlib
import io
import json
import marshal
import threading
from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from random import Random
from typing import Any, BinaryIO, NamedTuple

from botocore.exceptions import ClientError

from slackwater.receiver.pull.file_cache import FileCounts, FileState
from tests.fakes_receiver import FILE_TABLE, Clock

TABLE = "files"
KB = 1024
MAX_ITEM, MAX_TRANSACTION, MAX_BATCH, MAX_PAGE = 400 * KB, 4 * KB * KB, 16 * KB * KB, KB * KB
MAX_KEYS, MAX_ACTIONS = 100, 100
MAX_LISTED, MAX_DELETED = 1_000, 1_000
# The only condition that the file cache uses.
_CONDITION = "revision = :read OR attribute_not_exists(revision) AND :read = :new"
_INDEX_LAG = timedelta(seconds=1)

Item = dict[str, dict[str, Any]]
Key = tuple[str, str]


def seeded(seed: int) -> Random:
    """Return a generator of random numbers that are the same in each run."""
    return Random(seed)  # noqa: S311


class Faults:
    """When services fail: outages, and throttling of a share of the requests."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock, self.random = clock, random
        self.throttled = 0.0
        self.outages: dict[str, datetime] = {}
        """The end of the outage of each service."""

    def check(self, service: str, operation: str) -> None:
        """Raise an error of the service if it is down, or throttles this request."""
        if self.clock() < self.outages.get(service, self.clock()):
            raise error(operation, "ServiceUnavailable" if service == "s3" else "InternalServerError")
        if self.throttled and self.random.random() < self.throttled:
            if operation == "TransactWriteItems":
                raise cancelled(["ThrottlingError", "None"])
            raise error(operation, "SlowDown" if service == "s3" else "ThrottlingException")


class Meter:
    """What requests have cost since the last `reset`."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.largest = 0
        """Bytes of the largest answer."""

    def reset(self) -> None:
        self.counts.clear()
        self.largest = 0

    def add(self, *, answered: int = 0, **counts: float) -> None:
        for name, number in counts.items():
            self.counts[name] += number
        self.largest = max(self.largest, answered)

    @property
    def requests(self) -> int:
        """Requests to DynamoDB and S3."""
        return int(self.counts["dynamodb"] + self.counts["s3"])


def error(operation: str, code: str, **more: Any) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}, **more}, operation)


def cancelled(reasons: Sequence[str]) -> ClientError:
    return error(
        "TransactWriteItems", "TransactionCanceledException", CancellationReasons=[{"Code": name} for name in reasons]
    )


def size_of(item: Item) -> int:
    """Return the bytes of an item as DynamoDB counts them: names and values."""
    sizes = (len(name) + (1 if "BOOL" in value else len(*value.values())) for name, value in item.items())
    return sum(sizes)


class StoredItem(NamedTuple):
    size: int
    data: bytes
    """The item, compact: a year has some 100 thousand of them."""
    revision: str
    indexes: tuple[tuple[str, str, str], ...]
    """Index, partition key and sort key for each index that has the item."""

    @property
    def item(self) -> Item:
        return _item(self.data)


@lru_cache(maxsize=10_000)
def _item(data: bytes) -> Item:
    item: Item = marshal.loads(data)  # noqa: S302 - written by this process
    return item


class _Index:
    """The items of a global secondary index, which follow the table's with a delay."""

    def __init__(self) -> None:
        self.keys: dict[str, list[tuple[str, Key]]] = {}
        """Sort key and key of the table, in order, by partition key."""
        self.items: dict[Key, StoredItem] = {}

    def remove(self, partition: str, sort: str, key: Key) -> None:
        self.keys[partition].remove((sort, key))
        del self.items[key]

    def add(self, partition: str, sort: str, key: Key, stored: StoredItem) -> None:
        insort(self.keys.setdefault(partition, []), (sort, key))
        self.items[key] = stored


class MemoryDynamoDB:
    """A client of DynamoDB with one table: the file cache's."""

    def __init__(self, clock: Clock, random: Random, faults: Faults, meter: Meter) -> None:
        self.clock, self.random, self.faults, self.meter = clock, random, faults, meter
        self.table: dict[Key, StoredItem] = {}
        self.indexes = {index["IndexName"]: _Index() for index in FILE_TABLE["GlobalSecondaryIndexes"]}
        self.key_names = {
            index["IndexName"]: [key["AttributeName"] for key in index["KeySchema"]]
            for index in FILE_TABLE["GlobalSecondaryIndexes"]
        }
        self.projected = {
            index["IndexName"]: {"source", "path", *self.key_names[index["IndexName"]], *names}
            for index in FILE_TABLE["GlobalSecondaryIndexes"]
            if (names := index["Projection"].get("NonKeyAttributes"))
        }
        """The attributes that an index holds, if not all."""
        self.committed = FileCounts()
        """What transactions have committed: files with state, rows and rejected rows of their entries."""
        self._delayed = deque[tuple[datetime, Key, StoredItem | None, StoredItem]]()
        self._lock = threading.RLock()

    def stored(self, key: Key) -> StoredItem | None:
        """Return the item of a key, or None."""
        return self.table.get(key)

    def put_item(
        self, *, TableName: str, Item: Item, ConditionExpression: str, ExpressionAttributeValues: Mapping[str, Any]
    ) -> None:
        with self._lock:
            self._request("PutItem")
            put = self._checked(TableName, Item, ConditionExpression, ExpressionAttributeValues)
            if put is None:
                raise error("PutItem", "ConditionalCheckFailedException")
            self._write(put, factor=1)

    def transact_write_items(self, *, TransactItems: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            self._request("TransactWriteItems")
            puts = [self._checked(*(action["Put"][name] for name in _PUT)) for action in TransactItems]
            keys = {_key(action["Put"]["Item"]) for action in TransactItems}
            size = sum(put[2].size for put in puts if put)
            if len(puts) > MAX_ACTIONS or len(keys) < len(puts) or size > MAX_TRANSACTION:
                raise error("TransactWriteItems", "ValidationException")
            if None in puts:
                raise cancelled(["None" if put else "ConditionalCheckFailed" for put in puts])
            for put in puts:
                assert put is not None
                self._write(put, factor=2)
            # Of a commit, the entry of the file comes first: no other transaction has one.
            entry = json.loads(TransactItems[0]["Put"]["Item"]["record"]["S"])
            if entry.get("state") == FileState.STORED:
                counts = {name: entry.get(name, 0) for name in ("rows", "rejected")}
                self.committed = self.committed.plus(FileCounts(files=1, **counts))

    def batch_get_item(self, *, RequestItems: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        with self._lock:
            self._request("BatchGetItem")
            ((table, request),) = RequestItems.items()
            keys = [(_key(key), key) for key in request["Keys"]]
            if table != TABLE or len(keys) > MAX_KEYS or len({key for key, _ in keys}) < len(keys):
                raise error("BatchGetItem", "ValidationException")
            items, unprocessed, size, units = list[Item](), list[Any](), 0, 0
            allowed = self.random.randrange(len(keys)) if self.random.random() < self.faults.throttled else len(keys)
            for number, (key, sent) in enumerate(keys):
                stored = self.stored(key)
                if number >= allowed or (stored and size + stored.size > MAX_BATCH):
                    unprocessed.append(sent)
                    continue
                units += max(1, ceil(stored.size / (4 * KB))) if stored else 1
                if stored:
                    items.append(stored.item)
                    size += stored.size
            self.meter.add(answered=size, items=len(items), read_units=units)
            answer: dict[str, Any] = {"Responses": {TABLE: items}}
            if unprocessed:
                answer["UnprocessedKeys"] = {TABLE: {**request, "Keys": unprocessed}}
            return answer

    def query(
        self,
        *,
        TableName: str,
        IndexName: str,
        KeyConditionExpression: str,
        ExpressionAttributeValues: Mapping[str, Mapping[str, str]],
        Limit: int | None = None,
        ExclusiveStartKey: Any = None,
    ) -> dict[str, Any]:
        with self._lock:
            self._request("Query")
            self._update_indexes()
            partition_name, sort_name = self.key_names[IndexName]
            values = [value["S"] for value in ExpressionAttributeValues.values()]
            names = [words.split() for words in KeyConditionExpression.split(" AND ")]
            assert [name for name, *_ in names] == [partition_name, sort_name][: len(values)]
            assert [sign for _, sign, _ in names] == ["=", "<="][: len(values)]
            last = values[1] if len(values) > 1 else None
            items, size, ended = list[Item](), 0, True
            for stored in self._after(IndexName, values[0], last, ExclusiveStartKey):
                item, projected = stored.item, self.projected.get(IndexName)
                if projected:
                    item = {name: value for name, value in item.items() if name in projected}
                item_size = size_of(item) if projected else stored.size
                if size + item_size > MAX_PAGE or (Limit is not None and len(items) == Limit):
                    ended = False
                    break
                items.append(item)
                size += item_size
            self.meter.add(answered=size, items=len(items), read_units=max(1, ceil(size / (4 * KB))) / 2)
            page: dict[str, Any] = {"Items": items}
            if not ended:
                page["LastEvaluatedKey"] = {
                    name: items[-1][name] for name in ("source", "path", partition_name, sort_name)
                }
            return page

    def _after(self, index: str, partition: str, last: str | None, start: Any) -> Iterator[StoredItem]:
        keys = self.indexes[index].keys.get(partition, [])
        position = bisect_right(keys, (start[self.key_names[index][1]]["S"], _key(start))) if start else 0
        for sort, key in keys[position:]:
            if last is not None and sort > last:
                break
            yield self.indexes[index].items[key]

    def _request(self, operation: str) -> None:
        self.meter.add(dynamodb=1)
        self.faults.check("dynamodb", operation)

    def _checked(
        self, table: str, item: Item, condition: str, values: Mapping[str, Any]
    ) -> tuple[Key, StoredItem | None, StoredItem] | None:
        """Return key, former item and new item of a put; None when its condition fails."""
        assert (table, condition) == (TABLE, _CONDITION)
        key, read, after = _key(item), values[":read"]["N"], self.compact(item)
        if after.size > MAX_ITEM:
            raise error("PutItem", "ValidationException")
        before = self.stored(key)
        if (before.revision if before else values[":new"]["N"]) != read:
            return None
        return key, before, after

    def compact(self, item: Item) -> StoredItem:
        """Return an item as the table keeps it."""
        indexes = tuple(
            (name, item[partition]["S"], item[sort]["S"])
            for name, (partition, sort) in self.key_names.items()
            if partition in item and sort in item
        )
        # `str`: a member of an enumeration is sent as the string that it is.
        plain = {
            name: {kind: str(of) if isinstance(of, str) else of for kind, of in value.items()}
            for name, value in item.items()
        }
        return StoredItem(size_of(item), marshal.dumps(plain), item["revision"]["N"], indexes)

    def _write(self, put: tuple[Key, StoredItem | None, StoredItem], *, factor: int) -> None:
        key, before, after = put
        self.table[key] = after
        self._delayed.append((self.clock(), key, before, after))
        units = factor * ceil(max(after.size, before.size if before else 0) / KB)
        # An index writes the new item, and deletes the former one if its key differs.
        units += sum(ceil(after.size / KB) for _ in after.indexes)
        units += sum(ceil(before.size / KB) for index in before.indexes if index not in after.indexes) if before else 0
        self.meter.add(write_units=units)

    def _update_indexes(self) -> None:
        """Let the indexes follow the table: all writes older than a second, and some of the later ones."""
        until = self.clock() - _INDEX_LAG * self.random.choice([0, 1])
        while self._delayed and self._delayed[0][0] <= until:
            _, key, before, after = self._delayed.popleft()
            for name, partition, sort in before.indexes if before else ():
                self.indexes[name].remove(partition, sort, key)
            for name, partition, sort in after.indexes:
                self.indexes[name].add(partition, sort, key, after)


_PUT = ("TableName", "Item", "ConditionExpression", "ExpressionAttributeValues")


def _key(item: Mapping[str, Any]) -> Key:
    return item["source"]["S"], item["path"]["S"]


class S3Object(NamedTuple):
    """An object of the fake S3."""

    body: bytes | None
    """None for an object whose body nothing reads."""
    size: int
    etag: str
    modified: datetime
    metadata: Mapping[str, str]


class MemoryS3:
    """A client of S3. Objects under `landing/` are counted, and their bodies are dropped."""

    def __init__(self, clock: Clock, faults: Faults, meter: Meter) -> None:
        self.clock, self.faults, self.meter = clock, faults, meter
        self.folders: dict[str, dict[str, S3Object]] = {}
        """Objects by folder and name: a listing of a day must not take longer when there are more days."""
        self.landed, self.landed_bytes = set[bytes](), 0
        self.stored_bytes = 0
        self._lock = threading.RLock()

    def put_object(
        self, *, Bucket: str, Key: str, Body: bytes | BinaryIO, Metadata: Mapping[str, str], IfNoneMatch: str = ""
    ) -> None:
        body = Body if isinstance(Body, bytes) else Body.read()
        with self._lock:
            self._request("PutObject")
            if Key.startswith("landing/"):
                digest = hashlib.sha256(Key.encode()).digest()[:12]
                is_known = digest in self.landed
                self.landed.add(digest)
                self.landed_bytes += 0 if is_known else len(body)
            else:
                folder, _, name = Key.rpartition("/")
                is_known = name in self.folders.get(folder, {})
            if is_known and IfNoneMatch == "*":
                raise error("PutObject", "PreconditionFailed")
            if not Key.startswith("landing/"):
                etag = hashlib.sha256(body).hexdigest()[:16]
                self.folders.setdefault(folder, {})[name] = S3Object(body, len(body), etag, self.clock(), Metadata)
                self.stored_bytes += len(body)

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        with self._lock:
            self._request("GetObject")
            stored = self._object("GetObject", Key, "NoSuchKey")
        assert stored.body is not None
        return {"Body": io.BytesIO(stored.body)}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        with self._lock:
            self._request("HeadObject")
            return {"Metadata": self._object("HeadObject", Key, "404").metadata}

    def delete_objects(self, *, Bucket: str, Delete: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._request("DeleteObjects")
            if len(Delete["Objects"]) > MAX_DELETED:
                raise error("DeleteObjects", "MalformedXML")
            for entry in Delete["Objects"]:
                folder, _, name = entry["Key"].rpartition("/")
                removed = self.folders.get(folder, {}).pop(name, None)
                self.stored_bytes -= removed.size if removed else 0
        return {}

    def get_paginator(self, operation: str) -> MemoryS3:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, StartAfter: str = "") -> Iterator[dict[str, Any]]:
        keys = [key for key in self.keys(Prefix) if key > StartAfter]
        for start in range(0, max(1, len(keys)), MAX_LISTED):
            with self._lock:
                self._request("ListObjectsV2")
            self.meter.add(listed=len(keys[start : start + MAX_LISTED]))
            yield {
                "Contents": [
                    {"Key": key, "Size": stored.size, "ETag": f'"{stored.etag}"', "LastModified": stored.modified}
                    for key in keys[start : start + MAX_LISTED]
                    if (stored := self.find(key))
                ]
            }

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with the prefix, in order; it costs no request."""
        for folder in sorted(self.folders):
            if f"{folder}/".startswith(prefix) or prefix.startswith(f"{folder}/"):
                for name in sorted(self.folders[folder]):
                    if f"{folder}/{name}".startswith(prefix):
                        yield f"{folder}/{name}"

    def find(self, key: str) -> S3Object | None:
        """Return an object without a request, or None."""
        folder, _, name = key.rpartition("/")
        return self.folders.get(folder, {}).get(name)

    def _object(self, operation: str, key: str, code: str) -> S3Object:
        stored = self.find(key)
        if stored is None:
            raise error(operation, code)
        return stored

    def _request(self, operation: str) -> None:
        self.meter.add(s3=1)
        self.faults.check("s3", operation)
