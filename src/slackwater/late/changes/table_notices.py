"""Notifies people that a published day has read days of other pipelines which have changed: `on_change: notify`.

Each version of such a day is in one message. As in `slackwater.late.changes.notify`, the message is claimed in the
record of the day before it is sent, and a message that may have been sent is not sent again: an alarm fires instead.
`python -m slackwater.late.changes.table_notices` prints the JSON Schema of the document that programs receive, as
docs/contracts/table-change.schema.json holds it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import uuid4

from slackwater.errors import DayChanged, ResponseLost, SlackwaterError
from slackwater.formatting import counted
from slackwater.late.changes.notify import NotificationTopic, message_attributes
from slackwater.late.decision import DayDecision, TableChange
from slackwater.late.effect import Severity
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import DayRecord, TableNotice
from slackwater.runs.table import MAX_WRITES, Executions, RunTable, is_alive, update_day

_WHAT = "people were notified of its changed tables"
# Changed days that the body and the document name, and the subject.
_MAX_CHANGES, _MAX_IN_LINE = 40, 3


class TableChangeDocument(Record):
    """Which days of other pipelines have changed since a day was published from earlier versions of them."""

    version: Literal[1] = 1
    """Of this format. Later versions only add fields, unless the number changes."""
    pipeline: str
    date: str
    team: str
    """The team that owns the table; empty if the pipeline names none."""
    severity: Literal[Severity.INFO] = Severity.INFO
    summary: str
    """The subject of the e-mail."""
    changed_days: int
    """Entries of `changes` if none were left out."""
    changes: tuple[TableChange, ...]
    """At most 40."""


@dataclass(frozen=True, kw_only=True)
class TableNotifier:
    """Sends the messages."""

    table: RunTable
    executions: Executions
    topic: NotificationTopic
    now: Callable[[], datetime]
    on_outcome_unknown: Callable[[str, str], None]
    """Called with pipeline and date when a message may or may not have been sent; it puts the metric of an alarm."""

    def notify(self, definition: Pipeline, day: DayDecision, *, execution: str) -> bool:
        """Send a message about the changes of the day that no message has named; return whether one was sent.

        `execution` is the ARN of the monitoring. Raises the topic's error when the topic has refused the message
        (nothing was sent, the next check tries again), and `DayChanged` when the day's record keeps changing.
        """
        call = uuid4().hex
        for _ in range(MAX_WRITES):
            record = self.table.day(day.pipeline, day.date)
            notice = record.table_notice
            if notice and notice.call == call:
                # An earlier iteration has written it, but lost the response.
                return self._send(definition, day, notice)
            if notice and not notice.is_settled:
                if notice.execution != execution and self._is_alive(notice):
                    return False
                self.on_outcome_unknown(day.pipeline, day.date)
            changed = self._next_notice(record, day, call=call, execution=execution)
            try:
                if changed != notice:
                    self.table.save_day(record.model_copy(update={"table_notice": changed}))
            except DayChanged:
                continue
            if changed is None or changed.call != call:
                return False
            return self._send(definition, day, changed)
        raise DayChanged(f"{day.pipeline}: {day.date} kept changing while {_WHAT}")

    def _next_notice(self, record: DayRecord, day: DayDecision, *, call: str, execution: str) -> TableNotice | None:
        """Return what to store: a claim if the day has changes without a message, else the notice as it is, settled."""
        notice, published = record.table_notice, record.published
        if notice:
            notice = notice.model_copy(update={"is_settled": True})
        new = _changes_without_message(notice, day)
        if not new or published is None or published.run.attempt != day.attempt:
            return notice
        earlier = _named_versions(notice, day)
        return TableNotice(
            # Also of days that have the version of the run again: another change of theirs may lead back.
            versions=earlier | {change.name: change.version for change in day.table_changes},
            earlier=earlier,
            attempt=published.run.attempt,
            reason=describe_changes(day.table_changes),
            since=self.now(),
            execution=execution,
            call=call,
        )

    def _send(self, definition: Pipeline, day: DayDecision, claim: TableNotice) -> bool:
        """Send the claimed message. Settle the claim, or undo it if the topic has refused the message."""
        new = [change for change in day.table_changes if claim.earlier.get(change.name) != change.version]
        subject, body = compose(day, new)
        document = TableChangeDocument(
            pipeline=day.pipeline,
            date=day.date,
            team=definition.team,
            summary=subject,
            changed_days=len(new),
            changes=tuple(new[:_MAX_CHANGES]),
        )
        attributes = message_attributes(
            pipeline=day.pipeline, date=day.date, severity=Severity.INFO, team=definition.team
        )
        try:
            self.topic.publish(subject=subject, body=body, document=document.model_dump_json(), attributes=attributes)
        except ResponseLost:
            self.on_outcome_unknown(day.pipeline, day.date)
            self._settle(day, claim, {"is_settled": True})
            return False
        except SlackwaterError:
            self._settle(day, claim, {"is_settled": True, "versions": claim.earlier})
            raise
        self._settle(day, claim, {"is_settled": True, "earlier": {}})
        return True

    def _settle(self, day: DayDecision, claim: TableNotice, update: dict[str, object]) -> None:
        """Change the claim in the day's record, unless another one has replaced it."""

        def change(record: DayRecord) -> DayRecord:
            if record.table_notice != claim:
                return record
            return record.model_copy(update={"table_notice": claim.model_copy(update=update)})

        update_day(self.table, day.pipeline, day.date, change, what=_WHAT)

    def _is_alive(self, notice: TableNotice) -> bool:
        return is_alive(self.executions, notice.execution, since=notice.since, now=self.now())


def _named_versions(notice: TableNotice | None, day: DayDecision) -> dict[str, str]:
    """Return the latest version of each changed day that a message about the published attempt has named."""
    return notice.versions if notice and notice.attempt == day.attempt else {}


def _changes_without_message(notice: TableNotice | None, day: DayDecision) -> list[TableChange]:
    known = _named_versions(notice, day)
    return [change for change in day.table_changes if known.get(change.name) != change.version]


def describe_changes(changes: Sequence[TableChange]) -> str:
    """Return the changes in one line: `daily_sales 2013-03-10: 10 -> 11 rows`."""
    shown = "; ".join(
        f"{change.day}: {change.rows_before:,} -> {counted(change.rows_now, 'row')}"
        for change in changes[:_MAX_IN_LINE]
    )
    left_out = len(changes) - _MAX_IN_LINE
    return f"{shown}; {left_out:,} more" if left_out > 0 else shown


def compose(day: DayDecision, changes: list[TableChange]) -> tuple[str, str]:
    """Return the subject and the body of the message."""
    lines = "\n".join(
        f"  {change.day}: {change.rows_before:,} -> {counted(change.rows_now, 'row')}"
        for change in changes[:_MAX_CHANGES]
    )
    left_out = len(changes) - _MAX_CHANGES
    more = f"\n  {left_out:,} more" if left_out > 0 else ""
    subject = f"{day.pipeline} {day.date}: {describe_changes(changes)}"
    body = (
        f"{day.pipeline} was published for {day.date} from earlier versions of these days:\n{lines}{more}\n\n"
        f"The day is not run again, because `on_change` of the table is `notify`. To run it with the new versions:\n"
        f"  slackwater run {day.pipeline} --date {day.date}\n"
    )
    return subject, body


def table_change_contract() -> str:
    """Return the JSON Schema of the document, as docs/contracts/table-change.schema.json holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TableChangeDocument.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table_change_contract())
