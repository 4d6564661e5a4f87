"""Facts about the UTC hours of a source, and the table that holds them.

A fact never changes, and its key is its content: to store it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

Histogram = Mapping[str, tuple[int, ...]]
"""Events by five minutes, for each key of `slackwater.sources.counts.Counts.keys`: 12 numbers for an hour."""
HOUR = timedelta(hours=1)
BINS = 12
"""An hour has so many bins of five minutes."""
KEPT = timedelta(days=400)
"""For so long after their hour facts are kept."""
_FILE = "file-"


class HourReport(NamedTuple):
    """What one report says about the windows that begin in one UTC hour."""

    as_of: datetime
    """When the reporter has counted, UTC. The newest report that names a window decides about it."""
    id: str
    """Digest of the whole report."""
    through: datetime
    """The reporter has sent all events before this instant, UTC."""
    window: str
    """For how long each number counts: `5m`, `10m`, `1h` or `day`."""
    counts: Mapping[int, Mapping[str, int]]
    """The events sent, by the minute of the hour at which their window begins, and by keys."""
    keys: tuple[str, ...]
    """The keys by which the source counted then."""
    principal: str
    """Who has reported: `push:<partner>`, or `file:<path>`."""


class RejectedEvents(NamedTuple):
    """The rejected events of one batch, or of one content of a file, whose timestamps are in one UTC hour."""

    origin: str
    """The id of the batch. Of a file: `file-<content id>-<digest of what was read>`."""
    bins: Histogram
    unplaced: int = 0
    """Events whose timestamp or value is not readable, in the hour in which they were received. They count in no
    window."""


class Part(NamedTuple):
    """One object of raw events of a UTC hour."""

    name: str
    """The name of the object in its partition, without `.parquet`."""
    bins: Histogram
    bytes: int
    written: datetime
    """When the object was written, UTC."""


def regrouped(bins: Histogram, keys: tuple[str, ...]) -> Histogram | None:
    """Return the events by these keys; None if the histogram does not tell their values apart."""
    *values, others = keys
    if values and not bins.keys() >= set(keys):
        return None
    rest = [numbers for key, numbers in bins.items() if key not in values]
    return {**{key: bins[key] for key in values}, others: tuple(map(sum, zip(*rest, strict=True)))}


def added(histograms: Iterable[Histogram], keys: tuple[str, ...]) -> Histogram:
    """Return the events of histograms of an hour by these keys, without those that do not tell the values apart."""
    found = [each for each in (regrouped(bins, keys) for bins in histograms) if each]
    return {key: tuple(map(sum, zip((0,) * BINS, *(each[key] for each in found), strict=True))) for key in keys}


def joined(histograms: Iterable[Histogram], keys: tuple[str, ...]) -> Histogram:
    """Return the histogram of hours that follow each other."""
    hours = list(histograms)
    return {key: tuple(number for hour in hours for number in hour[key]) for key in keys}


def total_of(bins: Histogram) -> int:
    """Return the number of all events."""
    return sum(map(sum, bins.values()))


class HourFacts(NamedTuple):
    """All facts about one UTC hour."""

    reports: tuple[HourReport, ...] = ()
    rejected: tuple[RejectedEvents, ...] = ()
    parts: tuple[Part, ...] = ()
    """Only where the states of periods are computed: all others count what they list."""


def file_origin(content: str, digest: str) -> str:
    """Return the origin of the rejected rows of a file: by its content, and the digest of what was read of it."""
    return f"{_FILE}{content}-{digest}"


def content_of(origin: str) -> tuple[str, str] | None:
    """Return the content and the digest of a `file_origin`; None for the origin of a batch."""
    if not origin.startswith(_FILE):
        return None
    content, _, digest = origin.removeprefix(_FILE).partition("-")
    return content, digest


class Coverage(NamedTuple):
    """The time that all reports of a source cover, UTC."""

    first: datetime
    """The first window that a report names; at most `KEPT` before `through`."""
    through: datetime
    """The latest `through` of a report. That of a report may be later in the hours that it names (`moved_ends`)."""


class Report(NamedTuple):
    """How many events a reporter has sent."""

    source: str
    as_of: datetime
    through: datetime
    window: str
    counts: Mapping[datetime, Mapping[str, int]]
    """By the UTC instant at which the window begins, and by keys; a window before `through` without a number has
    none."""
    keys: tuple[str, ...]
    """The keys by which the source counts."""
    covers_from: datetime
    """The first window that the report names, or the last one before `through`."""
    principal: str
    id: str
    """Digest of all other fields."""


def hours_between(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the UTC hours that the time touches, in order; none if it is empty."""
    hour = start.replace(minute=0, second=0, microsecond=0)
    while start < end and hour < end:
        yield hour
        hour += HOUR


def moved_ends(report: Report, covered: Coverage | None) -> dict[str, datetime]:
    """Return the fields of `Coverage` that have to be stored after a report; `covered` is what was stored before.

    The hours that a report names have its `through` in their own facts. So most reports of an hour move no end: only
    the first one says something about the hour before.
    """
    if covered is None:
        return {"first": report.covers_from, "through": report.through}
    named = {start.replace(minute=0) for start in report.counts}
    ends = {"first": report.covers_from} if report.covers_from < covered.first else {}
    if not named.issuperset(hours_between(covered.through, report.through)):
        ends["through"] = report.through
    return ends


class StateTable(Protocol):
    """Stores facts. All methods raise `CloudError`; a call that is repeated changes nothing."""

    def put_report(self, report: Report) -> None:
        """Store what a report says about each hour."""

    def put_rejected(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        """Store rejected events by the UTC hour of their timestamps."""

    def facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours. The reads are consistent."""

    def coverage(self, source: str) -> Coverage | None:
        """Return what the reports of the source cover; None without a report."""
