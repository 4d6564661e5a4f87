"""The report about a comparison: sections of lines and tables, which e-mails and terminals show in their own way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from textwrap import wrap
from typing import NamedTuple, TypeGuard

from humanize import naturalsize

from slackwater.formatting import (
    counted,
    duration,
    escape_control_characters,
    hour_range,
    number,
    number_pair,
    relative_change,
    timestamp,
)
from slackwater.late.changes.comparison import Comparison, MetricChange, RowChange, RowCounts, Totals, Value
from slackwater.runs.inputs.difference import Change, FileChange, SourceDifference
from slackwater.runs.inputs.untaken_files import describe_untaken

# Entries that are shown. The stored comparison has all metrics and files, and up to 100 rows.
_MAX_METRICS, _MAX_ROWS, _MAX_FILES = 20, 10, 10
# Characters of one value in a table, and in a line.
_MAX_CELL, _MAX_VALUE = 24, 40
# Columns of one changed row.
_MAX_COLUMNS = 20
# Keeps `120 -> 131` on one line: `textwrap` breaks lines only at ASCII spaces.
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


class ReportTable(NamedTuple):
    """A table of strings. Cells of numbers are padded with blanks, which align them to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of_columns(cls, columns: Sequence[Sequence[str]]) -> ReportTable:
        """Return the table of these columns; the first string of each is its name."""
        names, *rows = zip(*columns, strict=True)
        return cls(names, tuple(rows))


class ReportSection(NamedTuple):
    """A part of a report: a title, then lines, then a table. Control characters in data are escaped."""

    title: str
    lines: tuple[str, ...] = ()
    table: ReportTable | None = None


def report_sections(comparison: Comparison, *, width: int) -> list[ReportSection]:
    """Return the report: the day, its metrics, the keys and rows that changed, and the inputs that explain them.

    `width` is the number of characters per line: changed rows are wrapped to it, and the metrics table leaves out
    movers that do not fit. A section without content is left out.
    """
    sections = [summary_section(comparison)]
    if comparison.rows.differing:
        sections += metrics_section(comparison, width)
        sections += movers_section(comparison)
        sections.append(rows_section(comparison, width))
    sections.append(inputs_section(comparison))
    if comparison.after.files_not_taken:
        sections.append(missing_files_section(comparison, width))
    return sections


def largest_effect(comparison: Comparison) -> str:
    """Return the most important change in ASCII, for a subject line: `flights 831 -> 883 (+6.3 %)`."""
    metric = largest_metric(comparison)
    return metric_effect(metric) if metric else rows_effect(comparison.rows)


def largest_metric(comparison: Comparison) -> MetricChange | None:
    """Return the metric with the most significant change, or None without a change.

    Sums come before means, and means before minima and maxima.
    """
    for total in Totals:
        moved = [metric for metric in comparison.metrics if metric.total is total and metric.moved]
        if moved:
            return max(moved, key=significance)
    return None


def metric_effect(metric: MetricChange) -> str:
    """Return the change of one metric in ASCII: `flights 831 -> 883 (+6.3 %)`."""
    before, after = number_pair(metric.before, metric.after)
    relative = relative_change(metric.before, metric.after)
    name = metric.metric.encode("unicode_escape").decode("ascii")
    return f"{name} {before} -> {after}{f' ({relative})' if relative else ''}"


def rows_effect(rows: RowCounts) -> str:
    """Return the change of the rows: `+3 rows`, `+3 -1 rows`, `2 rows changed`, `no change`."""
    counts = [f"{sign}{count:,}" for sign, count in (("+", rows.added), ("-", rows.removed)) if count]
    if counts:
        return f"{' '.join(counts)} {'row' if rows.added + rows.removed == 1 else 'rows'}"
    return f"{counted(rows.changed, 'row')} changed" if rows.changed else "no change"


def significance(metric: MetricChange) -> float:
    """Return a number that ranks the change of a metric among metrics with the same `total`.

    For a sum it is the change divided by the square root of the larger value: 705 -> 908 ranks above 3 -> 5, although
    its relative change is smaller. For others it is the relative change.
    """
    # The square root of a count is about its standard deviation when events are independent.
    before, after = metric.before or 0.0, metric.after or 0.0
    largest = max(abs(before), abs(after))
    return abs(after - before) / (math.sqrt(largest) if metric.total is Totals.SUM else largest) if largest else 0.0


def summary_section(comparison: Comparison) -> ReportSection:
    """Return the two versions, when they were published, and the number of rows that differ."""
    before, after, rows = comparison.before, comparison.after, comparison.rows
    later = duration(after.published_at - before.published_at)
    published = f"published {timestamp(before.published_at)} and {timestamp(after.published_at)}, {later} later"
    if rows.differing:
        unchanged = rows.after - rows.added - rows.changed
        changes = (
            f"{rows.before:,} -> {counted(rows.after, 'row')}: {rows.added:,} added, {rows.removed:,} removed, "
            f"{rows.changed:,} changed, {unchanged:,} unchanged"
        )
    else:
        changes = f"{counted(rows.after, 'row')}, the same in both versions"
    title = f"{comparison.pipeline} {comparison.date}: version {before.attempt} -> {after.attempt}"
    return ReportSection(title, (published, changes))


def metrics_section(comparison: Comparison, width: int) -> list[ReportSection]:
    """Return the table of metrics, those that changed first; an empty list for a table without metrics."""
    metrics = sorted(comparison.metrics, key=lambda metric: not metric.moved)[:_MAX_METRICS]
    if not metrics:
        return []
    # A total that has not moved may differ in its last digits: the table shows the same number for both versions.
    pairs = [(metric.before if metric.moved else metric.after, metric.after) for metric in metrics]
    names = ["metric", *(_value(metric.metric, _MAX_CELL) for metric in metrics)]
    totals = ["total", *(metric.total.value for metric in metrics)]
    columns = [names, totals, *_number_columns(comparison, pairs)]
    available = width - sum(max(map(len, column)) + 2 for column in columns)
    movers: list[str] = []
    for metric in metrics:
        mover = ""
        if metric.movers:
            largest = metric.movers[0]
            key = " ".join(_value(value, _MAX_CELL) for value in largest.key.values())
            mover = f"{f'{key}: ' if key else ''}{' -> '.join(number_pair(largest.before, largest.after))}"
        # Part of a number would be wrong, so a mover that does not fit is left out.
        movers.append(mover if len(mover) <= available else "")
    columns.append(["largest mover", *movers])
    title = _with_count("Metrics, over the day", len(metrics), len(comparison.metrics))
    return [ReportSection(title, table=ReportTable.of_columns(columns))]


def movers_section(comparison: Comparison) -> list[ReportSection]:
    """Return the keys whose value of the largest metric changed most; an empty list for fewer than two keys."""
    metric = largest_metric(comparison)
    if metric is None or len(metric.movers) < 2:  # noqa: PLR2004 - the metrics table shows a single one
        return []
    keys = [[name, *(_value(mover.key[name], _MAX_CELL) for mover in metric.movers)] for name in comparison.key]
    numbers = _number_columns(comparison, [(mover.before, mover.after) for mover in metric.movers])
    name = _value(metric.metric, _MAX_CELL)
    return [ReportSection(f"Largest movers of {name}", table=ReportTable.of_columns([*keys, *numbers]))]


def rows_section(comparison: Comparison, width: int) -> ReportSection:
    """Return the first changed rows, and the URI of all of them when there are more."""
    examples, differing = comparison.examples[:_MAX_ROWS], comparison.rows.differing
    lines: list[str] = []
    for row in examples:
        wrapped = wrap(describe_row(row), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        lines += (line.replace(_NO_BREAK_SPACE, " ") for line in wrapped)
    if len(examples) < differing:
        lines.append(f"... and {counted(differing - len(examples), 'more row')}")
        if comparison.all_rows:
            lines += ["All changed rows, as Arrow files:", f"  {comparison.all_rows.manifest}"]
    return ReportSection(_with_count("Changed rows", len(examples), differing), tuple(lines))


def inputs_section(comparison: Comparison) -> ReportSection:
    """Return the inputs that changed between the two versions."""
    frozen_at = comparison.before.frozen_at
    if not comparison.inputs:
        return ReportSection("Inputs", ("The difference is unknown: the input manifest of a version is gone.",))
    changed = [source for source in comparison.inputs if source.changes]
    if not changed:
        lines = (
            "Both versions come from the same inputs: the pipeline's definition or its",
            "code has changed, or the day was run again by hand.",
        )
        return ReportSection("Inputs", lines)
    title = f"Inputs, changed since version {comparison.before.attempt} listed them at {timestamp(frozen_at)}"
    return ReportSection(title, tuple(line for source in changed for line in describe_inputs(source, frozen_at)))


def missing_files_section(comparison: Comparison, width: int) -> ReportSection:
    """Return the sources with files of the day that the later version lacks, because they could not be fetched."""
    sentences = describe_untaken(comparison.after.files_not_taken)
    # Hyphens are in the option of a command.
    lines = (line for sentence in sentences for line in wrap(sentence, width, break_on_hyphens=False))
    return ReportSection(f"Missing in version {comparison.after.attempt}", tuple(lines))


def describe_inputs(source: SourceDifference, frozen_at: datetime) -> Iterator[str]:
    """Yield a line for a source, and up to three lines for each of its changed files."""
    # Only a table of another system has no hours: its snapshot has rows of any day.
    is_whole_table = any(not item.hour for item in source.changes)
    of_day = "" if is_whole_table or source.of_published_days else " of the day"
    yield f"{source.source}: {counted(source.now.rows, 'row')}{of_day}, {source.before.rows:,} before"
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
            yield f"    {describe_arrival(file, frozen_at)}"
    if files[_MAX_FILES:]:
        yield f"  ... and {counted(len(files) - _MAX_FILES, 'more file')}"


def describe_arrival(file: FileChange, frozen_at: datetime) -> str:
    """Return when a file arrived, and how long after `frozen_at`, when the inputs had been listed."""
    first, last = file.arrivals[0], file.arrivals[-1]
    if last <= frozen_at:
        return f"arrived {timestamp(last)}, while the inputs were being listed"
    if timestamp(first) == timestamp(last):
        return f"arrived {timestamp(last)}, {duration(last - frozen_at)} later"
    until = f"{last:%H:%M} UTC" if first.date() == last.date() else timestamp(last)
    return f"arrived {first:%Y-%m-%d %H:%M} to {until}, up to {duration(last - frozen_at)} later"


def describe_row(row: RowChange) -> str:
    """Return one line about a row: `changed origin EWR, carrier UA: flights 120 -> 131`.

    For an added or removed row the line has all values that are not null. Spaces within a value are no-break spaces.
    """
    if row.change is Change.CHANGED:
        pairs = {name: _value_pair(before, after) for name, (before, after) in row.values.items()}
        values = [f"{_value(name)} {before} -> {after}" for name, (before, after) in pairs.items()]
    else:
        side = 1 if row.change is Change.ADDED else 0
        present = {name: pair[side] for name, pair in row.values.items() if pair[side] is not None}
        values = [
            f"{_value(name)} {number(value) if _is_number(value) else _value(value)}" for name, value in present.items()
        ]
    if values[_MAX_COLUMNS:]:
        values[_MAX_COLUMNS:] = [f"{len(values) - _MAX_COLUMNS} more"]
    key = ", ".join(f"{_value(name)} {_value(value)}" for name, value in row.key.items())
    items = ", ".join(value.replace(" ", _NO_BREAK_SPACE) for value in values)
    return f"{row.change.value}{f' {key}' if key else ''}: {items}"


def _value_pair(before: Value, after: Value) -> tuple[str, str]:
    """Return the values before and after, numbers with thousands separators."""
    if _is_number(before) and _is_number(after):
        return number_pair(before, after)
    return _value(before), _value(after)


def _is_number(value: Value) -> TypeGuard[int | float | None]:
    """Return whether `number` can format the value. None counts as a number: a null beside a number."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _value(value: Value, limit: int = _MAX_VALUE) -> str:
    """Return a value as one line of at most `limit` characters.

    Numbers have no thousands separators, because numbers in keys are names: the year 2013 stays 2013.
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    string = escape_control_characters(str(value))
    return string if len(string) <= limit else f"{string[: limit - 3]}..."


def _with_count(title: str, shown: int, total: int) -> str:
    """Return the title; with the two counts if not all entries are shown: `Changed rows: 10 of 1,234`."""
    return title if shown == total else f"{title}: {shown} of {total:,}"


def _number_columns(comparison: Comparison, pairs: Sequence[tuple[float | None, float | None]]) -> list[list[str]]:
    """Return the columns of both versions' numbers and of their change, aligned to the right."""
    strings = [number_pair(before, after) for before, after in pairs]
    columns = [
        [f"version {comparison.before.attempt}", *(before for before, _ in strings)],
        [f"version {comparison.after.attempt}", *(after for _, after in strings)],
        ["change", *(relative_change(before, after) for before, after in pairs)],
    ]
    return [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
