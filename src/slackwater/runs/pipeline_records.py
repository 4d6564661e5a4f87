"""What the run table stores about a pipeline beside its runs and days, most of it for checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from slackwater.model import Record, UpdatedRecord

MOST_OBJECTS = 100
"""From so many objects of a day on, further ones are not counted: the item stays small."""
MOST_DAYS = 1_000
"""Days that one read of the list returns at most."""
HISTORY_DAYS = 28
"""Of arrivals."""
_MASK = (1 << 24 * HISTORY_DAYS) - 1


class CountedRerun(UpdatedRecord):
    """A re-run that a check has decided on. Date and attempt identify it: a repeated check does not count it again."""

    date: str
    """The day that runs again."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that the re-run gets."""
    at: datetime
    """When the check decided, UTC."""
    usd: float | None = None
    """The estimated price; None if no run of the pipeline has a price yet."""


class RerunUsage(UpdatedRecord):
    """The re-runs of one pipeline that its checks have started on one calendar day.

    `version` counts the writes, as in `DayRecord`: parallel checks cannot both count the last re-run.
    """

    pipeline: str
    date: str
    """The calendar day in the pipeline's timezone."""
    version: int = 0
    reruns: tuple[CountedRerun, ...] = ()

    @property
    def usd(self) -> float:
        """The estimated price of all of them; those without an estimate count as 0."""
        return sum(item.usd or 0.0 for item in self.reruns)

    def has(self, date: str, attempt: int) -> bool:
        """Whether the re-run is counted."""
        return any((item.date, item.attempt) == (date, attempt) for item in self.reruns)


class LateDay(Record):
    """A published day with late data that waits for a run.

    Only this list names such a day after it has left the window: no check looks at all older days.
    """

    date: str
    since: datetime
    """When the day was listed, UTC."""
    last: datetime
    """When new data of the day was last seen, UTC."""
    objects: int = 0
    """New objects that events have named, at least: they are no longer counted from `MOST_OBJECTS` on. 0 if a check has
    listed the day."""


class LedgerDay(Record):
    """A day before the window, or about to leave it, whose late data the ledger may lack."""

    date: str
    last: datetime
    """When new data of the day was last seen, UTC."""


class DefinitionNotice(UpdatedRecord):
    """The message that a new definition would change published days. `version` counts the writes, as in `DayRecord`."""

    pipeline: str
    version: int = 0
    digest: str = ""
    """Of the definition; empty if the message was refused, or none was sent."""
    execution: str = ""
    """ARN of the Step Functions execution that sends the message."""
    call: str = ""
    """Unique for each message."""
    since: datetime | None = None
    """UTC."""
    is_settled: bool = False
    """Whether the message was sent, refused, or may have been sent; until then, the execution is about to send it."""


class ArrivalHistory(Record):
    """The hours of the last 28 days in which objects of a pipeline's sources were written, as its checks saw them.

    About 170 bytes for each source, however much it delivers.
    """

    pipeline: str
    last_hour: int = 0
    """The latest hour that it can have, in hours since 1970, UTC."""
    sources: dict[str, str] = {}
    """By source: a hexadecimal number, of which bit N is 1 if an object was written in the hour `last_hour - N`."""

    def with_arrivals(self, arrivals: Mapping[str, Iterable[datetime]], *, now: datetime) -> ArrivalHistory:
        """Return the history up to `now` of the sources of `arrivals`, with these times. Others are forgotten."""
        # Never back: two checks may write one after the other in the wrong order.
        last = max(self.last_hour, _hour(now))
        return self.model_copy(
            update={"last_hour": last, "sources": {name: self._merged(name, at, last) for name, at in arrivals.items()}}
        )

    def _merged(self, source: str, arrivals: Iterable[datetime], last: int) -> str:
        bits = int(self.sources.get(source, "0"), 16) << (last - self.last_hour)
        for hour in {_hour(at) for at in arrivals}:
            if hour <= last:
                bits |= 1 << (last - hour)
        return f"{bits & _MASK:x}"

    def hours(self, source: str) -> Collection[int]:
        """Return the hours in which the source has delivered, in hours since 1970, UTC, the latest first."""
        bits = int(self.sources.get(source, "0"), 16)
        return [self.last_hour - index for index in range(bits.bit_length()) if bits >> index & 1]


def _hour(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() // 3600)
