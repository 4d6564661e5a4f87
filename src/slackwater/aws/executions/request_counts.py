"""Counts the requests of this process to S3 and DynamoDB that AWS bills, from the responses that botocore receives."""

from __future__ import annotations

import threading
from collections import Counter
from http import HTTPStatus
from typing import Any

from slackwater.runs.costs.cost import RequestCounts

_S3_PUTS = frozenset(
    {
        *("PutObject", "CopyObject", "CreateMultipartUpload"),
        *("UploadPart", "UploadPartCopy", "CompleteMultipartUpload"),
    }
)
_S3_LISTS = frozenset({"ListObjectsV2", "ListObjectVersions", "ListMultipartUploads", "ListParts"})
_S3_FREE = frozenset({"DeleteObject", "DeleteObjects", "AbortMultipartUpload"})
_DYNAMODB_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"})


class RequestCounter:
    """Counts the billed requests of all clients of one session. A repeated request counts again, as AWS bills it.

    Not counted: requests without a response, errors of the server, and the units of a DynamoDB request that failed.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        # The threads of a function share its clients.
        self._lock = threading.Lock()

    def register(self, events: Any) -> None:
        """Count from now on. `events` are those of a session that has created no client yet."""
        events.register("before-parameter-build.dynamodb", self._ask_for_capacity)
        for service in ("s3", "dynamodb"):
            events.register(f"response-received.{service}", self._received)

    def reset(self) -> None:
        """Begin at 0 again: a process of a function handles one call at a time."""
        with self._lock:
            self._counts.clear()

    def counts(self) -> RequestCounts:
        """Return the requests since the last reset."""
        with self._lock:
            return RequestCounts.model_validate(dict(self._counts))

    def _ask_for_capacity(self, *, params: dict[str, Any], model: Any, **_: Any) -> None:
        """Have DynamoDB state the units that it bills for a request."""
        if "ReturnConsumedCapacity" in model.input_shape.members:
            params.setdefault("ReturnConsumedCapacity", "TOTAL")

    def _received(
        self, *, event_name: str, response_dict: dict[str, Any] | None, parsed_response: Any, **_: Any
    ) -> None:
        service, operation = event_name.split(".")[1:]
        if response_dict is None or response_dict["status_code"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        if service == "s3":
            name, amount = _s3_kind(operation), 1.0
        else:
            name = "dynamodb_reads" if operation in _DYNAMODB_READS else "dynamodb_writes"
            amount = _units(parsed_response.get("ConsumedCapacity", ()))
        with self._lock:
            self._counts.update({name: amount} if name else {})


def _s3_kind(operation: str) -> str:
    """Return the field of `RequestCounts` that counts an operation of S3; empty for a free one."""
    if operation in _S3_FREE:
        return ""
    return "s3_puts" if operation in _S3_PUTS else "s3_lists" if operation in _S3_LISTS else "s3_gets"


def _units(capacity: Any) -> float:
    """Return the units that a request has consumed, of one table or of several."""
    tables = [capacity] if isinstance(capacity, dict) else capacity
    return sum(float(table.get("CapacityUnits", 0)) for table in tables)


REQUESTS = RequestCounter()
"""Of the session that `slackwater.aws.clients.default_session` returns."""
