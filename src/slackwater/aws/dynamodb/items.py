"""What the parts of the run table share. The partition key is `pipeline`, the sort key `item`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from slackwater.aws.dynamodb.requests import sortable
from slackwater.aws.failures import translated

# The character after `#`, so behind all items whose key goes on with `#`.
AFTER_SEPARATOR = "$"


class RunTableItems:
    """The items of pipelines in a table of runs."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def _item(self, pipeline: str, item: str) -> dict[str, Any] | None:
        """Return the attributes of an item, or None."""
        with translated(f"read {item} of {pipeline}"):
            response = self._dynamodb.get_item(TableName=self._table, Key=item_key(pipeline, item), ConsistentRead=True)
        attributes: dict[str, Any] | None = response.get("Item")
        return attributes

    def _record(self, pipeline: str, item: str) -> str | None:
        """Return the JSON in the attribute `record` of an item, or None."""
        attributes = self._item(pipeline, item)
        return str(attributes["record"]["S"]) if attributes else None

    def _between(self, what: str, pipeline: str, first: str, last: str, **options: Any) -> Iterator[dict[str, Any]]:
        """Yield the items with the keys from `first` to `last`, in order. An error says that it is about `what`.

        `options` are parameters of Query. The reads are consistent unless they say otherwise.
        """
        with translated(f"read {what}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pipeline = :pipeline AND #item BETWEEN :first AND :last",
                ExpressionAttributeNames={"#item": "item"},
                ExpressionAttributeValues={":pipeline": {"S": pipeline}, ":first": {"S": first}, ":last": {"S": last}},
                **{"ConsistentRead": True, **options},
            )
            for page in pages:
                yield from page["Items"]

    def _if_last(self, pipeline: str, item: str, condition: str, at: datetime) -> dict[str, Any]:
        """Return the arguments of a write of an item if the condition about `#last` and `:at` holds.

        `last` is an instant as `sortable` writes it.
        """
        return {
            "TableName": self._table,
            "Key": item_key(pipeline, item),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {"#last": "last"},
            "ExpressionAttributeValues": {":at": {"S": sortable(at)}},
        }


def item_key(pipeline: str, item: str) -> dict[str, Any]:
    """Return the primary key of an item."""
    return {"pipeline": {"S": pipeline}, "item": {"S": item}}
