"""Notifies people that a published day has read days of other pipelines which have changed: `on_change: notify`.

Each version of such a day is in one message, which is claimed in the record of the day.
`python -m slackwater.late.changes.table_notices` prints the JSON Schema of the document that programs receive, as
docs/contracts/table-change.schema.json holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slackwater.formatting import counted
from slackwater.late.changes.outbox import Outbox
from slackwater.late.decision import DayDecision, TableChange
from slackwater.late.effect import Severity
from slackwater.late.report.document import Document
from slackwater.model import json_schema
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import DayRecord, TableNotice
from slackwater.runs.table import RunTable, update_day

_WHAT = "people were notified of its changed tables"
# Changed days that the body and the document name, and the subject.
_MAX_CHANGES, _MAX_IN_LINE = 40, 3


class TableChangeDocument(Document):
    """Which days of other pipelines have changed since a day was published from earlier versions of them."""

    date: str
    severity: Literal[Severity.INFO] = Severity.INFO
    changed_days: int
    """Entries of `changes` if none were left out."""
    changes: tuple[TableChange, ...]
    """At most 40."""


@dataclass(frozen=True, kw_only=True)
class TableNotifier:
    """Sends the messages."""

    table: RunTable
    outbox: Outbox

    def notify(self, definition: Pipeline, day: DayDecision, *, execution: str) -> bool:
        """Send a message about the changes of the day that no message has named; return whether one was sent.

        `execution` is the ARN of the monitoring. Raises as `Outbox.send_once` does.
        """
        messages = _TableMessages(self.table, definition.team, day)
        return self.outbox.send_once(day.pipeline, messages, execution=execution)


@dataclass
class _TableMessages:
    """The messages about one day: `slackwater.late.changes.outbox.Messages`."""

    table: RunTable
    team: str
    day: DayDecision
    attempt: int = 0
    """The attempt that has published the day when its notice is updated; 0 without one."""

    @property
    def date(self) -> str:
        return self.day.date

    def update(self, change: Callable[[TableNotice | None], TableNotice | None]) -> TableNotice | None:
        def changed(record: DayRecord) -> DayRecord:
            self.attempt = record.published.run.attempt if record.published else 0
            return record.model_copy(update={"table_notice": change(record.table_notice)})

        return update_day(self.table, self.day.pipeline, self.day.date, changed, what=_WHAT).table_notice

    def claim(self, latest: TableNotice | None, own: Mapping[str, Any]) -> TableNotice | None:
        # The versions of the changed days that a message about the published attempt has named.
        earlier = latest.versions if latest and latest.attempt == self.day.attempt else {}
        if self.attempt != self.day.attempt or not _changes_since(earlier, self.day):
            return latest
        return TableNotice(
            # Also of days that have the version of the run again: another change of theirs may lead back.
            versions=earlier | {change.name: change.version for change in self.day.table_changes},
            earlier=earlier,
            attempt=self.attempt,
            reason=describe_changes(self.day.table_changes),
            **own,
        )

    def settled(self, notice: TableNotice, *, is_refused: bool) -> TableNotice:
        versions = notice.earlier if is_refused else notice.versions
        return notice.model_copy(update={"is_settled": True, "versions": versions, "earlier": {}})

    def message(self, notice: TableNotice) -> tuple[TableChangeDocument, str]:
        new = _changes_since(notice.earlier, self.day)
        document = TableChangeDocument(
            pipeline=self.day.pipeline,
            date=self.day.date,
            team=self.team,
            summary=f"{self.day.pipeline} {self.day.date}: {describe_changes(new)}",
            changed_days=len(new),
            changes=tuple(new[:_MAX_CHANGES]),
        )
        return document, _body(document)


def _changes_since(versions: Mapping[str, str], day: DayDecision) -> list[TableChange]:
    """Return the changes of the day to other versions than these."""
    return [change for change in day.table_changes if versions.get(change.name) != change.version]


def describe_changes(changes: Sequence[TableChange]) -> str:
    """Return the changes in one line: `daily_sales 2013-03-10: 10 -> 11 rows`."""
    shown = "; ".join(map(_describe, changes[:_MAX_IN_LINE]))
    left_out = len(changes) - _MAX_IN_LINE
    return f"{shown}; {left_out:,} more" if left_out > 0 else shown


def _describe(change: TableChange) -> str:
    return f"{change.day}: {change.rows_before:,} -> {counted(change.rows_now, 'row')}"


def _body(document: TableChangeDocument) -> str:
    """Return the body of the message."""
    lines = "\n".join(f"  {_describe(change)}" for change in document.changes)
    left_out = document.changed_days - len(document.changes)
    more = f"\n  {left_out:,} more" if left_out > 0 else ""
    return (
        f"{document.pipeline} was published for {document.date} from earlier versions of these days:\n{lines}{more}\n\n"
        f"The day is not run again, because `on_change` of the table is `notify`. To run it with the new versions:\n"
        f"  slackwater run {document.pipeline} --date {document.date}\n"
    )


if __name__ == "__main__":
    sys.stdout.write(json_schema(TableChangeDocument))
