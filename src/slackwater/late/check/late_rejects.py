"""Rejected events of days that had ended, for the ledger: no run takes them in.

Those that were accepted when they were sent again have rows of their own, to subtract. Their objects are late inputs
like others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from slackwater.late.check.read_facts import FactReader
from slackwater.late.decision import LateDecision, PendingDay
from slackwater.late.entry import EVENT_ACCEPTED, EVENT_REJECTED, REJECTED, LateInput
from slackwater.runs.period import period_at
from slackwater.sources.rejected_events import STORED, read_hours, redriven_from, redrives_prefix, rejects_prefix
from slackwater.storage import StoredObject

# A batch that is sent again, or a file that is read again, has the day of its first receipt.
_REPEATED_WITHIN = timedelta(days=2)
# After a longer time without a check of the window, what was rejected before is left out.
_LONGEST = timedelta(days=90)
MOST_OBJECTS = 500
"""Most objects of rejected events that one check reads, with the others of the last second: the next one goes on."""
_READERS = 16


class FoundRejects(NamedTuple):
    """Rejected events by day."""

    days: tuple[PendingDay, ...]
    until: datetime
    """Of the objects written before, all are among the days, or were among those of an earlier check."""


@dataclass(frozen=True, kw_only=True)
class RejectedInputs:
    """Reads the objects of rejected events that were written since the last check of the window."""

    reader: FactReader
    first_published: str | None
    """The first day of the pipeline that has a published run: events of earlier days are not late."""
    now: datetime

    def read(self) -> FoundRejects:
        """Return the rejected events whose day had ended when they were received.

        An event without a readable timestamp belongs to no day. Raises `CloudError`.
        """
        oldest = self.now - _LONGEST
        since = max(self.reader.table.rejects_until(self.reader.definition.pipeline) or oldest, oldest)
        found = sorted(self._objects(since), key=lambda item: (item[1].modified, item[1].uri))
        objects, until = found, self.now
        if len(found) > MOST_OBJECTS:
            # All of that second, and the next check begins behind it: otherwise, each would stop in the same second.
            last = found[MOST_OBJECTS - 1][1].modified
            objects = [item for item in found if item[1].modified <= last]
            until = min(last + timedelta(seconds=1), self.now)
        with ThreadPoolExecutor(_READERS) as pool:
            read = pool.map(lambda item: self._read(item[1]), objects)
            inputs = defaultdict[tuple[str, str], dict[str, LateInput]](dict)
            for (source, item), (rejected, counts, accepted) in zip(objects, read, strict=True):
                # What was rejected has its row also if an earlier check has passed over it: the ledger has none twice.
                for rule, stored, hours in ((EVENT_REJECTED, rejected, counts), (EVENT_ACCEPTED, item, accepted)):
                    for date, rows in self._late(rejected.modified, hours):
                        share = rows / sum(hours.values())
                        inputs[date, rule][stored.uri] = _input(source, stored, rows, share=share)
        return FoundRejects(tuple(_pending(*key, [*of_day.values()]) for key, of_day in sorted(inputs.items())), until)

    def _read(self, item: StoredObject) -> tuple[StoredObject, dict[datetime, int], dict[datetime, int]]:
        """Return an object of rejected events, their number by hour, and that of those that `item` says are accepted.

        The metadata of an object lacks the earliest of many hours: accepted events count in the hours that both have.
        """
        uri = redriven_from(item.uri) if item.uri.endswith(STORED) else item.uri
        head = self.reader.store.head(uri)
        if head is None:  # its retention has ended
            return item, {}, {}
        rejected, counts = StoredObject(uri, head.size, head.etag, head.modified), read_hours(head.metadata)
        if uri == item.uri:
            return rejected, counts, {}
        accepted = read_hours(self.reader.store.metadata(item.uri))
        return rejected, counts, {hour: count for hour, count in accepted.items() if hour in counts}

    def _objects(self, since: datetime) -> Iterator[tuple[str, StoredObject]]:
        """Yield the objects of all sources that were written since then, with their source."""
        bucket, first = self.reader.inputs.raw_bucket, since - _REPEATED_WITHIN
        # Of any day: events may be sent again long after they were received.
        for source in sorted(self.reader.definition.sources):
            for item in self.reader.store.list(redrives_prefix(bucket, source)):
                if item.uri.endswith(STORED) and item.modified >= since.replace(microsecond=0):
                    yield source, item
        for days in range((self.now.date() - first.date()).days + 1):
            date = (first.date() + timedelta(days=days)).isoformat()
            for source in sorted(self.reader.definition.sources):
                for item in self.reader.store.list(rejects_prefix(bucket, source, date)):
                    # The time of an object has no fractions of a second. The ledger has no row twice.
                    if item.modified >= since.replace(microsecond=0):
                        yield source, item

    def _late(self, at: datetime, hours: dict[datetime, int]) -> Iterator[tuple[str, int]]:
        """Yield the days that had ended at this instant, with their number of events."""
        dates = defaultdict[str, int](int)
        for hour, count in hours.items():
            period = period_at(hour, self.reader.definition)
            if self.first_published and period.end <= at:
                dates[period.name] += count
        yield from ((date, rows) for date, rows in dates.items() if date >= (self.first_published or date))


def _input(source: str, item: StoredObject, rows: int, *, share: float) -> LateInput:
    return LateInput(
        source=source,
        file=None,
        uri=item.uri,
        etag=item.etag,
        change=REJECTED,
        arrived=item.modified,
        rows=rows,
        bytes=round(item.size * share),
    )


def _pending(date: str, rule: str, inputs: Sequence[LateInput]) -> PendingDay:
    """Return the inputs of a day, with the rule as the decision about them."""
    commands = ", ".join(f"slackwater sideline show {source}" for source in sorted({item.source for item in inputs}))
    return PendingDay(
        date=date,
        decision=LateDecision.IGNORE,
        rule=rule,
        reason="the events were sent again and accepted: their objects have rows of their own"
        if rule == EVENT_ACCEPTED
        else f"the receiver has rejected the events ({commands})",
        attempt=0,
        inputs=tuple(inputs),
    )
