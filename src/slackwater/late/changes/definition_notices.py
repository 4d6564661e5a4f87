"""Notifies people once that a new definition would change published days: `on_definition: keep`.

The message is claimed in the run table before it is sent. As in `slackwater.late.changes.notify`, a message that may
have been sent is not sent again: an alarm fires instead. `python -m slackwater.late.changes.definition_notices` prints
the JSON Schema of the document that programs receive, as docs/contracts/definition-change.schema.json holds it.
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
from slackwater.late.decision import CheckReport, DayDecision, LateDecision
from slackwater.late.effect import Severity
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.definition_notice import DefinitionNotice
from slackwater.runs.table import Executions, RunTable, is_alive

_RUNS = frozenset({LateDecision.RERUN, LateDecision.DEFER})


class DefinitionChangeDocument(Record):
    """Which published days come from an earlier definition of their pipeline, and stay as they are."""

    version: Literal[1] = 1
    """Of this format. Later versions only add fields, unless the number changes."""
    pipeline: str
    team: str
    """The team that owns the table; empty if the pipeline names none."""
    severity: Literal[Severity.INFO] = Severity.INFO
    summary: str
    """The subject of the e-mail."""
    definition: str
    """Digest of the new definition."""
    changes: tuple[str, ...]
    """What has changed since the latest of these days was published, one entry for each input."""
    days: tuple[str, ...]
    """ISO dates of the window, in order."""


@dataclass(frozen=True, kw_only=True)
class DefinitionNotifier:
    """Sends the messages."""

    project: Project
    table: RunTable
    executions: Executions
    topic: NotificationTopic
    now: Callable[[], datetime]
    on_outcome_unknown: Callable[[str, str], None]
    """Called with the pipeline and the latest of the days when a message may or may not have been sent."""

    def notify(self, report: CheckReport, *, execution: str) -> bool:
        """Send a message about the days of a check that keep an earlier definition; return whether one was sent.

        Nothing is sent if the latest message was about the same definition. `execution` is the ARN of the monitoring.
        Raises the topic's error when the topic has refused the message: nothing was sent, the next check tries again.
        """
        definition, days = self.project.pipeline(report.pipeline), kept_days(report)
        if not days or definition.late.on_definition != "keep":
            return False
        digest, stored = self.project.written_digest(report.pipeline), self.table.definition_notice(report.pipeline)
        if stored.digest == digest:
            if not stored.is_settled and (stored.execution == execution or not self._is_alive(stored)):
                self.on_outcome_unknown(days[-1].pipeline, days[-1].date)
                self._save(stored.model_copy(update={"is_settled": True}))
            return False
        own = {"digest": digest, "execution": execution, "call": uuid4().hex, "since": self.now(), "is_settled": False}
        claim = self._save(stored.model_copy(update=own))
        return claim is not None and self._send(definition, days, claim)

    def _send(self, definition: Pipeline, days: Sequence[DayDecision], claim: DefinitionNotice) -> bool:
        """Send the claimed message, and settle the claim; undo it if the topic has refused the message."""
        document = definition_document(definition, days, digest=claim.digest)
        settled = claim.model_copy(update={"is_settled": True})
        attributes = message_attributes(
            pipeline=definition.pipeline, date=document.days[-1], severity=Severity.INFO, team=definition.team
        )
        try:
            self.topic.publish(
                subject=document.summary,
                body=message_body(document),
                document=document.model_dump_json(),
                attributes=attributes,
            )
        except ResponseLost:
            self.on_outcome_unknown(days[-1].pipeline, days[-1].date)
            self._save(settled)
            return False
        except SlackwaterError:
            self._save(settled.model_copy(update={"digest": ""}))
            raise
        self._save(settled)
        return True

    def _save(self, notice: DefinitionNotice) -> DefinitionNotice | None:
        """Write the notice and return it as it is stored; None if another check has written one meanwhile."""
        try:
            self.table.save_definition_notice(notice)
        except DayChanged:
            stored = self.table.definition_notice(notice.pipeline)
            # The answer to an earlier request of this write may have been lost.
            return stored if stored == notice.model_copy(update={"version": stored.version}) else None
        return notice.model_copy(update={"version": notice.version + 1})

    def _is_alive(self, notice: DefinitionNotice) -> bool:
        since = notice.since or self.now()
        return is_alive(self.executions, notice.execution, since=since, now=self.now())


def kept_days(report: CheckReport) -> list[DayDecision]:
    """Return the days of a check of the whole window that a new definition would change, and no run does."""
    return [day for day in report.days if report.complete and day.new_definition and day.decision not in _RUNS]


def definition_document(definition: Pipeline, days: Sequence[DayDecision], *, digest: str) -> DefinitionChangeDocument:
    """Return the document about the days that keep an earlier definition."""
    kept = counted(len(days), "published day")
    verb = "keep" if len(days) > 1 else "keeps"
    return DefinitionChangeDocument(
        pipeline=definition.pipeline,
        team=definition.team,
        summary=f"{definition.pipeline}: {kept} of the last {definition.late.window_days} {verb} an earlier definition",
        definition=digest,
        changes=days[-1].new_definition,
        days=tuple(day.date for day in days),
    )


def message_body(document: DefinitionChangeDocument) -> str:
    """Return the text of the message."""
    changes, first, last = "\n".join(f"  {line}" for line in document.changes), document.days[0], document.days[-1]
    return (
        f"The definition of {document.pipeline} has changed since these days were published:\n{changes}\n\n"
        f"It would change {counted(len(document.days), 'published day')} from {first} to {last}. They are not run "
        "again, because `late.on_definition` is `keep`. To run them with the new definition:\n"
        f"  slackwater run {document.pipeline} --from {first} --to {last} --stale\n"
    )


def definition_change_contract() -> str:
    """Return the JSON Schema of the document, as docs/contracts/definition-change.schema.json holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **DefinitionChangeDocument.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(definition_change_contract())
