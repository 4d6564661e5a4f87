"""The sections of a report about the inputs: what changed, how late it arrived, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import wrap

from humanize import naturalsize

from slackwater.formatting import counted, duration, escape_control_characters, hour_range, timestamp
from slackwater.late.comparison import Comparison
from slackwater.late.report.section import ReportSection, ReportTable, cut_value
from slackwater.runs.inputs.difference import Change, FileChange, SourceDifference
from slackwater.runs.inputs.untaken_files import describe_untaken

# Files of one source that are shown in lines, and files of all sources in the table of a page.
_MAX_FILES, _MAX_TABLE_FILES = 10, 50
# Characters of a file's name in the table.
_MAX_NAME = 80


def inputs_section(comparison: Comparison, width: int | None) -> ReportSection:
    """Return the inputs that changed between the two versions. Without a width, their files as a table."""
    frozen_at = comparison.before.frozen_at
    if not comparison.inputs:
        return ReportSection("Inputs", ("The difference is unknown: the input manifest of a version is gone.",))
    changed = [source for source in comparison.inputs if source.changes]
    if not changed:
        lines: tuple[str, ...] = (
            "Both versions come from the same inputs: the pipeline's definition or its",
            "code has changed, or the day was run again by hand.",
        )
        if comparison.causes:
            lines = ("Both versions come from the same inputs.",)
        if comparison.definition_changes:
            lines = ("The inputs that the definitions of both versions read are the same.",)
        return ReportSection("Inputs", lines)
    title = f"Inputs, changed since version {comparison.before.attempt} listed them at {timestamp(frozen_at)}"
    if width is None:
        return ReportSection(title, *_files_table(changed, frozen_at))
    return ReportSection(title, tuple(line for source in changed for line in describe_inputs(source, frozen_at)))


def missing_files_section(comparison: Comparison, width: int | None) -> ReportSection:
    """Return the sources with files of the day that the later version lacks, because they could not be fetched."""
    sentences = describe_untaken(comparison.after.files_not_taken)
    # Hyphens are in the option of a command.
    lines = (
        line
        for sentence in sentences
        for line in ([sentence] if width is None else wrap(sentence, width, break_on_hyphens=False))
    )
    return ReportSection(f"Missing in version {comparison.after.attempt}", tuple(lines))


def _files_table(sources: Sequence[SourceDifference], frozen_at: datetime) -> tuple[tuple[str, ...], ReportTable]:
    """Return a line for each source, and the table of the changed files of all of them."""
    files = [(source, file) for source in sources for file in source.by_file()]
    rows = [_file_cells(source, file, frozen_at) for source, file in files[:_MAX_TABLE_FILES]]
    lines = [_describe_source(source) for source in sources]
    if files[_MAX_TABLE_FILES:]:
        lines.append(f"{len(rows)} of {counted(len(files), 'file')} are shown.")
    names = ("input", "file", "change", "rows before", "rows after", "arrived", "hours", "size")
    return tuple(lines), ReportTable(names, tuple(rows)).aligned("rows before", "rows after", "size")


def _file_cells(source: SourceDifference, file: FileChange, frozen_at: datetime) -> tuple[str, ...]:
    has_hours = not source.of_published_days and any(hour for _, hour in file.hours)
    amount = file.before if file.change is Change.REMOVED else file.now
    arrived = ""
    if file.arrivals:
        arrived = _arrival(file, frozen_at) if has_hours or source.of_published_days else timestamp(file.arrivals[-1])
    return (
        source.source,
        cut_value(file.file, _MAX_NAME) if file.file else "pushed events",
        file.change.value,
        f"{file.before.rows:,}",
        f"{file.now.rows:,}",
        arrived,
        hour_range(file.hours) if has_hours else "",
        "" if source.of_published_days else naturalsize(amount.bytes),
    )


def _describe_source(source: SourceDifference) -> str:
    # Only a table of another system has no hours: its snapshot has rows of any day.
    is_whole_table = any(not item.hour for item in source.changes)
    of_day = "" if is_whole_table or source.of_published_days else " of the day"
    return f"{source.source}: {counted(source.now.rows, 'row')}{of_day}, {source.before.rows:,} before"


def describe_inputs(source: SourceDifference, frozen_at: datetime) -> Iterator[str]:
    """Yield a line for a source, and up to three lines for each of its changed files."""
    is_whole_table = any(not item.hour for item in source.changes)
    yield _describe_source(source)
    files = source.by_file()
    for file in files[:_MAX_FILES]:
        name = escape_control_characters(file.file) if file.file else "pushed events"
        yield f"  {name} ({file.change.value})"
        amount = file.before if file.change is Change.REMOVED else file.now
        before = f" ({file.before.rows:,} before)" if file.change is Change.CHANGED else ""
        size = "" if source.of_published_days else f", {naturalsize(amount.bytes)}, of {hour_range(file.hours)}"
        yield f"    {counted(amount.rows, 'row')}{before}{size}"
        if file.arrivals and is_whole_table:
            yield f"    committed {timestamp(file.arrivals[-1])}"
        elif file.arrivals:
            yield f"    arrived {_arrival(file, frozen_at)}"
    if files[_MAX_FILES:]:
        yield f"  ... and {counted(len(files) - _MAX_FILES, 'more file')}"


def _arrival(file: FileChange, frozen_at: datetime) -> str:
    """Return when a file arrived, and how long after `frozen_at`, when the inputs had been listed."""
    first, last = file.arrivals[0], file.arrivals[-1]
    if last <= frozen_at:
        return f"{timestamp(last)}, while the inputs were being listed"
    if timestamp(first) == timestamp(last):
        return f"{timestamp(last)}, {duration(last - frozen_at)} later"
    until = f"{last:%H:%M} UTC" if first.date() == last.date() else timestamp(last)
    return f"{first:%Y-%m-%d %H:%M} to {until}, up to {duration(last - frozen_at)} later"
