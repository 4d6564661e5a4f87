"""Notifies people once that a new definition would change published days: `on_definition: keep`.

The message is claimed in the run table. `python -m slackwater.late.changes.definition_notices` prints the JSON Schema
of the document that programs receive, as docs/contracts/definition-change.schema.json holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slackwater.formatting import counted
from slackwater.late.changes.outbox import Outbox
from slackwater.late.decision import CheckReport, DayDecision, LateDecision
from slackwater.late.effect import Severity
from slackwater.late.report.document import Document
from slackwater.model import json_schema
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import period_kind
from slackwater.runs.pipeline_records import DefinitionNotice
from slackwater.runs.table import RunTable, update_record

_RUNS = frozenset({LateDecision.RERUN, LateDecision.DEFER})


class DefinitionChangeDocument(Document):
    """Which published days come from an earlier definition of their pipeline, and stay as they are."""

    severity: Literal[Severity.INFO] = Severity.INFO
    definition: str
    """Digest of the new definition."""
    changes: tuple[str, ...]
    """What has changed since the latest of these days was published, one entry for each input."""
    days: tuple[str, ...]
    """Days, ISO dates, or hours of the window, in order."""


@dataclass(frozen=True, kw_only=True)
class DefinitionNotifier:
    """Sends the messages."""

    project: Project
    table: RunTable
    outbox: Outbox

    def notify(self, report: CheckReport, *, execution: str) -> bool:
        """Send a message about the days of a check that keep an earlier definition; return whether one was sent.

        Nothing is sent if the latest message was about the same definition. `execution` is the ARN of the monitoring.
        Raises as `Outbox.send_once` does.
        """
        definition, days = self.project.pipeline(report.pipeline), kept_days(report)
        if not days or definition.late.on_definition != "keep":
            return False
        document = definition_document(definition, days, digest=self.project.written_digest(report.pipeline))
        messages = _DefinitionMessages(self.table, document)
        return self.outbox.send_once(report.pipeline, messages, execution=execution)


@dataclass(frozen=True)
class _DefinitionMessages:
    """The messages about one pipeline: `slackwater.late.changes.outbox.Messages`."""

    table: RunTable
    document: DefinitionChangeDocument

    @property
    def date(self) -> str:
        return self.document.days[-1]

    def update(self, change: Callable[[DefinitionNotice | None], DefinitionNotice | None]) -> DefinitionNotice | None:
        pipeline = self.document.pipeline

        def changed(notice: DefinitionNotice) -> DefinitionNotice:
            return change(notice if notice.version else None) or notice

        return update_record(
            lambda: self.table.definition_notice(pipeline),
            self.table.save_definition_notice,
            changed,
            what=f"{pipeline} kept changing while people were notified of its definition",
        )

    def claim(self, latest: DefinitionNotice | None, own: Mapping[str, Any]) -> DefinitionNotice | None:
        digest, latest = self.document.definition, latest or DefinitionNotice(pipeline=self.document.pipeline)
        return latest if latest.digest == digest else latest.model_copy(update={**own, "digest": digest})

    def settled(self, notice: DefinitionNotice, *, is_refused: bool) -> DefinitionNotice:
        return notice.model_copy(update={"is_settled": True, "digest": "" if is_refused else notice.digest})

    def message(self, _: DefinitionNotice) -> tuple[DefinitionChangeDocument, str]:
        return self.document, message_body(self.document)


def kept_days(report: CheckReport) -> list[DayDecision]:
    """Return the days of a check of the whole window that a new definition would change, and no run does."""
    return [day for day in report.days if report.complete and day.new_definition and day.decision not in _RUNS]


def definition_document(definition: Pipeline, days: Sequence[DayDecision], *, digest: str) -> DefinitionChangeDocument:
    """Return the document about the days that keep an earlier definition."""
    kept = counted(len(days), f"published {definition.period}")
    verb = "keep" if len(days) > 1 else "keeps"
    return DefinitionChangeDocument(
        pipeline=definition.pipeline,
        team=definition.team,
        summary=f"{definition.pipeline}: {kept} of the last {definition.window_length} {verb} an earlier definition",
        definition=digest,
        changes=days[-1].new_definition,
        days=tuple(day.date for day in days),
    )


def message_body(document: DefinitionChangeDocument) -> str:
    """Return the text of the message."""
    changes, first, last = "\n".join(f"  {line}" for line in document.changes), document.days[0], document.days[-1]
    unit = period_kind(first)
    return (
        f"The definition of {document.pipeline} has changed since these {unit}s were published:\n{changes}\n\n"
        f"It would change {counted(len(document.days), f'published {unit}')} from {first} to {last}. They are not run "
        "again, because `late.on_definition` is `keep`. To run them with the new definition:\n"
        f"  slackwater run {document.pipeline} --from {first} --to {last} --stale\n"
    )


if __name__ == "__main__":
    sys.stdout.write(json_schema(DefinitionChangeDocument))
