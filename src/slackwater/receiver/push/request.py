"""Answer `POST /v1/sources/{source}/events`, `.../counts` and `.../verdicts`.

The token is checked first. Then events, a report or a verdict are received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.errors import UnknownName
from slackwater.receiver.parsing.rejections import truncate
from slackwater.receiver.push.body import BatchRefused, Body, UnsupportedMedia, check_media_type
from slackwater.receiver.push.queue import EventQueue, receive
from slackwater.receiver.push.receive import Receiver
from slackwater.receiver.push.tokens import Grant, Tokens
from slackwater.sources.definition import Source
from slackwater.state.facts import Report
from slackwater.state.partner_verdicts import VerdictRefused, read_verdict
from slackwater.state.reports import ReportRefused, read_report
from slackwater.state.verdicts import Verdict

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


class _Refused(Exception):
    """The request is refused; the argument is the response."""


@dataclass(frozen=True, kw_only=True)
class EventsApi:
    """Authorizes requests, and passes their bodies to the receiver, or reports and verdicts to the table of facts."""

    tokens: Tokens
    source: Callable[[str], Source]
    """Returns a source by its name, or raises `UnknownName`."""
    receiver: Receiver
    queue: EventQueue
    put_report: Callable[[Report], None]
    """Stores a report, as `StateTable.put_report` does."""
    put_verdict: Callable[[Verdict], None]
    """Stores a verdict, and has the runs and the published days looked at that may have read its hour."""
    now: Callable[[], datetime]

    def post(
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
        try:
            grant, source = self._authorize(source_name, headers)
        except _Refused as refused:
            status, document = refused.args
            return status, document
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
        document["old_events"] = result.old_events and result.old_events._asdict()
        if not result.old_events:
            del document["old_events"]
        if result.rejected and not result.accepted and not result.duplicates:
            first = rejected[0]
            message = f"every event was rejected; the first one (index {first['index']}): {first['reason']}"
            return error_response(422, "all_rejected", message, **document)
        return 202, document

    def post_counts(self, source_name: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        """Check the request of a partner, store the report in its body, and return status and document of the response.

        The arguments are those of `post`. The status is 202 when the report is stored, which may be repeated, and
        another 4xx when it is refused as a whole. Raises `CloudError` or `PartnerError`; then the partner has to send
        the same report again.
        """

        def store(source: Source, principal: str) -> dict[str, Any]:
            if source.counts is None:
                message = f"the source {source.source!r} takes no counts: ask its operators for `counts`"
                raise _Refused(*error_response(404, "no_such_source", message))
            report = read_report(body, source, principal=principal, now=self.now())
            self.put_report(report)
            return {"report_id": report.id, "windows": len(report.counts)}

        return self._post_document("a report", source_name, headers, store)

    def post_verdict(self, source_name: str, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        """Check the request of a partner, store the verdict in its body, and return the response.

        The arguments, the statuses and the errors are those of `post_counts`.
        """

        def store(source: Source, principal: str) -> dict[str, Any]:
            verdict = read_verdict(body, source.source, principal=principal, now=self.now())
            self.put_verdict(verdict)
            return {"verdict_id": verdict.id}

        return self._post_document("a verdict", source_name, headers, store)

    def _post_document(
        self,
        what: str,
        source_name: str,
        headers: Mapping[str, str],
        store: Callable[[Source, str], dict[str, Any]],
    ) -> tuple[int, dict[str, Any]]:
        """Check a request with one JSON document, have it stored, and return the response.

        `store` gets the source and the principal, and returns the document of the response.
        """
        try:
            grant, source = self._authorize(source_name, headers)
            if check_media_type(headers.get("content-type")) != "application/json":
                raise UnsupportedMedia(f"{what} is one JSON document: send application/json")
            return 202, store(source, f"push:{grant.partner}")
        except _Refused as refused:
            status, document = refused.args
            return status, document
        except (BatchRefused, ReportRefused, VerdictRefused) as refused:
            return error_response(refused.status, refused.code, str(refused))

    def _authorize(self, source_name: str, headers: Mapping[str, str]) -> tuple[Grant, Source]:
        """Return the grant of a request and its source. Raises `_Refused`."""
        grant = self.authenticate(headers)
        if grant is None:
            raise _Refused(*error_response(401, "unauthorized", _UNAUTHORIZED))
        try:
            source = self.source(source_name)
        except UnknownName as error:
            message = f"there is no source {source_name!r}"
            raise _Refused(*error_response(404, "no_such_source", message)) from error
        if not grant.allows(source.source):
            message = f"this token is not for the source {source.source!r}: ask for a token that is"
            raise _Refused(*error_response(403, "forbidden", message))
        return grant, source

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
