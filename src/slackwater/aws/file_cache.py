"""The file cache in DynamoDB: partition key `source`, sort key `path`.

A content's first file is an item of its own, under the partition key `<source>#content` and the content's SHA-256.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.receiver.file_cache import EntryChanged, FileEntry


class DynamoFileCache:
    """`slackwater.receiver.file_cache.FileCache` over DynamoDB; an entry is kept as JSON in the attribute `record`."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def entries(self, source: str) -> list[FileEntry]:
        """Return all files of the source, as they are now."""
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
        """Return one file, as it is now."""
        with translated(f"read the file cache of {source}: {path}"):
            answer = self._dynamodb.get_item(TableName=self._table, Key=_key(source, path), ConsistentRead=True)
        item = answer.get("Item")
        return FileEntry.model_validate_json(item["record"]["S"]) if item else None

    def save(self, entry: FileEntry) -> FileEntry:
        """Write the entry and return it with its new revision.

        Raises `EntryChanged` when the one that is kept does not have `entry.revision`.
        """
        written = entry.model_copy(update={"revision": entry.revision + 1})
        item = {
            **_key(entry.source, entry.path),
            "revision": {"N": str(written.revision)},
            "state": {"S": written.state},
            "record": {"S": written.model_dump_json()},
        }
        with translated(f"write the file cache of {entry.source}: {entry.path}"):
            try:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="revision = :seen OR attribute_not_exists(revision) AND :seen = :never",
                    ExpressionAttributeValues={":seen": {"N": str(entry.revision)}, ":never": {"N": "0"}},
                )
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    raise EntryChanged(f"{entry.source}: {entry.path} was changed by another pull") from error
                raise
        return written

    def claim(self, source: str, content_sha256: str, path: str, *, instead_of: str | None = None) -> str:
        """Make `path` the first file of that content, unless there is one other than `instead_of`; return the first."""
        key = _key(f"{source}#content", content_sha256)
        with translated(f"claim a content for {source}: {path}"):
            try:
                self._dynamodb.put_item(
                    TableName=self._table,
                    Item={**key, "first": {"S": path}},
                    ConditionExpression="attribute_not_exists(#first) OR #first = :old OR #first = :path",
                    ExpressionAttributeNames={"#first": "first"},
                    ExpressionAttributeValues={":old": {"S": instead_of or path}, ":path": {"S": path}},
                )
            except ClientError as error:
                if code_of(error) != "ConditionalCheckFailedException":
                    raise
                answer = self._dynamodb.get_item(TableName=self._table, Key=key, ConsistentRead=True)
                return str(answer["Item"]["first"]["S"])
        return path


def _key(source: str, path: str) -> dict[str, dict[str, str]]:
    return {"source": {"S": source}, "path": {"S": path}}
