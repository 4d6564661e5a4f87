"""Requests for several items of a table, and timestamps in keys."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import Throttled

# BatchGetItem accepts 100 keys. It returns some of them unprocessed when it is throttled, or after 16 MB.
_MAX_KEYS = 100


def sortable(at: datetime) -> str:
    """Return a string of fixed length that sorts like the timestamp."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def read_items(
    dynamodb: Any, table: str, keys: Sequence[dict[str, Any]], *, what: str, repeats: int = 10, **options: Any
) -> Iterator[dict[str, Any]]:
    """Yield those of the items that exist, in any order. An error says that it is about `what`.

    `options` are parameters of BatchGetItem for the table. Raises `CloudError`, and `Throttled` if DynamoDB leaves keys
    unprocessed so often.
    """
    for start in range(0, len(keys), _MAX_KEYS):
        request: Any = {"Keys": keys[start : start + _MAX_KEYS], **options}
        for repeat in range(repeats):
            with translated(f"read {what}"):
                response = dynamodb.batch_get_item(RequestItems={table: request})
            yield from response["Responses"].get(table, [])
            request = response.get("UnprocessedKeys", {}).get(table)
            if not request:
                break
            time.sleep(min(0.05 * 2**repeat, 2))
        else:
            raise Throttled(f"could not read {what}: DynamoDB leaves keys unprocessed")


def write_all(dynamodb: Any, puts: Sequence[dict[str, Any]]) -> None:
    """Write the items of these PutItem requests, all or none. Raises botocore's errors."""
    if len(puts) == 1:
        dynamodb.put_item(**puts[0])
    else:
        dynamodb.transact_write_items(TransactItems=[{"Put": put} for put in puts])
