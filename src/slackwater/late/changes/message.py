"""The message about a changed day: a subject with the largest effect, and a plain-text body for e-mails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from slackwater.late.changes.comparison import Comparison
from slackwater.late.changes.report import ReportSection, largest_effect, report_sections
from slackwater.runs.inputs.manifest import Record

# Characters per line: the recommended limit for e-mail (RFC 5322, section 2.1.1), which clients show without breaking.
_WIDTH = 78
_INDENT = "  "


class Message(Record):
    """A notification, as it is stored next to its comparison."""

    subject: str
    body: str
    message_id: str | None = None
    """Id from SNS. None until the message was sent, and when it is unknown whether it was sent."""
    sent_at: datetime | None = None


def compose(comparison: Comparison) -> Message:
    """Return the message about a comparison whose rows differ."""
    # Without the manifests of both versions, nothing is known about the inputs.
    cause = "A new run" if comparison.inputs else "A new version"
    if any(source.late.objects for source in comparison.inputs):
        cause = "Late data"
    effect = largest_effect(comparison)
    opening = f"{cause} has changed {comparison.pipeline} for {comparison.date}:\n{effect}."
    sections = report_sections(comparison, width=_WIDTH - len(_INDENT))
    paragraphs = [opening, *("\n".join(_text_lines(section)) for section in [*sections, _where_to_look(comparison)])]
    subject = f"{comparison.pipeline} {comparison.date} changed: {effect}"
    return Message(subject=subject, body="\n\n".join(paragraphs) + "\n")


def _where_to_look(comparison: Comparison) -> ReportSection:
    """Return the commands that show more, and the query for the earlier version."""
    commands = {
        f"slackwater diff {comparison.pipeline} --date {comparison.date}": "its two latest versions",
        f"slackwater runs {comparison.pipeline}": "its runs and their inputs",
    }
    width = max(map(len, commands))
    lines = (
        *(f"{command.ljust(width)}  {content}" for command, content in commands.items()),
        "The earlier version can still be read, in Spark SQL:",
        f"  FROM {comparison.pipeline} VERSION AS OF '{comparison.before.tag}'",
        f"  WHERE date = '{comparison.date}'",
    )
    return ReportSection("Where to look", lines)


def _text_lines(section: ReportSection) -> Iterator[str]:
    """Yield a section as plain text; blanks align the columns of its table."""
    yield section.title
    yield from (f"{_INDENT}{line}" for line in section.lines)
    if section.table:
        rows = [section.table.columns, *section.table.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield f"{_INDENT}{'  '.join(cells)}".rstrip()
