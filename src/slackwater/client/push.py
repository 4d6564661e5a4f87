"""Pushes events and reports with the caller's token, or with one of the operator that is created when it is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import orjson

from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.aws.resources import utc_now
from slackwater.client.arguments import pushed_source
from slackwater.client.events import MAX_EVENTS, cut_batches
from slackwater.client.sender import PushBlocked, PushTotals, RetryBudget, Sender
from slackwater.client.sent_counts import SentCounts
from slackwater.errors import AccessDenied, DataError, InputError
from slackwater.project.project import Project
from slackwater.sources.definition import Source
from slackwater.state.reports import Numbers, by_value, counts_of, report_document, window_key

Sent = TypeVar("Sent")
OPERATOR = "operator"
"""The partner name of the token that a client creates for itself."""

Event = bytes | Mapping[str, Any]
"""An event as JSON, or its fields; dates and timestamps are sent as ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class Pusher:
    """Pushes events of a project's sources to its API."""

    http: httpx.Client
    api: str
    """The API's base URL."""
    project: Project
    tokens: TokenTable
    token_file: TokenFile
    correlation_id: str
    budget: RetryBudget
    sent: SentCounts = field(default_factory=SentCounts)
    """The events that were sent with `counts`."""

    def push(
        self,
        source: str,
        events: Iterable[Event],
        *,
        token: str | None,
        counts: bool,
        on_progress: Callable[[PushTotals], None],
    ) -> PushTotals:
        """Send events with `token`, by default with the operator's; `on_progress` gets the totals after each batch.

        With `counts`, report then how many events were sent, also by earlier pushes of these windows. Raises
        `InputError` for a source without `push`, `DataError` for an event that JSON cannot represent, or if the source
        takes no counts, and as `Sender.send` does.
        """
        definition = pushed_source(self.project, source)
        if counts:
            counts_of(definition)
        encoded = [event if isinstance(event, bytes) else _encode(index, event) for index, event in enumerate(events)]
        totals = self._with_token(token, lambda sender: self._send(sender, definition, encoded, on_progress))
        if counts:
            self._report_sent(totals, definition, encoded, token)
        return totals

    def report(
        self, source: Source, *, as_of: datetime, through: datetime, counts: Mapping[str, Numbers], token: str | None
    ) -> dict[str, Any]:
        """Send a report; the keys of `counts` are as in its JSON document. Return the API's response.

        Raises as `Sender.send` does.
        """
        document = report_document(as_of=as_of, through=through, counts=counts)
        return self._with_token(token, lambda sender: sender.send_report(source.source, document))

    def _report_sent(self, totals: PushTotals, source: Source, events: list[bytes], token: str | None) -> None:
        now = utc_now()
        sent = self.sent.add(source, events, now=now)
        if sent is None:
            return
        totals.not_reported = {window_key(start, source): count for start, count in sent.left_out.items()}
        if sent.counts:
            counts = {window_key(start, source): by_value(numbers) for start, numbers in sent.counts.items()}
            answer = self.report(source, as_of=now, through=sent.through, counts=counts, token=token)
            number = sum(sum(numbers.values()) for numbers in sent.counts.values())
            totals.report = {**answer, "events": number, "through": sent.through.isoformat()}

    def _with_token(self, token: str | None, send: Callable[[Sender], Sent]) -> Sent:
        """Return the result of `send` with a token, by default the operator's."""
        if token is not None:
            return send(self._sender(token))
        saved = self.token_file.get_or_create(self.api, self.create_operator_token)
        try:
            return send(self._sender(saved))
        except PushBlocked:
            raise  # with any token
        except AccessDenied:
            # The saved token belongs to an earlier deployment, or is older than the source.
            new = self.create_operator_token()
            self.token_file.save(self.api, new)
            return send(self._sender(new))

    def create_operator_token(self) -> str:
        """Return a new bearer token of the operator for all sources that are pushed or take counts.

        It replaces the older one of two.
        """
        sources = sorted(name for name, source in self.project.sources.items() if source.push or source.counts)
        return self.tokens.create(OPERATOR, sources, instead_of_oldest=True).plain

    def _sender(self, token: str) -> Sender:
        return Sender(http=self.http, api=self.api, token=token, correlation_id=self.correlation_id, budget=self.budget)

    def _send(
        self, sender: Sender, source: Source, events: list[bytes], on_progress: Callable[[PushTotals], None]
    ) -> PushTotals:
        max_events = min(MAX_EVENTS, source.push.max_events) if source.push else MAX_EVENTS
        totals = PushTotals(source.source, self.correlation_id)
        for totals in sender.send(source.source, cut_batches(events, max_events=max_events)):
            on_progress(totals)
        return totals


def _encode(index: int, event: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(dict(event))
    except TypeError as error:
        raise DataError(f"event {index} cannot be sent as JSON: {error} (nothing was sent)") from error


@dataclass(frozen=True)
class TokenFile:
    """A file of bearer tokens, one for each API, readable only by its owner. A token is sent only to its API."""

    path: Path

    def token(self, api: str) -> str | None:
        """Return the token for that API, None if there is none. Raises `InputError` for an unreadable file."""
        return self._read().get(api)

    def save(self, api: str, token: str) -> None:
        """Save a token; it replaces an earlier one for that API. Raises `InputError` for an unreadable file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps(self._read() | {api: token}, indent=1)
        # A new file replaces the old one, so another command never reads half a file.
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        # The mode is set when the file is created: others cannot read it at any time.
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)
        new.replace(self.path)

    def get_or_create(self, api: str, create: Callable[[], str]) -> str:
        """Return the token for that API; on first use, create and save one."""
        token = self.token(api)
        if token is None:
            token = create()
            self.save(api, token)
        return token

    def _read(self) -> dict[str, str]:
        try:
            tokens = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path}: this file of tokens cannot be read: {error} (remove it: the next push creates a new one)"
            ) from error
        return {str(api): str(token) for api, token in tokens.items()}
