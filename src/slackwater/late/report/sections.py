"""The report about a comparison in sections, as e-mails and terminals show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from textwrap import wrap
from typing import NamedTuple

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
from slackwater.late.comparison import Cause, Comparison, RowChange, Split, Totals
from slackwater.late.report.headline import MAX_CELL, cut_value, describe_change, format_values, largest_metric
from slackwater.runs.inputs.difference import Change, FileChange, SourceDifference
from slackwater.runs.inputs.unstored_files import describe_unstored
from slackwater.runs.period import period_kind

# What is shown of a comparison: metrics, rows and their columns, and files of one source.
_MAX_METRICS, _MAX_ROWS, _MAX_COLUMNS, _MAX_FILES = 20, 10, 20, 10
# Keeps `120 -> 131` on one line: `textwrap` breaks lines only at ASCII spaces.
_NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"


class ReportSection(NamedTuple):
    """A part of a report: a title, then lines, then a table. Control characters in data are escaped."""

    title: str
    lines: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    """Rows of cells, first the names of the columns. Blanks align numbers to the right."""


def report_sections(comparison: Comparison, *, width: int) -> list[ReportSection]:
    """Return the report: the day, its metrics, the keys and rows that changed, and the inputs that explain them.

    `width` is the number of characters per line: lines are wrapped to it, and the metrics table leaves out movers that
    do not fit. A section without content is left out.
    """
    return [
        *summary_sections(comparison, width),
        *value_sections(comparison, width),
        *([_rows_section(comparison, width)] if comparison.rows.differing else []),
        inputs_section(comparison),
        *closing_sections(comparison, width),
    ]


def summary_sections(comparison: Comparison, width: int) -> Iterator[ReportSection]:
    """Yield the two versions with the number of rows that differ, and a warning if late data is not the only cause."""
    before, after, rows = comparison.before, comparison.after, comparison.rows
    later = duration(after.published_at - before.published_at)
    published = f"published {timestamp(before.published_at)} and {timestamp(after.published_at)}, {later} later"
    changes = f"{counted(rows.after, 'row')}, the same in both versions"
    if rows.differing:
        unchanged = rows.after - rows.added - rows.changed
        changes = (
            f"{rows.before:,} -> {counted(rows.after, 'row')}: {rows.added:,} added, {rows.removed:,} removed, "
            f"{rows.changed:,} changed, {unchanged:,} unchanged"
        )
    title = f"{comparison.pipeline} {comparison.date}: version {before.attempt} -> {after.attempt}"
    yield ReportSection(title, (published, changes))
    if comparison.split:
        yield _split_section(comparison, comparison.split, width)
    elif rows.differing and {Cause.NEW_DEFINITION, Cause.NEW_CODE} & set(comparison.causes):
        sentence = f"{describe_change(comparison, f'the {period_kind(comparison.date)}')} since the earlier version."
        if len(comparison.causes) > 1:
            known = "" if comparison.split_reason else ": slackwater diff --split computes it"
            sentence += f" The comparison cannot tell which of them has changed a value{known}."
        yield ReportSection("Causes", tuple(wrap(sentence, width)))
    if comparison.split_reason:
        yield ReportSection("No split", tuple(wrap(comparison.split_reason, width)))


def _split_section(comparison: Comparison, split: Split, width: int) -> ReportSection:
    """Return how much of the change the data has caused, and how much the definition and the code."""
    before, after = comparison.before.attempt, comparison.after.attempt
    sentences = [f"{describe_change(comparison, f'the {period_kind(comparison.date)}')} since the earlier version."]
    for name, rows in (
        (f"Data: the inputs of version {after}, with the definition and code of version {before}", split.data),
        (f"Definition: the definition and code of version {after} instead", split.definition),
    ):
        sentences.append(
            f"{name}: {counted(rows.added, 'row')} added, {rows.removed:,} removed, {rows.changed:,} changed."
        )
    if any(metric.total is not Totals.SUM for metric in split.metrics):
        sentences.append("The parts are differences of the day's totals, also for a mean, a minimum or a maximum.")
    metrics = split.metrics[:_MAX_METRICS]
    pairs = [number_pair(metric.before, metric.after) for metric in metrics]
    data = [_part(metric.data, metric.data_percent, (metric.before, metric.between)) for metric in metrics]
    definition = [_part(m.definition, m.definition_percent, (m.between, m.after)) for m in metrics]
    columns = [
        ["metric", *(cut_value(metric.metric, MAX_CELL) for metric in metrics)],
        ["total", *(metric.total.value for metric in metrics)],
        *(
            [cell.rjust(max(map(len, column))) for cell in column]
            for column in (
                [f"version {before}", *(first for first, _ in pairs)],
                ["data", *data],
                ["definition", *definition],
                [f"version {after}", *(last for _, last in pairs)],
            )
        ),
    ]
    lines = tuple(line for sentence in sentences for line in wrap(sentence, width))
    title = with_count("Causes", len(metrics), len(split.metrics))
    return ReportSection(title, lines, tuple(zip(*columns, strict=True)))


def _part(part: float | None, percent: float | None, totals: tuple[float | None, float | None]) -> str:
    """Return a part of a metric's change: `+52 (+6.3 %)`, `0`; `new` or `gone` where one of its totals is missing."""
    if not part:
        return "0" if part == 0 else relative_change(*totals)
    sign = "+" if part > 0 else ""
    return f"{sign}{number(part)}" + ("" if percent is None else f" ({relative_change(100, 100 + percent)})")


def value_sections(comparison: Comparison, width: int) -> Iterator[ReportSection]:
    """Yield the changes of the definition, the metrics, and the keys whose value of the largest metric changed most."""
    if changes := comparison.definition_changes:
        yield ReportSection("Definition", tuple(line for change in changes for line in wrap(change, width)))
    if not comparison.rows.differing:
        return
    if comparison.metrics:
        yield _metrics_section(comparison, width)
    metric = largest_metric(comparison)
    # The table of metrics shows a single mover.
    if metric and len(metric.movers) > 1:
        keys = [[name, *(mover.key[name] for mover in metric.movers)] for name in comparison.key]
        numbers = number_columns(comparison, [(mover.before, mover.after) for mover in metric.movers])
        columns = [*([cut_value(cell, MAX_CELL) for cell in column] for column in keys), *numbers]
        yield ReportSection(
            f"Most changed rows: {cut_value(metric.metric, MAX_CELL)}", table=tuple(zip(*columns, strict=True))
        )


def inputs_section(comparison: Comparison) -> ReportSection:
    """Return the inputs that changed between the two versions, or why none has."""
    frozen_at = comparison.before.frozen_at
    changed = [source for source in comparison.inputs if source.changes]
    if changed:
        title = f"Inputs, changed since version {comparison.before.attempt} listed them at {timestamp(frozen_at)}"
        unit = period_kind(comparison.date)
        described = (describe_inputs(source, frozen_at, unit) for source in changed)
        return ReportSection(title, tuple(chain.from_iterable(described)))
    if not comparison.inputs:
        lines: tuple[str, ...] = ("The difference is unknown: the input manifest of a version is gone.",)
    elif comparison.definition_changes:
        lines = ("The inputs that the definitions of both versions read are the same.",)
    elif comparison.causes:
        lines = ("Both versions come from the same inputs.",)
    else:
        lines = (
            "Both versions come from the same inputs: the pipeline's definition or its",
            f"code has changed, or the {period_kind(comparison.date)} was run again by hand.",
        )
    return ReportSection("Inputs", lines)


def closing_sections(comparison: Comparison, width: int) -> Iterator[ReportSection]:
    """Yield what the sources had sent, what the run and the comparison have cost, and files that were not fetched."""
    if counts := comparison.after.counts:
        texts = (line for item in counts for line in wrap(f"{item.source}: {item.line}", width, subsequent_indent="  "))
        yield ReportSection(f"Counts of the sources for version {comparison.after.attempt}", tuple(texts))
    cost, lines = comparison.after.cost, []
    if cost is not None and cost.usd is not None:
        lines.append(f"run: {number(cost.usd)} USD, {counted(cost.jobs, 'Spark job')}")
    if comparison.comparison_usd is not None:
        lines.append(f"comparison: {number(comparison.comparison_usd)} USD")
    if lines:
        yield ReportSection("Cost", tuple(lines))
    if comparison.after.files_not_taken:
        sentences = describe_unstored(comparison.after.files_not_taken)
        # Hyphens are in the option of a command.
        missing = (line for sentence in sentences for line in wrap(sentence, width, break_on_hyphens=False))
        yield ReportSection(f"Missing in version {comparison.after.attempt}", tuple(missing))


def _metrics_section(comparison: Comparison, width: int) -> ReportSection:
    """Return the table of metrics, those that changed first."""
    metrics = sorted(comparison.metrics, key=lambda metric: not metric.moved)[:_MAX_METRICS]
    # A total that has not moved may differ in its last digits: the table shows the same number for both versions.
    pairs = [(metric.before if metric.moved else metric.after, metric.after) for metric in metrics]
    names = ["metric", *(cut_value(metric.metric, MAX_CELL) for metric in metrics)]
    columns = [names, ["total", *(metric.total.value for metric in metrics)], *number_columns(comparison, pairs)]
    available = width - sum(max(map(len, column)) + 2 for column in columns)
    movers: list[str] = []
    for metric in metrics:
        mover = ""
        if metric.movers:
            largest = metric.movers[0]
            key = " ".join(cut_value(value, MAX_CELL) for value in largest.key.values())
            mover = f"{f'{key}: ' if key else ''}{' -> '.join(number_pair(largest.before, largest.after))}"
        # Part of a number would be wrong, so a mover that does not fit is left out.
        movers.append(mover if len(mover) <= available else "")
    table, unit = zip(*columns, ["most changed row", *movers], strict=True), period_kind(comparison.date)
    return ReportSection(
        with_count(f"Metrics, over the {unit}", len(metrics), len(comparison.metrics)), table=tuple(table)
    )


def _rows_section(comparison: Comparison, width: int) -> ReportSection:
    """Return the first changed rows, and the URI of all of them when there are more."""
    differing, examples = comparison.rows.differing, comparison.examples[:_MAX_ROWS]
    lines = [
        line.replace(_NO_BREAK_SPACE, " ")
        for row in examples
        for line in wrap(
            describe_row(row), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]
    if len(examples) < differing:
        lines.append(f"... and {counted(differing - len(examples), 'more row')}")
        if comparison.all_rows:
            lines += ["All changed rows, as Arrow files:", f"  {comparison.all_rows.manifest}"]
    return ReportSection(with_count("Changed rows", len(examples), differing), tuple(lines))


def describe_row(row: RowChange) -> str:
    """Return one line about a row: `changed origin EWR, carrier UA: flights 120 -> 131`.

    For an added or removed row the line has all values that are not null. Spaces within a value are no-break spaces.
    """
    if row.change is Change.CHANGED:
        values = [f"{cut_value(name)} {format_values(*pair)}" for name, pair in row.values.items()]
    else:
        side = 1 if row.change is Change.ADDED else 0
        present = {name: pair[side] for name, pair in row.values.items() if pair[side] is not None}
        values = [f"{cut_value(name)} {format_values(value)}" for name, value in present.items()]
    if values[_MAX_COLUMNS:]:
        values[_MAX_COLUMNS:] = [f"{len(values) - _MAX_COLUMNS} more"]
    key = ", ".join(f"{cut_value(name)} {cut_value(value)}" for name, value in row.key.items())
    items = ", ".join(value.replace(" ", _NO_BREAK_SPACE) for value in values)
    return f"{row.change.value}{f' {key}' if key else ''}: {items}"


def describe_source(source: SourceDifference, unit: str = "day") -> str:
    """Return the rows of a source in both versions: `flights: 883 rows of the day, 831 before`."""
    # Only a table of another system has no hours: its snapshot has rows of any day.
    is_whole_table = any(not item.hour for item in source.changes)
    of_day = "" if is_whole_table or source.of_published_days else f" of the {unit}"
    return f"{source.source}: {counted(source.now.rows, 'row')}{of_day}, {source.before.rows:,} before"


def describe_inputs(source: SourceDifference, frozen_at: datetime, unit: str = "day") -> Iterator[str]:
    """Yield a line for a source, and up to three lines for each of its changed files."""
    yield describe_source(source, unit)
    files = source.by_file()
    for file in files[:_MAX_FILES]:
        name = escape_control_characters(file.file) if file.file else "pushed events"
        yield f"  {name} ({file.change.value})"
        before = f" ({file.before.rows:,} before)" if file.change is Change.CHANGED else ""
        size = "" if source.of_published_days else f", {naturalsize(file.amount.bytes)}, of {hour_range(file.hours)}"
        yield f"    {counted(file.amount.rows, 'row')}{before}{size}"
        if file.arrivals:
            verb = "arrived" if all(hour for _, hour in file.hours) else "committed"
            yield f"    {verb} {describe_arrival(file, frozen_at)}"
    if files[_MAX_FILES:]:
        yield f"  ... and {counted(len(files) - _MAX_FILES, 'more file')}"


def describe_arrival(file: FileChange, frozen_at: datetime, *, of_published_days: bool = False) -> str:
    """Return when a file or a day of another pipeline arrived, and how long after `frozen_at`, when inputs were listed.

    Of a table of another system, whose partitions have no hour, it is when its snapshot was committed.
    """
    first, last = file.arrivals[0], file.arrivals[-1]
    if not of_published_days and not all(hour for _, hour in file.hours):
        return timestamp(last)
    if last <= frozen_at:
        return f"{timestamp(last)}, while the inputs were being listed"
    if timestamp(first) == timestamp(last):
        return f"{timestamp(last)}, {duration(last - frozen_at)} later"
    until = f"{last:%H:%M} UTC" if first.date() == last.date() else timestamp(last)
    return f"{first:%Y-%m-%d %H:%M} to {until}, up to {duration(last - frozen_at)} later"


def with_count(title: str, shown: int, total: int) -> str:
    """Return the title; with the two counts if not all entries are shown: `Changed rows: 10 of 1,234`."""
    return title if shown == total else f"{title}: {shown} of {total:,}"


def number_columns(comparison: Comparison, pairs: Sequence[tuple[float | None, float | None]]) -> list[list[str]]:
    """Return the columns of both versions' numbers and of their change, aligned to the right."""
    strings = [number_pair(before, after) for before, after in pairs]
    columns = [
        [f"version {comparison.before.attempt}", *(before for before, _ in strings)],
        [f"version {comparison.after.attempt}", *(after for _, after in strings)],
        ["change", *(relative_change(before, after) for before, after in pairs)],
    ]
    return [[cell.rjust(max(map(len, column))) for cell in column] for column in columns]
