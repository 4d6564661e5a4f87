"""DynamoDB without a server: botocore validates the requests, and the local cloud's code handles them."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from ministack.services import dynamodb


class _Raw(io.BytesIO):
    """A body as botocore reads it from urllib3."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


class LocalDynamoDB:
    """A client in place of boto3's. Each call ends before the next one begins, as in the local cloud."""

    def __init__(self, *, attempts: int = 1) -> None:
        self.client = boto3.client(
            "dynamodb",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": attempts}),
        )
        self.client.meta.events.register("before-send.dynamodb", self._answer)
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        """Called before each call with the operation's name; an exception from it prevents the call."""
        self.after: Callable[[str], None] = lambda _: None
        """Called after each call; an exception from it loses the response."""
        self._lock = threading.RLock()

    @contextmanager
    def table(self, name: str, partition_key: str | None = None, **definition: Any) -> Iterator[str]:
        """Create a table that exists until the block ends.

        It has a partition key only, or the keys and indexes of `definition`, as CreateTable takes them.
        """
        if partition_key:
            definition["KeySchema"] = [{"AttributeName": partition_key, "KeyType": "HASH"}]
            definition["AttributeDefinitions"] = [{"AttributeName": partition_key, "AttributeType": "S"}]
        self.client.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **definition)
        try:
            yield name
        finally:
            self.before = self.after = lambda _: None
            self.client.delete_table(TableName=name)

    def items(self, table: str, index: str | None = None) -> list[dict[str, Any]]:
        """Return all items of the table, or of one of its indexes."""
        if index:
            return self.client.scan(TableName=table, IndexName=index)["Items"]
        return self.client.scan(TableName=table, ConsistentRead=True)["Items"]

    def _answer(self, request: Any, **_: object) -> AWSResponse:
        headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        operation = headers["x-amz-target"].rpartition(".")[2]
        self.before(operation)
        with self._lock:
            self.calls.append(operation)
            status, sent, body = asyncio.run(dynamodb.handle_request("POST", "/", headers, request.body, {}))
        self.after(operation)
        return AWSResponse(request.url, status, sent, _Raw(body))
