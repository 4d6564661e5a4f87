"""`POST /v1/sources/{source}/events`: the answer to a request, whatever carries it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from slackwater.errors import UnknownName
from slackwater.receiver.parsing.rejections import truncate
from slackwater.receiver.push.batch import BatchRefused
from slackwater.receiver.push.queue import EventQueue, receive_buffered
from slackwater.receiver.push.receive import BatchResult, Receiver
from slackwater.receiver.push.tokens import Grant, Tokens
from slackwater.sources.definition import Source

_UNAUTHORIZED = (
    "send a valid token: `Authorization: Bearer <token>`; if yours has expired or was revoked, ask for a new one"
)
"""One for all that is wrong with a token: who guesses learns nothing."""
_REASON = 240
"""Characters of a reason that a partner is told, as JSON writes them; the side-line has them all.

A Lambda answers with 6 MB at most. There the body's JSON is quoted once more, which may double what it escapes, and
10,000 events may be rejected."""


@dataclass(frozen=True, kw_only=True)
class PushRequest:
    """What a partner sent."""

    source: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    correlation_id: str = ""
    """By which logs tell what becomes of it, also after the answer."""


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """What the partner is told, as JSON."""

    status: int
    body: Mapping[str, Any]

    @property
    def headers(self) -> Mapping[str, str]:
        """What the status asks for beside the body."""
        return {"www-authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else {}

    def text(self) -> str:
        """Return the body as it is sent."""
        return json.dumps(self.body, ensure_ascii=False)


def error_response(status: int, code: str, message: str, **more: object) -> ApiResponse:
    """Return the answer to a request that was not carried out."""
    return ApiResponse(status=status, body={"error": {"code": code, "message": message}, **more})


@dataclass(frozen=True, kw_only=True)
class EventsApi:
    """Checks who asks for what, and takes the batch."""

    tokens: Tokens
    source: Callable[[str], Source]
    """Raises `UnknownName`."""
    receiver: Receiver
    buffer: EventQueue
    now: Callable[[], datetime]

    def post(self, request: PushRequest) -> ApiResponse:
        """Answer one request.

        Only when the cloud or an issuer of tokens fails does it raise, and then the partner sends the batch again.
        """
        grant = self._grant(request)
        if grant is None:
            return error_response(401, "unauthorized", _UNAUTHORIZED)
        try:
            source = self.source(request.source)
        except UnknownName:
            return error_response(404, "no_such_source", f"there is no source {request.source!r}")
        if not grant.allows(source.source):
            return error_response(
                403, "forbidden", f"this token is not for the source {source.source!r}: ask for one that is"
            )
        if source.push is None:
            return error_response(
                404, "no_such_source", f"the source {source.source!r} takes no events: its files are pulled"
            )
        try:
            result = self._receive(request, source, origin=f"push:{grant.partner}")
        except BatchRefused as refused:
            return error_response(refused.status, refused.code, str(refused))
        return _answer(result)

    def _receive(self, request: PushRequest, source: Source, *, origin: str) -> BatchResult:
        receive = self.receiver.receive
        if source.push and source.push.buffer == "queue":
            receive = partial(
                receive_buffered, receiver=self.receiver, buffer=self.buffer, correlation_id=request.correlation_id
            )
        return receive(
            request.body,
            source=source,
            content_type=request.headers.get("content-type"),
            content_encoding=request.headers.get("content-encoding"),
            origin=origin,
        )

    def _grant(self, request: PushRequest) -> Grant | None:
        scheme, _, plain = request.headers.get("authorization", "").partition(" ")
        plain = plain.strip()
        if scheme.lower() != "bearer" or not plain or not plain.isascii():
            return None
        found = self.tokens.find(plain)
        return found if found and found.valid(self.now()) else None


def _answer(result: BatchResult) -> ApiResponse:
    body = result.model_dump(mode="json")
    for told in body["rejected"]:
        told["reason"] = truncate(told["reason"], _REASON)
    if result.rejected and not result.accepted and not result.duplicates:
        first = body["rejected"][0]
        message = f"every event was rejected, the first one ({first['index']}) because: {first['reason']}"
        return error_response(422, "all_rejected", message, **body)
    return ApiResponse(status=202, body=body)
