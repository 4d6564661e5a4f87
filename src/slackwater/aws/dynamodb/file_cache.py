"""The file cache in DynamoDB: partition key `source`, sort key `path`.

Each content has an item too, with the partition key `<source>#contents` and its id as sort key. Three indexes hold
entries only: `due` and `not-taken` those of unfinished files, in order of time, and `dated` all, by date of the file.
So no request reads more items than its answer has, whatever the age of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from botocore.exceptions import ClientError
from pydantic import ValidationError

from slackwater.aws.dynamodb.requests import read_items, sortable, write_all
from slackwater.aws.failures import cancellation_reasons, code_of, translated
from slackwater.errors import ObjectInvalid
from slackwater.model import first_error
from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileEntry, FileOfDate, FileState

# Another writer is faster: codes of the errors of a single write, and reasons for cancelling a transaction.
_CHANGED = frozenset({"ConditionalCheckFailedException", "TransactionConflictException"})
_CHANGED_REASONS = frozenset({"ConditionalCheckFailed", "TransactionConflict"})
_Record = TypeVar("_Record", FileEntry, Content)


class DynamoFileCache:
    """`slackwater.receiver.pull.file_cache.FileCache` over DynamoDB; each record is JSON in the attribute `record`."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def entries(self, source: str, paths: Iterable[str]) -> list[FileEntry]:
        """Return those of the files that are recorded (strongly consistent)."""
        return [_read(FileEntry, item) for item in self._items(source, paths, source=source)]

    def contents(self, source: str, ids: Iterable[str]) -> list[Content]:
        """Return those of the contents that are recorded (strongly consistent)."""
        return [_read(Content, item) for item in self._items(_contents_key(source), ids, source=source)]

    def save(self, *records: FileEntry | Content) -> None:
        """Write all records, or none, with the next revision.

        Raises `EntryChanged` when the revision of a stored record is not that of the record.
        """
        puts = [self._put(record) for record in records]
        with translated(f"write the file cache of {records[0].source}"):
            try:
                write_all(self._dynamodb, puts)
            except ClientError as error:
                if code_of(error) in _CHANGED or cancellation_reasons(error) & _CHANGED_REASONS:
                    raise EntryChanged(f"{records[0].source}: another pull has changed the file cache") from error
                raise

    def due(self, source: str, *, now: datetime, limit: int) -> list[FileEntry]:
        """Return unfinished files that are due, those first that have been due for longest.

        The result may miss writes of the last seconds.
        """
        condition = "open_source = :source AND due <= :now"
        items = self._query("due", source, condition, {":source": source, ":now": sortable(now)}, limit=limit)
        return [_read(FileEntry, item) for item in items]

    def longest_not_taken(self, source: str) -> FileEntry | None:
        """Return the file that is not taken since the longest time, or None. May miss writes of the last seconds."""
        return next(self._not_taken(source, limit=1), None)

    def not_taken(self, source: str) -> Iterator[FileEntry]:
        """Yield the files that are not taken, those first that are not taken since the longest time.

        Pages are read as the caller needs them. The result may miss writes of the last seconds.
        """
        return self._not_taken(source)

    def files_of_date(self, source: str, dated_pattern: str) -> list[FileOfDate]:
        """Return the recorded files of one date. May miss writes of the last seconds."""
        value = _dated_key(source, dated_pattern)
        items = self._query("dated", source, "dated = :dated", {":dated": value})
        return [
            FileOfDate(
                item["path"]["S"],
                FileState(item["state"]["S"]),
                is_stored=item["is_stored"]["BOOL"],
                is_taken=item["is_taken"]["BOOL"],
            )
            for item in items
        ]

    def _not_taken(self, source: str, limit: int | None = None) -> Iterator[FileEntry]:
        items = self._query("not-taken", source, "not_taken_source = :source", {":source": source}, limit=limit)
        return (_read(FileEntry, item) for item in items)

    def _items(self, partition_key: str, sort_keys: Iterable[str], *, source: str) -> Iterator[dict[str, Any]]:
        keys = [_key(partition_key, path) for path in dict.fromkeys(sort_keys)]
        what = f"the file cache of {source}"
        return read_items(self._dynamodb, self._table, keys, what=what, ConsistentRead=True)

    def _query(
        self, index: str, source: str, condition: str, values: Mapping[str, str], limit: int | None = None
    ) -> Iterator[Any]:
        count = 0
        request: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": index,
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        }
        while limit is None or count < limit:
            with translated(f"read the file cache of {source}"):
                page = self._dynamodb.query(**request, **({"Limit": limit - count} if limit else {}))
            yield from page["Items"]
            count += len(page["Items"])
            if "LastEvaluatedKey" not in page:
                break
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _put(self, record: FileEntry | Content) -> dict[str, Any]:
        """Return the arguments of a PutItem that writes the record with its next revision."""
        if isinstance(record, FileEntry):
            key, indexed = _key(record.source, record.path), _indexed(record)
        else:
            key, indexed = _key(_contents_key(record.source), record.id), {}
        written = record.model_copy(update={"revision": record.revision + 1})
        return {
            "TableName": self._table,
            "Item": {
                **key,
                **indexed,
                "revision": {"N": str(written.revision)},
                "record": {"S": written.model_dump_json(exclude_defaults=True)},
            },
            # Written only over the revision that was read. Revision 0 stands for an item that does not exist yet.
            "ConditionExpression": "revision = :read OR attribute_not_exists(revision) AND :read = :new",
            "ExpressionAttributeValues": {":read": {"N": str(record.revision)}, ":new": {"N": "0"}},
        }


def _read(model: type[_Record], item: Mapping[str, Any]) -> _Record:
    """Return the record of an item. Raises `ObjectInvalid`: then a check holds the day of the file, and no other."""
    try:
        return model.model_validate_json(item["record"]["S"])
    except ValidationError as error:
        raise ObjectInvalid(
            f"the record of {item['path']['S']} in the file cache ({item['source']['S']}) is not valid: "
            f"{first_error(error)}"
        ) from error


def _indexed(entry: FileEntry) -> dict[str, Any]:
    """Return the attributes of an entry that are keys of an index, or projected into one."""
    attributes: dict[str, Any] = {
        "state": {"S": entry.state},
        "is_stored": {"BOOL": entry.content is not None},
        "is_taken": {"BOOL": entry.is_taken},
        "dated": {"S": _dated_key(entry.source, entry.dated_pattern)},
    }
    # An item without the key of an index is not in it.
    if entry.is_unfinished and entry.due:
        attributes |= {"open_source": {"S": entry.source}, "due": {"S": sortable(entry.due)}}
    if not entry.is_taken and entry.not_taken_since:
        since = sortable(entry.not_taken_since)
        attributes |= {"not_taken_source": {"S": entry.source}, "not_taken_since": {"S": since}}
    return attributes


def _dated_key(source: str, dated_pattern: str) -> str:
    return f"{source}#{dated_pattern}"


def _contents_key(source: str) -> str:
    """Return the partition key of a source's contents. No source's own key equals it: names have no `#`."""
    return f"{source}#contents"


def _key(source: str, path: str) -> dict[str, dict[str, str]]:
    return {"source": {"S": source}, "path": {"S": path}}
