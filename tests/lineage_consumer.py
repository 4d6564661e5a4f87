"""A server that receives the OpenLineage events of the shared cloud, and can be slow or down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes_web import RecordedRequest, Reply, Web


class LineageConsumer(Web):
    """Accepts each event, unless it is slow or down."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[dict[str, Any]] = []
        """All events, repeated ones too, in the order in which they were accepted."""
        self.delayed: list[dict[str, Any]] = []
        """Those that came while it was slow."""
        self.refused: list[dict[str, Any]] = []
        """Those that came while it was down."""
        self._is_down = False
        self._answers = threading.Event()
        self._answers.set()

    def reply(self, request: RecordedRequest) -> Reply:
        event = json.loads(request.body)
        if self._is_down:
            self.refused.append(event)
            return Reply(503)
        if not self._answers.is_set():
            self.delayed.append(event)
            self._answers.wait()
        self.accepted.append(event)
        return Reply(201)

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Answer no request before the end of the `with` block."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Answer all requests with 503 until the end of the `with` block."""
        self._is_down = True
        try:
            yield
        finally:
            self._is_down = False

    def ends(self, pipeline: str, date: str) -> list[dict[str, Any]]:
        """Return the events that runs of a local date have ended, each once."""
        found = {
            event["run"]["runId"]: event
            for event in self.accepted
            if event["job"]["name"] == pipeline
            and event["eventType"] != "START"
            and event["run"]["facets"]["nominalTime"]["nominalStartTime"].startswith(date)
        }
        return list(found.values())

    def of_run(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run and of its stages, each once, in order of time."""
        found = {
            (event["job"]["name"], event["eventType"]): event
            for event in self.accepted
            if run_id in {event["run"]["runId"], event["run"]["facets"].get("parent", {"run": {}})["run"].get("runId")}
        }
        return sorted(found.values(), key=lambda event: event["eventTime"])
