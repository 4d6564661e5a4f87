"""The message that a period has changed, and the list of the files that it consists of."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from slackwater.model import Record, json_schema
from slackwater.runs.periods.read_parts import PartReader
from slackwater.state.completeness import CountState
from slackwater.state.facts import HOUR, HourFacts
from slackwater.state.fold import Period, PeriodState
from slackwater.storage import ObjectStore

LISTS = "state/"
"""The prefix of the exchange bucket below which lists of files are: no rule watches it."""


class WindowChange(Record):
    """The events of one window."""

    start: datetime
    """UTC."""
    end: datetime
    state: CountState
    sent: int | None
    """None without a report."""
    stored: int
    rejected: int
    missing: int


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
        windows=tuple(WindowChange(**window._asdict(), missing=window.missing) for window in state.windows),
        files=files,
    )


def save_list(
    period: Period, state: PeriodState, facts: Mapping[datetime, HourFacts], *, reader: PartReader, bucket: str
) -> str:
    """Store the list of the files that a state counts, and return its URI. It is the same for the same files."""
    store: ObjectStore = reader.store
    source = state.source
    files = [
        {"uri": reader.uri(source, hour, part.name), "events": sum(part.bins), "bytes": part.bytes}
        for hour in period.hours
        for part in sorted(facts[hour].parts)
    ]
    uri = f"s3://{bucket}/{LISTS}{source}/{state.start.isoformat()[:13]}/{state.parts}.json"
    # Also if it exists: it expires some time after it was written.
    store.put(uri, json.dumps({"source": source, "files": files}, separators=(",", ":")).encode())
    return uri


if __name__ == "__main__":
    sys.stdout.write(json_schema(PeriodChanged))
