"""Answer `POST /v1/sources/{source}/events`: check the token, receive the body, report the result of every event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.errors import UnknownName
from slackwater.receiver.parsing.rejections import truncate
from slackwater.receiver.push.body import BatchRefused, Body
from slackwater.receiver.push.queue import EventQueue, receive
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


def error_response(status: int, code: str, message: str, **more: object) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of the response to a request that failed.

    `code` is for programs and never changes, `message` is for people, and `more` are further keys of the document.
    """
    return status, {"error": {"code": code, "message": message}, **more}


@dataclass(frozen=True, kw_only=True)
class EventsApi:
    """Authorizes requests and passes their bodies to the receiver."""

    tokens: Tokens
    source: Callable[[str], Source]
    """Returns a source by its name, or raises `UnknownName`."""
    receiver: Receiver
    queue: EventQueue
    now: Callable[[], datetime]

    def post(  # noqa: PLR0911 - one return for each status
        self, source_name: str, headers: Mapping[str, str], body: bytes, correlation_id: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Check the request of a partner, receive its body, and return the status and the document of the response.

        `source_name` is the name in the path, and may not exist. The names of `headers` are in lower case. `body` is as
        sent: not decompressed. `correlation_id` identifies the batch in all logs, also in those that are written after
        the response.
        The status is 202 when an event is accepted or a duplicate, 422 when all are rejected, and another 4xx when the
        request is refused as a whole. Raises `CloudError` or `PartnerError` when the cloud or the issuer of a token
        fails; then the partner has to send the same body again.
        """
        grant = self.authenticate(headers)
        if grant is None:
            return error_response(401, "unauthorized", _UNAUTHORIZED)
        try:
            source = self.source(source_name)
        except UnknownName:
            return error_response(404, "no_such_source", f"there is no source {source_name!r}")
        if not grant.allows(source.source):
            message = f"this token is not for the source {source.source!r}: ask for a token that is"
            return error_response(403, "forbidden", message)
        if source.push is None:
            message = f"the source {source.source!r} does not accept pushed events: its files are pulled"
            return error_response(404, "no_such_source", message)
        pushed = Body(
            content=body,
            content_type=headers.get("content-type"),
            content_encoding=headers.get("content-encoding"),
            origin=f"push:{grant.partner}",
            limits=self.receiver.limits,
        )
        try:
            result = receive(pushed, source, receiver=self.receiver, queue=self.queue, correlation_id=correlation_id)
        except BatchRefused as refused:
            return error_response(refused.status, refused.code, str(refused))
        rejected = [{"index": index, "reason": truncate(reason, _REASON_LENGTH)} for index, reason in result.rejected]
        document = {**result._asdict(), "rejected": rejected, "unknown_fields": list(result.unknown_fields)}
        if not result.unknown_fields:
            del document["unknown_fields"]
        if result.rejected and not result.accepted and not result.duplicates:
            first = rejected[0]
            message = f"every event was rejected; the first one (index {first['index']}): {first['reason']}"
            return error_response(422, "all_rejected", message, **document)
        return 202, document

    def authenticate(self, headers: Mapping[str, str]) -> Grant | None:
        """Return the grant of the bearer token in the headers; None without a valid one.

        Raises `CloudError` or `PartnerError` when the table or the issuer of tokens does not answer.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return None
        grant = self.tokens.find(token)
        return grant if grant and grant.valid(self.now()) else None
