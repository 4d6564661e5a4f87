"""Starts a monitoring of exactly the finished days that new objects have arrived for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from pydantic import AwareDatetime, ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.check.arrived_days import arrived_days, foreign_keys, older_objects
from slackwater.project import Project
from slackwater.runs.inputs.manifest import Record
from slackwater.runs.table import Executions, RunTable, is_alive

# Threads that read and write the records of days.
_READERS = 8
_WHOLE_SECOND = timedelta(seconds=1)


class ObjectWritten(Record):
    """The body of a message: an object was written to the raw bucket."""

    id: str
    """Of the event: it is the same when an event is delivered again."""
    key: str
    time: AwareDatetime | None = None
    """When the object was written, in whole seconds; None for messages of older versions."""


class StartsMonitoring(Protocol):
    """Starts executions of the monitoring machine."""

    def __call__(self, *, name: str, pipeline: str, days: tuple[str, ...]) -> None:
        """Start an execution with that name, unless one was started with it before. Raises `SlackwaterError`."""


class SendsLater(Protocol):
    """Sends messages to the queue of the arrivals again."""

    def __call__(self, bodies: Sequence[str]) -> None:
        """Send messages with these bodies, to be received some minutes later. Raises `SlackwaterError`."""


class StartedCheck(Record):
    """A monitoring that was started."""

    pipeline: str
    days: tuple[str, ...]
    name: str
    """Of the execution."""


class ArrivalResult(Record):
    """What became of the messages of one batch."""

    started: tuple[StartedCheck, ...] = ()
    failed: dict[str, str] = {}
    """By id of a message that has to be delivered again: why."""
    older: dict[str, int] = {}
    """By pipeline: new objects that belong to days before its window."""
    postponed: int = 0
    """Number of messages whose day is running: a check would ignore it, so they are received again later."""
    foreign: tuple[str, ...] = ()
    """Keys below `raw/` that are no objects of a partition."""


@dataclass(frozen=True, kw_only=True)
class ArrivalChecks:
    """Starts monitorings for batches of messages."""

    project: Project
    table: RunTable
    executions: Executions
    start: StartsMonitoring
    send_later: SendsLater
    now: Callable[[], datetime]

    def start_checks(self, messages: Mapping[str, str]) -> ArrivalResult:
        """Start one monitoring for each pipeline whose published days have new objects.

        `messages` are the bodies by message id. A batch that is delivered again starts nothing: the name of an
        execution follows from the pipeline, the days and the events.
        """
        failed: dict[str, str] = {}
        events: dict[str, ObjectWritten] = {}
        for message, body in messages.items():
            try:
                events[message] = ObjectWritten.model_validate_json(body)
            except ValidationError as error:
                failed[message] = f"not an event of a written object: {error.errors()[0]['msg']}"
        keys = {event.id: event.key for event in events.values()}
        arrived = arrived_days(self.project, keys, now=self.now())
        started, running = [], set[str]()
        for pipeline, item in arrived.items():
            try:
                days, busy = self._published_days(pipeline, item.days)
                older, busy_older = self._published_days(pipeline, item.older_days)
                running |= busy | busy_older
                # Days of the window as well: the oldest one may have left it when its check begins, or is repeated.
                self._record_late(pipeline, {**days, **older}, {event.id: event for event in events.values()})
                started += self._start(pipeline, days)
            except (SlackwaterError, ValidationError) as error:
                concerned = frozenset[str]().union(*item.days.values(), *item.older_days.values())
                failed |= {message: str(error) for message, event in events.items() if event.id in concerned}
        later = [message for message, event in events.items() if event.id in running and message not in failed]
        try:
            self.send_later([messages[message] for message in later])
        except SlackwaterError as error:
            failed |= dict.fromkeys(later, str(error))
        return ArrivalResult(
            started=tuple(started),
            postponed=len(later),
            failed=failed,
            older=dict(older_objects(arrived)),
            foreign=tuple(sorted(foreign_keys(keys.values()))),
        )

    def _published_days(
        self, pipeline: str, arrived: Mapping[str, frozenset[str]]
    ) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
        """Return those of the days that are published and not running, and the events of the days that are running."""
        published: dict[str, frozenset[str]] = {}
        running = frozenset[str]()
        with ThreadPoolExecutor(_READERS) as pool:
            # An upload of many years has objects of many days.
            records = list(pool.map(partial(self.table.day, pipeline), arrived))
        for record, (date, events) in zip(records, arrived.items(), strict=True):
            active = record.active
            if active and is_alive(self.executions, active.execution, since=active.since, now=self.now()):
                running |= events  # Also of a first run: it may have listed its inputs before.
            elif record.published:
                published[date] = events
            # Data of a day that was never published is not late: its first run reads it.
        return published, running

    def _record_late(
        self, pipeline: str, arrived: Mapping[str, frozenset[str]], events: Mapping[str, ObjectWritten]
    ) -> None:
        """List published days as late, with the objects that no published run has read."""

        def record(date: str) -> None:
            published = self.table.day(pipeline, date).published
            run = self.table.run(pipeline, date, published.run.attempt) if published else None
            # A run has read what was written before. The time of an event has no fractions of a second.
            read = run.frozen_at - _WHOLE_SECOND if run else None
            late = [events[event] for event in arrived[date]]
            keys = [event.key for event in late if not (read and event.time and event.time < read)]
            if keys:
                self.table.record_late_day(pipeline, date, at=self.now(), keys=keys)

        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(record, arrived))

    def _start(self, pipeline: str, arrived: Mapping[str, frozenset[str]]) -> list[StartedCheck]:
        """Start a monitoring of these days; return it, or nothing without any day."""
        if not arrived:
            return []
        days = tuple(arrived)
        events = frozenset[str]().union(*arrived.values())
        name = execution_name(pipeline, days, events)
        self.start(name=name, pipeline=pipeline, days=days)
        return [StartedCheck(pipeline=pipeline, days=days, name=name)]


def execution_name(pipeline: str, days: Iterable[str], events: Iterable[str]) -> str:
    """Return the name of the execution that checks these days because of these events: 40 characters."""
    digest = hashlib.sha256(json.dumps([pipeline, sorted(days), sorted(events)]).encode()).hexdigest()
    return f"arrival-{digest[:32]}"
