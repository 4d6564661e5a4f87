"""`POST /v1/sources/{source}/events`: the answer to a request, whatever carries it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.errors import UnknownName
from slackwater.receiver.batch import Refused
from slackwater.receiver.receive import BatchResult, Receiver
from slackwater.receiver.source import Source
from slackwater.receiver.tokens import Token, Tokens


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a partner sent."""

    source: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the partner is told, as JSON."""

    status: int
    body: Mapping[str, Any]

    def text(self) -> str:
        """Return the body as it is sent."""
        return json.dumps(self.body)


def error(status: int, code: str, message: str, **more: object) -> Answer:
    """Return the answer to a request that was not carried out."""
    return Answer(status=status, body={"error": {"code": code, "message": message}, **more})


@dataclass(frozen=True, kw_only=True)
class EventsApi:
    """Checks who asks for what, and takes the batch."""

    tokens: Tokens
    source: Callable[[str], Source]
    """Raises `UnknownName`."""
    receiver: Receiver
    now: Callable[[], datetime]

    def post(self, request: Request) -> Answer:
        """Answer one request; only when the cloud fails does it raise, and then the partner sends the batch again."""
        token = self._token(request)
        if token is None:
            return error(401, "unauthorized", "send a valid token: `Authorization: Bearer <token>`")
        try:
            source = self.source(request.source)
        except UnknownName:
            return error(404, "no_such_source", f"there is no source {request.source!r}")
        if not token.allows(source.source):
            return error(403, "forbidden", f"this token is not for the source {source.source!r}")
        if source.push is None:
            return error(404, "no_such_source", f"the source {source.source!r} takes no events: its files are pulled")
        try:
            result = self.receiver.receive(
                request.body,
                source=source,
                content_type=request.headers.get("content-type"),
                content_encoding=request.headers.get("content-encoding"),
                origin=f"push:{token.partner}",
            )
        except Refused as refused:
            return error(refused.status, refused.code, str(refused))
        return _answer(result)

    def _token(self, request: Request) -> Token | None:
        scheme, _, plain = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not plain.strip():
            return None
        token = self.tokens.find(plain.strip())
        return token if token and token.valid(self.now()) else None


def _answer(result: BatchResult) -> Answer:
    body = result.model_dump(mode="json")
    if result.rejected and not result.accepted and not result.duplicates:
        first = result.rejected[0]
        message = f"every event was rejected, the first one ({first.index}) because: {first.reason}"
        return error(422, "all_rejected", message, **body)
    return Answer(status=202, body=body)
