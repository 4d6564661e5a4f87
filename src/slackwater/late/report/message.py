"""The message about a changed day: a subject with the largest effect, and a plain-text body for e-mails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import quote

from slackwater.late.comparison import Cause, Comparison
from slackwater.late.report.headline import describe_causes, describe_change, largest_effect
from slackwater.late.report.sections import ReportSection, report_sections
from slackwater.model import Record
from slackwater.runs.period import period_kind
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
    effect, day = largest_effect(comparison), f"{comparison.pipeline} for {comparison.date}"
    sections = report_sections(comparison, width=_WIDTH - len(_INDENT))
    sections.append(where_to_look(comparison, report=report))
    opening = f"{describe_change(comparison, day)}:\n{effect}."
    paragraphs = [opening, *("\n".join(_text_lines(section)) for section in sections)]
    by = "" if comparison.causes in {(), (Cause.LATE_DATA,)} else f" by {describe_causes(comparison)}"
    subject = f"{comparison.pipeline} {comparison.date} changed{by}: {effect}"
    return Message(subject=subject, body="\n\n".join(paragraphs) + "\n")


def where_to_look(comparison: Comparison, *, report: str = "") -> ReportSection:
    """Return the commands that show more or undo the change, and the URI of the HTML page and its AWS console page."""
    day, before = f"{comparison.pipeline} --date {comparison.date}", comparison.before
    lines = [
        "The changes between its two latest versions:",
        f"  slackwater diff {day}",
        "What the latest run did:",
        f"  slackwater runs {day}",
        f"All versions of the {period_kind(comparison.date)}:",
        f"  slackwater history {day}",
        f"The table as it was with version {before.attempt}:",
        f"  slackwater query SQL --date {comparison.date} --version {before.attempt}",
        f"  in Spark SQL: VERSION AS OF '{before.tag}'",
        f"To publish version {before.attempt} again:",
        f"  slackwater rollback {day} --to {before.attempt} --reason TEXT",
    ]
    if report:
        bucket, key = split_uri(report)
        console = f"https://console.aws.amazon.com/s3/object/{bucket}?prefix={quote(key)}"
        lines += ["This report as a page with charts:", f"  {report}", f"  {console}"]
    return ReportSection("Where to look", tuple(lines))


def _text_lines(section: ReportSection) -> Iterator[str]:
    """Yield a section as plain text; blanks align the columns of its table."""
    yield section.title
    yield from (f"{_INDENT}{line}" for line in section.lines)
    widths = [max(map(len, column)) for column in zip(*section.table, strict=True)]
    for row in section.table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"{_INDENT}{'  '.join(cells)}".rstrip()
