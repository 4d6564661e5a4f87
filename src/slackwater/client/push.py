"""Pushes events with the caller's token, or with one of the operator that is created when it is needed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from slackwater.aws.dynamodb.tokens import TokenTable
from slackwater.client.arguments import pushed_source
from slackwater.client.events import MAX_EVENTS, cut_batches
from slackwater.client.sender import PushBlocked, PushTotals, RetryBudget, Sender
from slackwater.errors import AccessDenied, DataError, InputError
from slackwater.project.project import Project

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

    def push(
        self, source: str, events: Iterable[Event], *, token: str | None, on_progress: Callable[[PushTotals], None]
    ) -> PushTotals:
        """Send events with `token`, by default with the operator's; `on_progress` gets the totals after each batch.

        Raises `InputError` for a source without `push`, `DataError` for an event that JSON cannot represent, and as
        `Sender.send` does.
        """
        pushed_source(self.project, source)
        encoded = [event if isinstance(event, bytes) else _encode(index, event) for index, event in enumerate(events)]
        if token is not None:
            return self._send(source, encoded, token, on_progress)
        saved = self.token_file.get_or_create(self.api, self.create_operator_token)
        try:
            return self._send(source, encoded, saved, on_progress)
        except PushBlocked:
            raise  # with any token
        except AccessDenied:
            # The saved token belongs to an earlier deployment, or is older than the source.
            new = self.create_operator_token()
            self.token_file.save(self.api, new)
            return self._send(source, encoded, new, on_progress)

    def create_operator_token(self) -> str:
        """Return a new bearer token of the operator for all pushed sources; it replaces the older one of two."""
        sources = sorted(name for name, source in self.project.sources.items() if source.push)
        return self.tokens.create(OPERATOR, sources, instead_of_oldest=True).plain

    def _send(
        self, source: str, events: list[bytes], token: str, on_progress: Callable[[PushTotals], None]
    ) -> PushTotals:
        push = self.project.source(source).push
        max_events = min(MAX_EVENTS, push.max_events) if push else MAX_EVENTS
        totals = PushTotals(source, self.correlation_id)
        sender = Sender(
            http=self.http, api=self.api, token=token, correlation_id=self.correlation_id, budget=self.budget
        )
        for totals in sender.send(source, cut_batches(events, max_events=max_events)):
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
