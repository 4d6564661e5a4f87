"""DynamoDB for tests: the local cloud's code in this process, or a server; botocore validates the requests."""

from __future__ import annotations

import asyncio
import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.httpsession import URLLib3Session
from ministack.services import dynamodb

from slackwater.local.services import tables

tables.register()


class _Raw(io.BytesIO):
    """A body as botocore reads it from urllib3."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


class LocalDynamoDB:
    """A client in place of boto3's.

    The local cloud's code handles the requests, each after the end of the one before; with an `endpoint` its server
    handles them.
    """

    def __init__(self, endpoint: str | None = None, *, attempts: int = 1) -> None:
        self.endpoint = endpoint
        # As botocore's own sessions: without the option each request waits 40 ms for an acknowledgement.
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        self._server = URLLib3Session(socket_options=options) if endpoint else None
        self.client = boto3.client(
            "dynamodb",
            endpoint_url=endpoint,
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
        self.calls.append(operation)
        if self._server:
            response = self._server.send(request)
        else:
            with self._lock:
                status, sent, body = asyncio.run(dynamodb.handle_request("POST", "/", headers, request.body, {}))
            response = AWSResponse(request.url, status, sent, _Raw(body))
        self.after(operation)
        return response
