"""Starts a monitoring of exactly the finished days that the messages of the queue of arrivals are about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.arrival_messages import (
    LONGEST_WAIT,
    ArrivalMessage,
    DayDeferred,
    ObjectWritten,
    body_to_send,
    is_expired,
    read_message,
    seconds_to_wait,
)
from slackwater.late.check.arrived_days import ArrivedDays, arrived_days, changed_partitions, foreign_keys
from slackwater.late.check.facts import as_slackwater_error
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.receiver.commits import FileCommitted
from slackwater.runs.arrivals import DayPublished, SendsArrivals
from slackwater.runs.period import start_of
from slackwater.runs.record import RunRecord
from slackwater.runs.table import Executions, RunTable, is_running
from slackwater.sources.partitions import UpdateTable

# Threads that read and write the records of days.
_READERS = 8
_WHOLE_SECOND = timedelta(seconds=1)
# After this time, it is looked again whether a running day has ended.
_RUNNING_SECONDS = 300


class StartsMonitoring(Protocol):
    """Starts executions of the monitoring machine."""

    def __call__(self, *, name: str, payload: Mapping[str, object]) -> object:
        """Start an execution with that name, unless one was started with it before. Raises `SlackwaterError`."""


class WakesSource(Protocol):
    """Has the runs evaluated that wait for a source."""

    def __call__(self, source: str, hours: Iterable[datetime], /) -> None:
        """Ask for it, for these UTC hours of the source. An error is only logged."""


class StartedCheck(Record):
    """A monitoring that was started."""

    pipeline: str
    days: tuple[str, ...]
    name: str
    """Of the execution."""


class _DayStatus(Enum):
    """What the messages about a day lead to."""

    RUNNING = "running"
    """They are sent again, to be received later."""
    PUBLISHED = "published"
    """A check, if the day is in the window."""
    UNPUBLISHED = "unpublished"
    """Nothing."""


class _LateDays(NamedTuple):
    """The days that the messages are about, by what happens to them."""

    published: dict[str, frozenset[str]]
    """The ids of the messages by day."""
    running: frozenset[str]
    """The ids of the messages about running days."""
    failed: dict[str, str]
    """By id of a message about a day that could not be read or listed, or whose run does not end: why."""


class ArrivalResult(Record):
    """What became of the messages of one batch."""

    started: tuple[StartedCheck, ...] = ()
    failed: dict[str, str] = {}
    """By id of a message that has to be delivered again: why."""
    older: dict[str, int] = {}
    """By pipeline: new objects that belong to published days before its window only."""
    postponed: int = 0
    """Number of messages that are sent again, to be received later: their day is running, so that a check would ignore
    it, or may not run again yet."""
    foreign: tuple[str, ...] = ()
    """Keys below `raw/` that are no objects of a partition."""


@dataclass(frozen=True, kw_only=True)
class ArrivalChecks:
    """Starts monitorings for batches of messages, lets the raw tables follow, and wakes runs that wait."""

    project: Project
    table: RunTable
    executions: Executions
    start: StartsMonitoring
    send_later: SendsArrivals
    update_table: UpdateTable
    wake_source: WakesSource
    now: Callable[[], datetime]

    def start_checks(self, messages: Mapping[str, str]) -> ArrivalResult:
        """Start one monitoring for each pipeline whose published days the messages are about.

        `messages` are the bodies by message id. A batch that is delivered again starts nothing: the name of an
        execution follows from the pipeline, the days and the events.
        """
        events, failed = _read_messages(messages)
        # By their own ids: a message may have been sent, or delivered, more than once.
        by_id, now = {event.id: event for event in events.values()}, self.now()
        delays = {event.id: delay for event in by_id.values() if (delay := seconds_to_wait(event, now))}
        arrived = arrived_days(self.project, [event for event in by_id.values() if event.id not in delays], now=now)
        started, older, reasons = list[StartedCheck](), dict[str, int](), dict[str, str]()
        for pipeline, item in arrived.items():
            days = self._late_days(pipeline, item, by_id)
            delays |= dict.fromkeys(days.running, _RUNNING_SECONDS)
            reasons |= days.failed
            if count := _object_count(by_id, days.published, item):
                older[pipeline] = count
            in_window = {date: events for date, events in days.published.items() if date in item.days}
            try:
                if in_window:
                    started.append(self._start(pipeline, in_window))
            except SlackwaterError as error:
                reasons |= dict.fromkeys(_all_events(in_window), str(error))
        failed |= {message: reasons[event.id] for message, event in events.items() if event.id in reasons}
        later = {event.id: message for message, event in events.items() if event.id in delays and message not in failed}
        try:
            bodies = {event: body_to_send(messages[message], by_id[event], now) for event, message in later.items()}
            self.send_later([(body, delays[event]) for event, body in bodies.items()])
        except SlackwaterError as error:
            failed |= {message: str(error) for message, event in events.items() if event.id in later}
            later = {}
        for source, partitions in changed_partitions(by_id.values()).items():
            if source in self.project.sources:
                self.update_table(source, partitions)
            if self.project.is_waited_for(source):
                self.wake_source(source, [start_of(partition) for partition in partitions])
        return ArrivalResult(
            started=tuple(started),
            postponed=len(later),
            failed=failed,
            older=older,
            foreign=tuple(sorted(foreign_keys(by_id.values()))),
        )

    def _late_days(self, pipeline: str, item: ArrivedDays, events: Mapping[str, ArrivalMessage]) -> _LateDays:
        """List those of the days as late that are published and not running. A day that fails stops no other day."""
        arrived = {**item.days, **item.older_days, **item.current_day}

        def read(date: str) -> _DayStatus | str:
            of_day = [events[event] for event in arrived[date]]
            try:
                return self._list_if_late(pipeline, date, of_day, is_older=date in item.older_days)
            except (SlackwaterError, ValidationError) as error:
                return f"{pipeline} {date}: {as_slackwater_error(error)}"

        with ThreadPoolExecutor(_READERS) as pool:
            # An upload of many years has objects of many days.
            statuses = dict(zip(arrived, pool.map(read, arrived), strict=True))
        running = {date: arrived[date] for date in arrived if statuses[date] is _DayStatus.RUNNING}
        reason, now = f"its run has not ended {LONGEST_WAIT.days} days after this message", self.now()
        failed = {
            event: status if isinstance(status, str) else f"{pipeline} {date}: {reason}"
            for date, status in statuses.items()
            for event in arrived[date]
            if isinstance(status, str) or (date in running and is_expired(events[event], now))
        }
        return _LateDays(
            published={date: arrived[date] for date in arrived if statuses[date] is _DayStatus.PUBLISHED},
            running=_all_events(running) - failed.keys(),
            failed=failed,
        )

    def _list_if_late(
        self, pipeline: str, date: str, events: Sequence[ArrivalMessage], *, is_older: bool
    ) -> _DayStatus:
        """List a published day as late, with the objects that no published run has read, and return its status.

        Such a day is listed for the ledger too, and an unpublished one if it is before the window.
        """
        record = self.table.day(pipeline, date)
        published = record.published
        if is_running(self.executions, record.active, now=self.now()):
            return _DayStatus.RUNNING  # Also in a first run: it may have listed its inputs before.
        if published is None:
            # Its first run reads it, if there will be one. Tables of other pipelines change more days than are run.
            if is_older and any(isinstance(event, (ObjectWritten, FileCommitted)) for event in events):
                self.table.record_ledger_day(pipeline, date, at=self.now())
            return _DayStatus.UNPUBLISHED
        run = self.table.run(pipeline, date, published.run.attempt)
        definition = self.project.pipeline(pipeline)
        late = [event for event in events if _makes_late(event, definition, run)]
        # Days of the window as well: the oldest one may have left it when its check begins, or is repeated.
        if late:
            # The events of its objects have named those of a committed file already.
            keys = [event.key for event in late if isinstance(event, ObjectWritten)]
            self.table.record_late_day(pipeline, date, at=self.now(), keys=keys)
            self.table.record_ledger_day(pipeline, date, at=self.now())
        return _DayStatus.PUBLISHED

    def _start(self, pipeline: str, arrived: Mapping[str, frozenset[str]]) -> StartedCheck:
        """Start a monitoring of these days, and return it."""
        days = tuple(arrived)
        name = execution_name(pipeline, days, _all_events(arrived))
        self.start(name=name, payload={"pipeline": pipeline, "days": days, "correlation_id": name})
        return StartedCheck(pipeline=pipeline, days=days, name=name)


def _read_messages(bodies: Mapping[str, str]) -> tuple[dict[str, ArrivalMessage], dict[str, str]]:
    """Return the messages, and why others cannot be read, both by message id."""
    events: dict[str, ArrivalMessage] = {}
    failed: dict[str, str] = {}
    for message, body in bodies.items():
        try:
            events[message] = read_message(body)
        except ValidationError as error:
            failed[message] = f"not a message about an arrival: {error.errors()[0]['msg']}"
    return events, failed


def _all_events(arrived: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the ids of the messages about all of the days."""
    return frozenset[str]().union(*arrived.values())


def _object_count(
    events: Mapping[str, ArrivalMessage], published: Mapping[str, frozenset[str]], arrived: ArrivedDays
) -> int:
    """Return the number of new objects that belong to published days before the window only."""
    older = _all_events({date: ids for date, ids in published.items() if date in arrived.older_days})
    return sum(isinstance(events[event], ObjectWritten) for event in older - _all_events(arrived.days))


def _makes_late(event: ArrivalMessage, definition: Pipeline, run: RunRecord | None) -> bool:
    """Return whether a day that the message is about has data that its published run has not read."""
    if isinstance(event, DayDeferred):
        return False  # The check that has deferred the day has listed it.
    if isinstance(event, DayPublished):
        tables = [item for item in definition.published_tables.values() if item.table == event.pipeline]
        if not any(item.decides for item in tables):
            return False
    # The time of an event of S3 has no fractions of a second.
    return not (run and event.time and event.time < run.frozen_at - _WHOLE_SECOND)


def execution_name(pipeline: str, days: Iterable[str], events: Iterable[str]) -> str:
    """Return the name of the execution that checks these days because of these events: 40 characters."""
    digest = hashlib.sha256(json.dumps([pipeline, sorted(days), sorted(events)]).encode()).hexdigest()
    return f"arrival-{digest[:32]}"
