"""What sources send, restate, replace and remove, and a queue whose messages are handled with faults."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.receiver.writing.windows import hourly_bins, windows_metadata
from slackwater.runs.period import partition_of
from slackwater.runs.periods.changes import PeriodChanged
from slackwater.runs.periods.fold_periods import PeriodFolder
from slackwater.runs.periods.read_parts import PartReader
from slackwater.runs.periods.state_messages import fold_messages
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EVENT_TIME, TIMESTAMP
from slackwater.sources.partitions import object_uri
from slackwater.state.facts import HOUR, Report
from slackwater.state.messages import HoursChanged, ObjectWritten, hours_changed
from slackwater.state.reports import window_end
from slackwater.storage import split_uri
from tests.fakes_receiver import Crash, MemoryFileCache, MemoryStore
from tests.fakes_state import MemoryPeriods
from tests.state_counting import Counted, count

Row = tuple[int, str | None] | tuple[int, str | None, str | None]
"""Minute of its hour, id, and region."""


class Written(NamedTuple):
    """A raw object."""

    name: str
    hour: datetime
    rows: list[tuple[datetime, str | None, str | None]]
    """Time, id and region of each."""
    content: str | None
    """The id of the content of its file."""


class Killed(RuntimeError):
    """The process has ended."""


CALLS = (
    *("head", "put_parts", "covered", "states", "coverage", "all_facts", "contents", "get"),
    *("put_state", "put", "extend", "put_announced", "put_folded"),
)
"""What a process calls. The bus is a list, which a message extends."""


class Fault(NamedTuple):
    """What happens before or after the call of a method with this number, counted from 1."""

    type: str = "none"
    method: str = ""
    number: int = 0
    after: bool = False


NO_FAULT = Fault()


class OneSource:
    """A project with one source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def source(self, _: str) -> Source:
        return self._source


class World:
    """The source `things`, and what was stored of it."""

    def __init__(self, source: Source, *, now: datetime) -> None:
        self.source, self.now, self.number = source, now, 0
        self.table, self.cache = MemoryPeriods(), MemoryFileCache()
        self.store = MemoryStore(clock=lambda: self.now)
        self.queue: list[str] = []
        self.objects: list[Written] = []
        self.rejected: list[tuple[str | None, str, list[datetime]]] = []
        """The id of the content of a file, and key and timestamps of its rejected rows; None for a batch."""
        self.reports: list[Report] = []
        self.changes: list[PeriodChanged] = []
        self.woken: list[datetime] = []
        self.on_full: Callable[[str, Sequence[datetime]], None] = lambda *_: None

    def write(self, hour: datetime, rows: Iterable[Row], name: str, content: str | None, *, old: bool = False) -> str:
        """Write an object, and return its URI. An `old` one has no windows in its metadata."""
        self.number += 1
        times = [
            (hour + timedelta(minutes=minute, microseconds=self.number), id_, next(iter(region), None))
            for minute, id_, *region in rows
        ]
        column = pa.chunked_array([pa.array([at for at, *_ in times], TIMESTAMP)])
        body = io.BytesIO()
        ids, regions = (pa.array([row[index] for row in times], pa.string()) for index in (1, 2))
        table = pa.table({"id": ids, "region": regions, EVENT_TIME: column})
        pq.write_table(table, body)
        uri = object_uri("raw", "things", partition_of(hour), name)
        self.now += timedelta(seconds=1)
        self.store.put_new(
            uri, body.getvalue(), metadata={} if old else windows_metadata(*hourly_bins(table, self.source.count_keys))
        )
        self.objects.append(Written(name, hour, times, content))
        return uri

    def send_event_of(self, uri: str) -> None:
        """S3's event of an object."""
        self._send(ObjectWritten(id=str(self.number), key=split_uri(uri)[1], time=self.now))

    def send_hours(self, hours: Iterable[datetime], *, listing: bool = False) -> None:
        """The message that facts about hours have changed."""
        self._send(hours_changed("things", hours, listing=listing))

    def _send(self, message: ObjectWritten | HoursChanged) -> None:
        self.queue.append(message.model_dump_json())

    def end_of(self, start: datetime) -> datetime:
        """The end of a window."""
        assert self.source.counts is not None
        return window_end(start, self.source.counts.window, self.source.pull_timezone)

    def handle_all(self) -> None:
        """Handle all messages of the queue, without a fault."""
        messages, self.queue = self.queue, []
        self.handle(messages)

    def handle(self, messages: Sequence[str], fault: Fault = NO_FAULT) -> None:
        """Handle messages as the function does. Those that fail, or whose process ends, are in the queue again."""
        named = {str(number): body for number, body in enumerate(messages)}
        try:
            failed: Iterable[str] = fold_messages(named, self.folder(fault)).failed
        except Killed:
            failed = named
        self.table.is_behind = False
        self.queue += [named[id_] for id_ in failed]

    def folder(self, fault: Fault = NO_FAULT) -> PeriodFolder:
        def happen() -> None:
            if fault.type == "killed":
                raise Killed
            if fault.type == "fails":
                raise Crash("throttled")
            if fault.type == "overtaken":
                self.handle_all()
            self.table.is_behind = fault.type == "behind"

        calls: Counter[str] = Counter()
        store, table, files, bus = (
            _Port(port, calls, fault, happen) for port in (self.store, self.table, self.cache, self.changes)
        )
        return PeriodFolder(
            project=OneSource(self.source),  # type: ignore[arg-type]
            table=table,
            files=files,
            parts=PartReader(store, "raw"),
            exchange_bucket="exchange",
            put_changes=bus.extend,
            on_changed=lambda _, hours: self.woken.extend(hours),
            on_full=self.on_full,
        )

    def is_seen(self, content: str | None, name: str | None = None) -> bool:
        """Whether readers see a content, and with `name` this object of it; batches are always seen."""
        if content is None:
            return True
        found = self.cache.saved_contents["things", content]
        seen = found.committed is not None and not found.is_removed
        return seen and (name is None or name == f"{found.id}-{found.committed.object_id}")  # type: ignore[union-attr]

    def counted_objects(self, start: datetime, end: datetime) -> list[Written]:
        """The objects of these hours that readers see."""
        return [item for item in self.objects if start <= item.hour < end and self.is_seen(item.content, item.name)]

    def counted(self, start: datetime, end: datetime, *, is_distinct: bool) -> Counted:
        """What DuckDB counts in a period, with or without duplicates."""
        spans, at = [], start
        while at < end:
            spans.append((at, self.end_of(at)))
            at = spans[-1][1]
        return count(
            self.source,
            is_distinct=is_distinct,
            spans=spans,
            events=[
                (order, item.name, item.hour, happened, id_, region, index)
                for order, item in enumerate(self.objects)
                if self.is_seen(item.content, item.name)
                for index, (happened, id_, region) in enumerate(item.rows)
            ],
            rejects=[(key, each) for content, key, times in self.rejected if self.is_seen(content) for each in times],
            named=[
                (report.as_of, report.id, report.through, report.covers_from, window, key, number)
                for report in self.reports
                for window, numbers in (report.counts.items() or [(None, {})])
                for key, number in (numbers.items() or [(None, None)])
            ],
        )


class _Port:
    def __init__(self, port: Any, calls: Counter[str], fault: Fault, happen: Callable[[], None]) -> None:
        self._port, self._calls, self._fault, self._happen = port, calls, fault, happen

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._calls[name] += 1
            is_now = (name, self._calls[name]) == (self._fault.method, self._fault.number)
            if is_now and not self._fault.after:
                self._happen()
            answer = method(*arguments, **named)
            if is_now and self._fault.after:
                self._happen()
            return answer

        return call


def hours_between(start: datetime, end: datetime) -> set[datetime]:
    """The UTC hours that a time touches."""
    hour, found = start.astimezone(UTC).replace(minute=0), set()
    while hour < end:
        found.add(hour)
        hour += HOUR
    return found
