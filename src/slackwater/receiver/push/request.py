"""Answer `POST /v1/sources/{source}/events`: check the token, receive the body, report the result of every event."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from slackwater.errors import UnknownName
from slackwater.receiver.parsing.rejections import truncate
from slackwater.receiver.push.batch import BatchRefused, PushedBody
from slackwater.receiver.push.queue import EventQueue, receive_buffered
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.push.tokens import Grant, Tokens
from slackwater.sources.definition import Source

# One message for missing, malformed, unknown, expired and revoked tokens, so that guessing reveals nothing.
_UNAUTHORIZED = (
    "send a valid token: `Authorization: Bearer <token>`; if yours has expired or was revoked, ask for a new one"
)
# Longest reason in a response, in ASCII characters of its JSON form; `sideline/` has the whole reason. A Lambda
# function may return 6 MB. 10,000 reasons (the largest batch) of this length are 2.4 MB, and up to twice as much
# because the function returns its body as a string inside JSON, which escapes quotes and backslashes a second time.
_REASON_LENGTH = 240


@dataclass(frozen=True, kw_only=True)
class PushRequest:
    """A request of a partner."""

    source: str
    """Name of the source in the path; not yet known to exist."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """As sent: not decompressed."""
    correlation_id: str = ""
    """Identifies the batch in all logs, also in those that are written after the response."""


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """The response to a request; its body is sent as JSON."""

    status: int
    body: Mapping[str, Any]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that the status requires, beside those that every response has."""
        return {"www-authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else {}

    def json_body(self) -> str:
        """Return the body as a JSON string."""
        return json.dumps(self.body, ensure_ascii=False)


def error_response(status: int, code: str, message: str, **more: object) -> ApiResponse:
    """Return the response to a request that failed.

    `code` is for programs and never changes, `message` is for people, and `more` are further keys of the body.
    """
    return ApiResponse(status=status, body={"error": {"code": code, "message": message}, **more})


@dataclass(frozen=True, kw_only=True)
class EventsApi:
    """Authorizes requests and passes their bodies to the receiver."""

    tokens: Tokens
    source: Callable[[str], Source]
    """Returns a source by its name, or raises `UnknownName`."""
    receiver: Receiver
    queue: EventQueue
    now: Callable[[], datetime]

    def post(self, request: PushRequest) -> ApiResponse:  # noqa: PLR0911 - one return for each status
        """Check the request, receive its body and return the response.

        The status is 202 when an event is accepted or a duplicate, 422 when all are rejected, and another 4xx when the
        request is refused as a whole. Raises `CloudError` or `PartnerError` when the cloud or the issuer of a token
        fails; then the partner has to send the same body again.
        """
        grant = self.authenticate(request)
        if grant is None:
            return error_response(401, "unauthorized", _UNAUTHORIZED)
        try:
            source = self.source(request.source)
        except UnknownName:
            return error_response(404, "no_such_source", f"there is no source {request.source!r}")
        if not grant.allows(source.source):
            message = f"this token is not for the source {source.source!r}: ask for a token that is"
            return error_response(403, "forbidden", message)
        if source.push is None:
            message = f"the source {source.source!r} does not accept pushed events: its files are pulled"
            return error_response(404, "no_such_source", message)
        pushed = PushedBody(
            content=request.body,
            content_type=request.headers.get("content-type"),
            content_encoding=request.headers.get("content-encoding"),
            origin=f"push:{grant.partner}",
        )
        try:
            if source.push.buffer == "queue":
                correlation_id = request.correlation_id
                result = receive_buffered(
                    pushed, source, receiver=self.receiver, queue=self.queue, correlation_id=correlation_id
                )
            else:
                result = self.receiver.receive(pushed, source)
        except BatchRefused as refused:
            return error_response(refused.status, refused.code, str(refused))
        body = result.model_dump(mode="json")
        for event in body["rejected"]:
            event["reason"] = truncate(event["reason"], _REASON_LENGTH)
        if result.rejected and not result.accepted and not result.duplicates:
            first = body["rejected"][0]
            message = f"every event was rejected; the first one (index {first['index']}): {first['reason']}"
            return error_response(422, "all_rejected", message, **body)
        return ApiResponse(status=202, body=body)

    def authenticate(self, request: PushRequest) -> Grant | None:
        """Return the grant of the request's bearer token; None without a valid one. Raises as `Tokens.find` does."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return None
        grant = self.tokens.find(token)
        return grant if grant and grant.valid(self.now()) else None
