"""What people and programs are shown of the side-line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from slackwater.cli.output import say, table
from slackwater.formatting import counted
from slackwater.receiver.writing.rejects_reader import RejectedDay, RejectedEventOnDay

_TEXT = 60
"""Characters of an event's text, on a terminal."""


def show_days(days: Iterable[RejectedDay]) -> None:
    """Print a line for each source and day."""
    rows = [(day.date, day.source, day.events, day.batches, _by_rule(day)) for day in days]
    table(("date (UTC)", "source", "rejected", "batches", "by rule"), rows)


def show_events(source: str, events: Sequence[RejectedEventOnDay]) -> None:
    """Print a table for each batch or file that they came in."""
    for (date, batch, origin), found in groupby(events, lambda one: (one.date, one.record.batch_id, one.record.origin)):
        records = [one.record for one in found]
        say(f"{source} {date}: {counted(len(records), 'event')} of batch {batch}, {origin}", style="bold")
        rows = [(record.index, record.line, record.rule, record.reason, _cut(record.text)) for record in records]
        table(("index", "line", "rule", "reason", "text"), rows)


def described_day(day: RejectedDay) -> dict[str, Any]:
    """Return a source's day as its JSON document."""
    return {
        "source": day.source,
        "date": day.date,
        "rejected": day.events,
        "batches": day.batches,
        "rules": dict(day.rules.most_common()),
    }


def described_event(event: RejectedEventOnDay) -> dict[str, Any]:
    """Return a rejected event as its JSON document."""
    return {"date": event.date, **event.record.model_dump()}


def _by_rule(day: RejectedDay) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in day.rules.most_common())


def _cut(text: str) -> str:
    return f"{text[: _TEXT - 3]}..." if sys.stdout.isatty() and len(text) > _TEXT else text
