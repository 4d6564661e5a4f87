"""The report about a comparison: sections that e-mails, terminals and pages show in their own way."""

from __future__ import annotations

from textwrap import wrap

from slackwater.formatting import counted, duration, number, number_pair, timestamp
from slackwater.late.comparison import Cause, Comparison
from slackwater.late.report.headline import describe_causes, largest_metric
from slackwater.late.report.input_sections import inputs_section, missing_files_section
from slackwater.late.report.row_sections import rows_section
from slackwater.late.report.section import (
    MAX_CELL,
    ReportSection,
    ReportTable,
    cut_value,
    number_columns,
    with_count,
)

# The stored comparison has all metrics.
_MAX_METRICS = 20


def report_sections(comparison: Comparison, *, width: int | None) -> list[ReportSection]:
    """Return the report: the day, its metrics, the keys and rows that changed, and the inputs that explain them.

    `width` is the number of characters per line: changed rows are wrapped to it, and the metrics table leaves out
    movers that do not fit. None is for pages, whose width is not known: changed rows and inputs are tables then. A
    section without content is left out.
    """
    sections = [summary_section(comparison), *causes_section(comparison, width)]
    if changes := comparison.definition_changes:
        lines = changes if width is None else tuple(line for change in changes for line in wrap(change, width))
        sections.append(ReportSection("Definition", lines))
    if comparison.rows.differing:
        sections += metrics_section(comparison, width)
        sections += movers_section(comparison)
        sections.append(rows_section(comparison, width))
    sections.append(inputs_section(comparison, width))
    sections += cost_section(comparison)
    if comparison.after.files_not_taken:
        sections.append(missing_files_section(comparison, width))
    return sections


def causes_section(comparison: Comparison, width: int | None) -> list[ReportSection]:
    """Return a warning that late data does not explain the whole change; an empty list if nothing else has changed."""
    others = {Cause.NEW_DEFINITION, Cause.NEW_CODE} & set(comparison.causes)
    if not others or not comparison.rows.differing:
        return []
    causes = describe_causes(comparison)
    sentence = f"{causes} {'have' if len(comparison.causes) > 1 else 'has'} changed the day since the earlier version."
    if len(comparison.causes) > 1:
        sentence += " The comparison cannot tell which of them has changed a value."
    return [ReportSection("Causes", (sentence,) if width is None else tuple(wrap(sentence, width)))]


def cost_section(comparison: Comparison) -> list[ReportSection]:
    """Return what the run of the later version and the comparison have cost, as far as it is known."""
    cost, lines = comparison.after.cost, []
    if cost is not None and cost.usd is not None:
        lines.append(f"run: {number(cost.usd)} USD, {counted(cost.jobs, 'Spark job')}")
    if comparison.comparison_usd is not None:
        lines.append(f"comparison: {number(comparison.comparison_usd)} USD")
    return [ReportSection("Cost", tuple(lines))] if lines else []


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


def metrics_section(comparison: Comparison, width: int | None) -> list[ReportSection]:
    """Return the table of metrics, those that changed first; an empty list for a table without metrics."""
    metrics = sorted(comparison.metrics, key=lambda metric: not metric.moved)[:_MAX_METRICS]
    if not metrics:
        return []
    # A total that has not moved may differ in its last digits: the table shows the same number for both versions.
    pairs = [(metric.before if metric.moved else metric.after, metric.after) for metric in metrics]
    names = ["metric", *(cut_value(metric.metric, MAX_CELL) for metric in metrics)]
    totals = ["total", *(metric.total.value for metric in metrics)]
    columns = [names, totals, *number_columns(comparison, pairs)]
    available = None if width is None else width - sum(max(map(len, column)) + 2 for column in columns)
    movers: list[str] = []
    for metric in metrics:
        mover = ""
        if metric.movers:
            largest = metric.movers[0]
            key = " ".join(cut_value(value, MAX_CELL) for value in largest.key.values())
            mover = f"{f'{key}: ' if key else ''}{' -> '.join(number_pair(largest.before, largest.after))}"
        # Part of a number would be wrong, so a mover that does not fit is left out.
        movers.append(mover if available is None or len(mover) <= available else "")
    columns.append(["most changed row", *movers])
    title = with_count("Metrics, over the day", len(metrics), len(comparison.metrics))
    return [ReportSection(title, table=ReportTable.of_columns(columns))]


def movers_section(comparison: Comparison) -> list[ReportSection]:
    """Return the keys whose value of the largest metric changed most; an empty list for fewer than two keys."""
    metric = largest_metric(comparison)
    if metric is None or len(metric.movers) < 2:  # noqa: PLR2004 - the metrics table shows a single one
        return []
    keys = [
        [cut_value(name, MAX_CELL), *(cut_value(mover.key[name], MAX_CELL) for mover in metric.movers)]
        for name in comparison.key
    ]
    numbers = number_columns(comparison, [(mover.before, mover.after) for mover in metric.movers])
    name = cut_value(metric.metric, MAX_CELL)
    return [ReportSection(f"Most changed rows: {name}", table=ReportTable.of_columns([*keys, *numbers]))]
