"""Reads and writes of the state table that its parts share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import Throttled
from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, KEPT, Histogram

# BatchWriteItem accepts 25 puts. It returns some of them unprocessed when it is throttled.
_MAX_PUTS = 25
_REPEATS = 10
_LAST = datetime(9000, 1, 1, tzinfo=UTC)
THREADS = 16
"""Hours that are read, or groups of items that are written, at the same time."""


class StateItems:
    """The items of a state table."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def _items(
        self, key: str, first: str, last: str, *, what: str, is_consistent: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Yield the items of a partition key whose sort keys are from `first` to `last`, in order."""
        with translated(f"read {what}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
                ExpressionAttributeValues={":pk": {"S": key}, ":first": {"S": first}, ":last": {"S": last}},
                ConsistentRead=is_consistent,
            )
            for page in pages:
                yield from page["Items"]

    def _put_all(self, what: str, items: Sequence[dict[str, Any]]) -> None:
        groups = [items[start : start + _MAX_PUTS] for start in range(0, len(items), _MAX_PUTS)]
        if len(groups) <= 1:
            # Most calls: a pool costs more than the request takes to prepare.
            for group in groups:
                self._put_group(what, group)
            return
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda group: self._put_group(what, group), groups))  # `list` raises the first error

    def _put_group(self, what: str, items: Sequence[dict[str, Any]]) -> None:
        request: Any = [{"PutRequest": {"Item": item}} for item in items]
        for repeat in range(_REPEATS):
            with translated(what):
                response = self._dynamodb.batch_write_item(RequestItems={self._table: request})
            request = response.get("UnprocessedItems", {}).get(self._table)
            if not request:
                return
            time.sleep(min(0.05 * 2**repeat, 2))
        raise Throttled(f"could not {what}: DynamoDB leaves items unprocessed")


def item(pk: str, sk: str, *, expires: datetime, **attributes: Any) -> dict[str, Any]:
    """Return an item that DynamoDB deletes `KEPT` after the hour of `expires`: the same for the same fact."""
    # An event may be of the year 9999.
    at = min(expires, _LAST) + HOUR + KEPT
    return {
        "pk": {"S": pk},
        "sk": {"S": sk},
        "expires": {"N": str(int(at.timestamp()))},
        **attributes,
    }


def hour_key(source: str, hour: datetime) -> str:
    """Return the partition key of the facts about an hour of a source."""
    return f"{source}#{hour.astimezone(UTC).isoformat()[:13]}"


def bins_attribute(bins: Histogram) -> dict[str, Any]:
    """Return a histogram as an attribute; without values, it is one list."""
    lists = {key: {"L": [{"N": str(count)} for count in counts]} for key, counts in bins.items()}
    return lists[ALL] if lists.keys() == {ALL} else {"M": lists}


def bins_of(attribute: dict[str, Any]) -> Histogram:
    """Return the histogram of a `bins_attribute`."""
    lists = attribute.get("M", {ALL: attribute})
    return {key: tuple(int(count["N"]) for count in counts["L"]) for key, counts in lists.items()}


def instant_key(instant: datetime) -> str:
    """Return the instant as a part of a key."""
    # Always with microseconds, so that keys sort by time.
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def parsed(value: str) -> datetime:
    """Return the instant of an `instant_key`."""
    return datetime.fromisoformat(value)
