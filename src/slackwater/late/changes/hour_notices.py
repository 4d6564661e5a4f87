"""Notifies people of changed hours: one message has those of a calendar day of the pipeline's timezone.

Each hour is claimed in its own record, and its message is stored next to its comparison, as those of days are
(`notify`). `python -m slackwater.late.changes.hour_notices` prints the JSON Schema of the document that programs
receive, as docs/contracts/hours-change.schema.json holds it.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError

from slackwater.errors import ObjectInvalid, SlackwaterError
from slackwater.formatting import counted
from slackwater.late.changes.notify import NotificationResult, Notifier, ReadyMessage
from slackwater.late.comparison import Cause, RowCounts
from slackwater.late.effect import Severity
from slackwater.late.report.document import Document
from slackwater.late.report.headline import describe_causes
from slackwater.model import Record, first_error, json_schema
from slackwater.runs.period import period_of

_PARALLEL_HOURS = 8
# Of the minute that the function has. Messages after that have no costs.
_COSTS_SECONDS = 10


class ComparedHour(Record):
    """An hour whose published version was compared with the one that people know."""

    date: str
    """Its name, such as 2013-03-10T15."""
    comparison: str
    """URI of the `Comparison`."""


class ChangedHour(Record):
    """What has changed between the version of an hour that people know and the published one."""

    date: str
    """The hour of UTC, such as 2013-03-10T15."""
    causes: tuple[Cause, ...]
    """What has changed between the runs; empty if nothing has, or if it is unknown."""
    effect: str
    """The most important change in words: `flights 831 -> 883 (+6.3 %)`."""
    effect_percent: Annotated[float, Field(ge=0)] | None
    """The largest relative change of a metric in percent. None if a metric has become or stopped being 0 or empty."""
    attempt_before: int
    attempt_after: int
    rows: RowCounts
    cost_usd: float | None
    """Of the run that published the later version, in USD; None while it is unknown."""
    notification: str
    """URI of the whole document about the hour, as docs/contracts/change.schema.json describes it."""
    report: str
    """URI of the report as an HTML page."""


class HoursChangeDocument(Document):
    """Which hours of a calendar day have other versions than those that people know."""

    date: str
    """The day in `timezone`; an hour belongs to the day in which it begins."""
    timezone: str
    hours: tuple[ChangedHour, ...]
    """In order: at most 25."""
    correlation_id: str
    """As in the logs of the monitoring."""


class HourResults(NamedTuple):
    """What became of the messages about hours."""

    hours: Mapping[str, NotificationResult]
    """By the name of the hour."""
    messages: int
    """How many were sent."""


@dataclass(frozen=True, kw_only=True)
class HourNotifier:
    """Notifies people of changed hours."""

    notifier: Notifier

    def notify(self, *, pipeline: str, timezone: str, hours: Sequence[ComparedHour], execution: str) -> HourResults:
        """Send the messages that are due about the hours: one for those of each calendar day in the timezone.

        Raises as `Notifier.notify` does, when the messages about the other hours are sent. A repeated call sends no
        message twice.
        """
        started, errors = time.monotonic(), list[SlackwaterError]()

        def claim(hour: ComparedHour) -> tuple[ReadyMessage, NotificationResult | None] | None:
            with_costs = time.monotonic() - started < _COSTS_SECONDS
            # The claims of other hours are there already: their message has to be sent.
            try:
                ready = self.notifier.prepare(
                    pipeline=pipeline, **hour.model_dump(), execution=execution, with_costs=with_costs
                )
                return ready, self.notifier.claim(ready)
            except (SlackwaterError, ValidationError) as error:
                errors.append(error if isinstance(error, SlackwaterError) else ObjectInvalid(first_error(error)))
                return None

        results, messages = dict[str, NotificationResult](), 0
        for day, of_day in _by_day(hours, timezone).items():
            with ThreadPoolExecutor(_PARALLEL_HOURS) as pool:
                looks = [look for look in pool.map(claim, of_day) if look]
            results |= {ready.document.date: result for ready, result in looks if result}
            if not (claimed := [ready for ready, result in looks if result is None]):
                continue
            document = hours_document(day, timezone, claimed)
            try:
                sent = self.notifier.send(claimed, document, date=day, body=message_body(document, claimed))
            except SlackwaterError as error:
                errors.append(error)
                continue
            results |= {ready.document.date: result for ready, result in zip(claimed, sent, strict=True)}
            messages += any(result.notified for result in sent)
        if errors:
            raise errors[0]
        return HourResults(results, messages)


def _by_day(hours: Sequence[ComparedHour], timezone: str) -> Mapping[str, list[ComparedHour]]:
    """Return the hours in order by the calendar day in which they begin."""
    days, zone = defaultdict[str, list[ComparedHour]](list), ZoneInfo(timezone)
    for hour in sorted(hours, key=lambda item: item.date):
        days[period_of(hour.date, timezone).start.astimezone(zone).date().isoformat()].append(hour)
    return days


def hours_document(day: str, timezone: str, ready: Sequence[ReadyMessage]) -> HoursChangeDocument:
    """Return the document about the hours of one calendar day."""
    documents = [item.document for item in ready]
    largest = max(documents, key=lambda item: math.inf if item.effect_percent is None else item.effect_percent)
    first, fields = documents[0], set(ChangedHour.model_fields) - {"notification"}
    summary = first.summary
    if len(documents) > 1:
        hours = counted(len(documents), "hour")
        summary = f"{first.pipeline} {day}: {hours} changed, largest {largest.date}: {largest.effect}"
    severities = {item.severity for item in documents}
    return HoursChangeDocument(
        pipeline=first.pipeline,
        team=first.team,
        severity=Severity.WARNING if Severity.WARNING in severities else Severity.INFO,
        summary=summary,
        date=day,
        timezone=timezone,
        hours=tuple(
            ChangedHour(
                **item.model_dump(include=fields),
                notification=f"{item.comparison.rpartition('/')[0]}/notification.json",
            )
            for item in documents
        ),
        correlation_id=first.correlation_id,
    )


def message_body(document: HoursChangeDocument, ready: Sequence[ReadyMessage]) -> str:
    """Return the text of the message: about one hour the whole report, about several a line for each."""
    if len(ready) == 1:
        return ready[0].message.body
    name, latest = document.pipeline, document.hours[-1]
    lines = "\n".join(
        f"  {hour.date}  {hour.effect}, by {describe_causes(item.comparison)}"
        for hour, item in zip(document.hours, ready, strict=True)
    )
    hour = f"{name} --date {latest.date}"
    return (
        f"{len(ready)} hours of {name} on {document.date} ({document.timezone}) have changed. Hours are those of UTC:\n"
        f"{lines}\n\n"
        "Where to look\n"
        "  The changes of an hour between its two latest versions:\n"
        f"    slackwater diff {hour}\n"
        "  All versions of an hour:\n"
        f"    slackwater history {hour}\n"
        "  To publish the version before again:\n"
        f"    slackwater rollback {hour} --to {latest.attempt_before} --reason TEXT\n"
    )


if __name__ == "__main__":
    sys.stdout.write(json_schema(HoursChangeDocument))
