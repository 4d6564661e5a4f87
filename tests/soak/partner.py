"""A partner that delivers a file every five minutes, and whatever else a real one does to its files."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import count
from random import Random
from typing import BinaryIO, NamedTuple
from zoneinfo import ZoneInfo

from slackwater.errors import FileVanished, PartnerError
from slackwater.receiver.connectors.connector import Download, ListedFile
from slackwater.sources.definition import Source
from slackwater.sources.file_pattern import FilePattern

INTERVAL = timedelta(minutes=5)
HEADER = "id,at,count\n"
FOREVER = datetime.max.replace(tzinfo=UTC)

Hour = tuple[str, str]
"""UTC date and hour of a partition."""


@dataclass(frozen=True)
class Definition:
    """A definition of the source, in the words of this account."""

    name: str
    timezone: str = "UTC"
    count_type: str = "int64"
    count_required: bool = False
    null_values: tuple[str, ...] = ("", "NA")
    delimiter: str = ","
    quote: str | None = '"'

    @cached_property
    def source(self) -> Source:
        return Source.model_validate(
            {
                "source": "things",
                "timestamp": {"field": "at", "timezone": self.timezone},
                "event_id": "id",
                "null_values": self.null_values,
                "fields": {
                    "id": {"type": "string", "required": True},
                    "at": "timestamp",
                    "count": {"type": self.count_type, "required": self.count_required},
                },
                "pull": {
                    "url": "http://127.0.0.1:1/things",
                    "files": "things-{date}-*.csv",
                    "lookback_days": 3,
                    "format": {"type": "csv", "delimiter": self.delimiter, "quote": self.quote},
                },
            }
        )

    @cached_property
    def digest(self) -> str:
        return self.source.reading_digest


BASE = Definition("utc")
DEFINITIONS = (
    BASE,
    Definition("Tokyo", timezone="Asia/Tokyo"),
    Definition("Kolkata", timezone="Asia/Kolkata"),
    Definition("count required", count_required=True),
    Definition("NA is a value", null_values=("",)),
    Definition("count is a string", count_type="string"),
    Definition("no quotes", quote=None),
)
WRONG = Definition("wrong delimiter", delimiter=";")
"""It reads no file, so it is corrected after some hours."""


class Row(NamedTuple):
    """A row of a file, as strings."""

    id: str
    at: str
    count: str

    def hour(self, definition: Definition) -> Hour | None:
        """Return the partition of the row; None if the definition rejects it."""
        if not self.id or not self.at:
            return None
        is_null = self.count in definition.null_values
        if (is_null and definition.count_required) or not (
            is_null or definition.count_type == "string" or self.count.isdecimal()
        ):
            return None
        at = datetime.fromisoformat(self.at)
        utc = (at if at.tzinfo else at.replace(tzinfo=ZoneInfo(definition.timezone))).astimezone(UTC)
        return utc.strftime("%Y-%m-%d"), utc.strftime("%H")


class Body(NamedTuple):
    """The content of a file."""

    id: str
    """The first 32 digits of its SHA-256."""
    rows: tuple[Row, ...] | None
    """None if no definition can read it."""
    data: bytes

    def is_readable(self, definition: Definition) -> bool:
        return self.rows is not None and definition.delimiter == ","


def body_of(rows: Sequence[Row]) -> Body:
    data = "".join([HEADER, *(f"{row.id},{row.at},{row.count}\n" for row in rows)]).encode()
    return Body(hashlib.sha256(data).hexdigest()[:32], tuple(rows), data)


class PartnerFile(NamedTuple):
    """A file at the partner."""

    body: Body
    listed: ListedFile


class Partner:
    """A partner whose files change with the clock; a new one follows after each `interval`."""

    def __init__(
        self, clock: Callable[[], datetime], random: Random, *, start: datetime, end: datetime, interval: timedelta
    ) -> None:
        self.clock, self.random, self.end, self.interval = clock, random, end, interval
        self.files: dict[date, dict[str, PartnerFile]] = defaultdict(dict)
        self.bodies: dict[str, Body] = {}
        self.broken: dict[str, datetime] = {}
        """Files for which the partner answers 500, and until when."""
        self.done = Counter[str]()
        """Number of each change of files."""
        self._events: list[tuple[datetime, int, Callable[[], object]]] = []
        self._number, self._row_ids, self._recent = count(), count(), list[Row]()
        self._at(start, lambda: self._generate(start))

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        return [file.listed for day in days for file in self.files.get(day, {}).values()]

    def fetch(self, name: str) -> Body:
        """Return the content of a file. Raises `PartnerError`, `FileVanished`."""
        if self.clock() < self.broken.get(name, self.clock()):
            raise PartnerError(f"{name}: answered 500")
        file = self.current(name)
        if file is None:
            raise FileVanished(f"{name}: gone")
        return file.body

    def current(self, name: str) -> PartnerFile | None:
        return self.files.get(date_of(name), {}).get(name)

    def go_on(self) -> None:
        """Do what the partner has done until now."""
        while self._events and self._events[0][0] <= self.clock():
            heapq.heappop(self._events)[2]()

    def _at(self, instant: datetime, act: Callable[[], object]) -> None:
        if instant < self.end:
            heapq.heappush(self._events, (instant, next(self._number), act))

    def _generate(self, at: datetime) -> None:
        """Generate the file of five minutes, and what will happen to it."""
        random, name = self.random, f"things-{at:%Y-%m-%d-%H%M}.csv"
        late = timedelta(hours=random.uniform(0, 20)) if random.random() < 0.03 else timedelta(0)
        first = body_of([] if random.random() < 0.03 else self._rows(at, random.randint(1, 5)))
        if random.random() < 0.004:
            first = self._unreadable()
        self._deliver_at(at + late, name, first, "late" if late else "new")
        later = at + late + timedelta(hours=random.uniform(0.1, 12))
        chance = random.random()
        if chance < 0.02:
            self._deliver_at(later, name, body_of(self._rows(at, random.randint(1, 5))), "replaced")
        elif chance < 0.04:
            rows = list(first.rows or [])
            for step in range(1, 4):
                rows = [*rows, *self._rows(at, random.randint(1, 2))]
                self._deliver_at(later + timedelta(hours=random.uniform(0, 2) * step), name, body_of(rows), "grown")
        elif chance < 0.05:
            self._deliver_at(later, name, first, "uploaded again")
        elif chance < 0.06:
            self._deliver_at(later, name.replace(".csv", "-copy.csv"), first, "second name")
        elif chance < 0.065:
            self._at(later, lambda: self._remove(name))
        elif chance < 0.068:
            # There, away, and back again.
            self._at(later, lambda: self._remove(name))
            self._deliver_at(later + timedelta(hours=random.uniform(0.1, 6)), name, first, "came back")
        if first.rows is None and random.random() < 0.7:
            after = timedelta(hours=random.uniform(1, 24))
            self._deliver_at(at + late + after, name, body_of(self._rows(at, 3)), "corrected")
        if random.random() < 0.008:
            until = FOREVER if random.random() < 0.2 else at + late + timedelta(hours=random.uniform(1, 60))
            self.broken[name] = until
            self.done["broken for ever" if until == FOREVER else "broken"] += 1
        self._at(at + self.interval, lambda: self._generate(at + self.interval))

    def _rows(self, at: datetime, number: int) -> list[Row]:
        rows = [self._row(at) for _ in range(number)]
        # An event that another file, or the same one, has sent before.
        if self._recent and self.random.random() < 0.05:
            rows.append(self.random.choice(self._recent))
        self._recent = [*self._recent[-20:], *rows]
        return rows

    def _row(self, at: datetime) -> Row:
        random, number = self.random, next(self._row_ids)
        early = timedelta(minutes=random.uniform(0, 60 * 30 if random.random() < 0.04 else 20))
        local, chance = (at - early).strftime("%Y-%m-%dT%H:%M:%S"), random.random()
        value = "" if chance < 0.03 else "NA" if chance < 0.06 else "many" if chance < 0.09 else str(number)
        if chance > 0.99:
            return Row(f"e{number}", "", value)
        if chance > 0.98:
            return Row("", local, value)
        return Row(f"e{number}", f"{local}Z" if chance > 0.9 else local, value)

    def _unreadable(self) -> Body:
        data = f"<html>error {next(self._row_ids)}</html>\n".encode()
        return Body(hashlib.sha256(data).hexdigest()[:32], None, data)

    def _deliver_at(self, instant: datetime, name: str, body: Body, what: str) -> None:
        self._at(instant, lambda: self._deliver(name, body, what))

    def _deliver(self, name: str, body: Body, what: str) -> None:
        digest = hashlib.sha256(body.data).hexdigest()
        listed = ListedFile(name=name, size=len(body.data), etag=digest[:8])
        self.files[date_of(name)][name] = PartnerFile(body, listed)
        self.bodies[body.id] = body
        self.done[what] += 1

    def _remove(self, name: str) -> None:
        if self.files[date_of(name)].pop(name, None):
            self.done["removed"] += 1


class Delivery:
    """`slackwater.receiver.connectors.connector.Connector` for one process, with what it was delivered."""

    def __init__(self, partner: Partner) -> None:
        self.list = partner.list
        self.bodies = list[Body]()
        self._partner = partner

    def fetch(self, name: str, into: BinaryIO) -> Download:
        body = self._partner.fetch(name)
        into.write(body.data)
        into.flush()
        self.bodies.append(body)
        digest = hashlib.sha256(body.data).hexdigest()
        return Download(sha256=digest, size=len(body.data), etag=digest[:8])


def date_of(name: str) -> date:
    """Return the date in the name of a file."""
    return date.fromisoformat(name[7:17])
