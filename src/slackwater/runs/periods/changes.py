"""The message that a period has changed, and the list of the files that it consists of."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from slackwater.model import Record, json_schema
from slackwater.runs.periods.read_parts import PartReader
from slackwater.sources.counts import value_of
from slackwater.state.completeness import CountState, KeyCounts
from slackwater.state.facts import HOUR, HourFacts, Part, total_of
from slackwater.state.fold import Period, PeriodState, WindowState
from slackwater.storage import ObjectStore

LISTS = "state/"
"""The prefix of the exchange bucket below which lists of files are: no rule watches it."""


class WindowChange(Record):
    """The events of one window."""

    start: datetime
    """UTC."""
    end: datetime
    value: str | None
    """Of the column by which the source counts, or `other`: a time has a window of each. None without a column."""
    state: CountState
    sent: int | None
    """None without a report."""
    stored: int
    rejected: int
    missing: int


class ValueChange(Record):
    """The events of one value in a period."""

    value: str
    state: CountState
    sent: int | None
    stored: int
    rejected: int
    missing: int
    surplus: int


class PeriodChanged(Record):
    """The detail of the event `Slackwater Period Changed`. It may come more than once, and in another order.

    Of two about one period, the one with the larger version is newer.
    """

    source: str
    start: datetime
    """UTC."""
    end: datetime
    unit: Literal["hour", "day"]
    state: CountState
    version: int
    sent: int | None
    stored: int
    rejected: int
    missing: int
    surplus: int
    values: tuple[ValueChange, ...]
    """Of a source that counts by a column: `state` is that of the worst value. Otherwise empty."""
    windows: tuple[WindowChange, ...]
    files: str | None
    """URI of the list of the files that `stored` counts; None while the state is unknown."""


PutsChanges = Callable[[Sequence[PeriodChanged]], None]
"""Sends messages to the event bus. Raises `CloudError`; some may have been sent even then."""


def period_changed(state: PeriodState, files: str | None) -> PeriodChanged:
    """Return the message about a state; `files` is the URI of the list."""
    return PeriodChanged(
        source=state.source,
        start=state.start,
        end=state.end,
        unit="hour" if state.end - state.start == HOUR else "day",
        state=state.state,
        version=state.version,
        sent=state.sent,
        stored=state.stored,
        rejected=state.rejected,
        missing=state.missing,
        surplus=state.surplus,
        values=value_changes(state.values),
        windows=tuple(_window(window) for window in state.windows),
        files=files,
    )


def value_changes(values: Iterable[KeyCounts]) -> tuple[ValueChange, ...]:
    """Return the events of each value; none of a source that counts without a column."""
    return tuple(
        ValueChange(value=value, missing=each.missing, surplus=each.surplus, **_without_key(each))
        for each in values
        if (value := value_of(each.key)) is not None
    )


def _window(window: WindowState) -> WindowChange:
    return WindowChange(value=value_of(window.key), missing=window.missing, **_without_key(window))


def _without_key(counts: KeyCounts | WindowState) -> dict[str, Any]:
    return {name: value for name, value in counts._asdict().items() if name != "key"}


def save_list(
    period: Period, state: PeriodState, facts: Mapping[datetime, HourFacts], *, reader: PartReader, bucket: str
) -> str:
    """Store the list of the files that a state counts, and return its URI. It is the same for the same files."""
    store: ObjectStore = reader.store
    source = state.source
    files = [file for hour in period.hours for file in _files(reader, source, hour, sorted(facts[hour].parts))]
    uri = f"s3://{bucket}/{LISTS}{source}/{state.start.isoformat()[:13]}/{state.parts}.json"
    # Also if it exists: it expires some time after it was written.
    store.put(uri, json.dumps({"source": source, "files": files}, separators=(",", ":")).encode())
    return uri


def _files(reader: PartReader, source: str, hour: datetime, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Yield the files of an hour: a packed object has the events of its members, in the place of the first one."""
    members, packed = reader.members(source, hour), dict[str, dict[str, Any]]()
    for part in parts:
        uri, events = reader.uri(source, hour, part.name), total_of(part.bins)
        place = members[uri].packed if uri in members else None
        if place is None:
            yield {"uri": uri, "events": events, "bytes": part.bytes}
        elif place.uri in packed:
            packed[place.uri]["events"] += events
            packed[place.uri]["members"].append(uri.rpartition("/")[2])
        else:
            file = {"uri": place.uri, "events": events, "bytes": place.size, "members": [uri.rpartition("/")[2]]}
            yield packed.setdefault(place.uri, file)


if __name__ == "__main__":
    sys.stdout.write(json_schema(PeriodChanged))
