"""The message about a changed day: a subject with the largest effect, and a plain-text body for e-mails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import quote

from slackwater.late.comparison import Cause, Comparison
from slackwater.late.report.headline import describe_causes, largest_effect
from slackwater.late.report.report import report_sections
from slackwater.late.report.section import ReportSection
from slackwater.model import Record
from slackwater.storage import split_uri

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


def compose(comparison: Comparison, *, report: str = "") -> Message:
    """Return the message about a comparison whose rows differ. `report` is the URI of its HTML page, if there is one.

    The subject names the causes if late data is not the only one.
    """
    effect, causes = largest_effect(comparison), describe_causes(comparison)
    verb = "have" if len(comparison.causes) > 1 else "has"
    opening = f"{causes} {verb} changed {comparison.pipeline} for {comparison.date}:\n{effect}."
    sections = report_sections(comparison, width=_WIDTH - len(_INDENT))
    sections.append(where_to_look(comparison, report=report))
    paragraphs = [opening, *("\n".join(_text_lines(section)) for section in sections)]
    is_only_late = comparison.causes in {(), (Cause.LATE_DATA,)}
    by = "" if is_only_late else f" by {causes[0].lower()}{causes[1:]}"
    subject = f"{comparison.pipeline} {comparison.date} changed{by}: {effect}"
    return Message(subject=subject, body="\n\n".join(paragraphs) + "\n")


def where_to_look(comparison: Comparison, *, report: str) -> ReportSection:
    """Return the commands that show more or undo the change, and the URI of the HTML page."""
    day, before = f"{comparison.pipeline} --date {comparison.date}", comparison.before
    lines = (
        "The changes between its two latest versions:",
        f"  slackwater diff {day}",
        "What the latest run did:",
        f"  slackwater runs {day}",
        "All versions of the day:",
        f"  slackwater history {day}",
        f"The table as it was with version {before.attempt}:",
        f"  slackwater query SQL --date {comparison.date} --version {before.attempt}",
        f"  in Spark SQL: VERSION AS OF '{before.tag}'",
        f"To publish version {before.attempt} again:",
        f"  slackwater rollback {day} --to {before.attempt} --reason TEXT",
        *(("This report as a page with charts:", f"  {report}", *_console_lines(report)) if report else ()),
    )
    return ReportSection("Where to look", lines)


def _console_lines(uri: str) -> tuple[str, ...]:
    """Return the address of an object in the AWS console."""
    bucket, key = split_uri(uri)
    return (f"  https://console.aws.amazon.com/s3/object/{bucket}?prefix={quote(key)}",)


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
