"""Answer `POST /v1/sources/{source}/events`: check the token, receive the body, report every event."""

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

# The same answer for every fault of a token, so that guessing reveals nothing.
_UNAUTHORIZED = (
    "send a valid token: `Authorization: Bearer <token>`; if yours has expired or was revoked, ask for a new one"
)
# Characters of a reason in the answer, as JSON escapes them; `sideline/` has the whole reason. A Lambda function may
# return 6 MB; it returns the body as a JSON string, whose escaping may double its size, with up to 10,000 reasons.
_REASON_LENGTH = 240


@dataclass(frozen=True, kw_only=True)
class PushRequest:
    """A request of a partner."""

    source: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    correlation_id: str = ""
    """Identifies the batch in all logs, also in those written after the answer."""


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """The answer to a request; its body is sent as JSON."""

    status: int
    body: Mapping[str, Any]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that the status requires."""
        return {"www-authenticate": "Bearer"} if self.status == HTTPStatus.UNAUTHORIZED else {}

    def json_body(self) -> str:
        """Return the body as it is sent."""
        return json.dumps(self.body, ensure_ascii=False)


def error_response(status: int, code: str, message: str, **more: object) -> ApiResponse:
    """Return the answer to a request that failed; `more` are further keys of the body."""
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

    def post(self, request: PushRequest) -> ApiResponse:  # noqa: PLR0911 - one for each status
        """Answer one request.

        Raises `CloudError` or `PartnerError` when the cloud or the issuer of a token fails; then the partner has to
        send the same body again.
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
        answer = result.model_dump(mode="json")
        for event in answer["rejected"]:
            event["reason"] = truncate(event["reason"], _REASON_LENGTH)
        if result.rejected and not result.accepted and not result.duplicates:
            first = answer["rejected"][0]
            message = f"every event was rejected; the first one (index {first['index']}): {first['reason']}"
            return error_response(422, "all_rejected", message, **answer)
        return ApiResponse(status=202, body=answer)

    def authenticate(self, request: PushRequest) -> Grant | None:
        """Return the grant of the request's bearer token; None without a valid one."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return None
        grant = self.tokens.find(token)
        return grant if grant and grant.valid(self.now()) else None
