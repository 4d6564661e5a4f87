"""The file cache in DynamoDB: partition key `source`, sort key `path`.

Each content has an item too, with the partition key `<source>#contents` and its SHA-256 as sort key.
"""

from __future__ import annotations

from typing import Any, TypeVar

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.receiver.pull.file_cache import Content, EntryChanged, FileEntry

_Record = TypeVar("_Record", FileEntry, Content)


class DynamoFileCache:
    """`slackwater.receiver.pull.file_cache.FileCache` over DynamoDB; each record is JSON in the attribute `record`."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def entries(self, source: str) -> list[FileEntry]:
        """Return all files of the source (strongly consistent)."""
        # An entry that an eventually consistent read missed could own an object: the pull would delete it as unused.
        with translated(f"read the file cache of {source}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="#source = :source",
                ExpressionAttributeNames={"#source": "source"},
                ExpressionAttributeValues={":source": {"S": source}},
                ConsistentRead=True,
            )
            items = [item for page in pages for item in page["Items"]]
        return [FileEntry.model_validate_json(item["record"]["S"]) for item in items]

    def get(self, source: str, path: str) -> FileEntry | None:
        """Return one file, or None (strongly consistent)."""
        item = self._item(source, path)
        return FileEntry.model_validate_json(item["record"]["S"]) if item else None

    def save(self, entry: FileEntry) -> FileEntry:
        """Write the entry and return it with its new revision.

        Raises `EntryChanged` when the stored entry's revision is not `entry.revision`.
        """
        return self._save(entry, entry.source, entry.path, state={"S": entry.state})

    def content(self, source: str, content_sha256: str) -> Content | None:
        """Return one content, or None (strongly consistent)."""
        item = self._item(_contents_key(source), content_sha256)
        return Content.model_validate_json(item["record"]["S"]) if item else None

    def save_content(self, content: Content) -> Content:
        """Write the content and return it with its new revision. Raises `EntryChanged` as `save` does."""
        return self._save(content, _contents_key(content.source), content.content_sha256)

    def _item(self, source: str, path: str) -> Any:
        with translated(f"read the file cache of {source}: {path}"):
            response = self._dynamodb.get_item(TableName=self._table, Key=_key(source, path), ConsistentRead=True)
        return response.get("Item")

    def _save(self, record: _Record, source: str, path: str, **attributes: dict[str, str]) -> _Record:
        written = record.model_copy(update={"revision": record.revision + 1})
        item = {
            **_key(source, path),
            "revision": {"N": str(written.revision)},
            "record": {"S": written.model_dump_json()},
            **attributes,
        }
        with translated(f"write the file cache of {source}: {path}"):
            try:
                # Written only over the revision that was read. Revision 0 stands for an item that does not exist yet.
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="revision = :read OR attribute_not_exists(revision) AND :read = :new",
                    ExpressionAttributeValues={":read": {"N": str(record.revision)}, ":new": {"N": "0"}},
                )
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    raise EntryChanged(f"{source}: {path} was changed by another pull") from error
                raise
        return written


def _contents_key(source: str) -> str:
    """Return the partition key of a source's contents. No source's own key equals it: names have no `#`."""
    return f"{source}#contents"


def _key(source: str, path: str) -> dict[str, dict[str, str]]:
    return {"source": {"S": source}, "path": {"S": path}}
