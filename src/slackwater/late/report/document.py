"""The JSON document about a changed day, for chat, tickets and programs: `python -m slackwater.late.report.document`.

The command prints its JSON Schema, as docs/contracts/change.schema.json holds it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from slackwater.late.comparison import Cause, Comparison, HourTotals, MetricChange, RowCounts, Split, Totals
from slackwater.late.effect import Severity, effect_percent, severity
from slackwater.late.report.headline import cut_value, largest_effect
from slackwater.model import Record, json_schema
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.state.completeness import SourceCounts

MAX_METRICS = 20
MAX_INPUTS = 20
MAX_FILES = 20
"""Of one input."""
MAX_ALL_FILES = 40
"""Of all inputs."""
MAX_ALL_HOURS = 50
"""Of all metrics."""
# Characters of a name. They bound the document, which SNS carries once for each type of subscriber.
_MAX_NAME = 100


class Document(Record):
    """What each JSON document that programs receive begins with."""

    version: Literal[1] = 1
    """Of this format. Later versions only add fields, unless the number changes."""
    pipeline: str
    team: str
    """The team that owns the table; empty if the pipeline names none."""
    severity: Severity
    """By which subscriptions filter it."""
    summary: str
    """The subject of the e-mail."""


class ChangedMetric(Record):
    """A metric whose total of the day, or of one of its hours, has changed."""

    metric: str
    total: Totals
    before: float | None
    """None if the version has no finite value."""
    after: float | None
    data: float | None = None
    """How much the data has changed the total; None unless the definition or the code has changed as well, and somebody
    has asked for the split: `late.split` of the pipeline."""
    definition: float | None = None
    """How much the definition and the code have changed it: with `data`, it adds up to `after` - `before`."""
    changed_hours: int = 0
    """Entries of `hours` if none were left out."""
    hours: tuple[HourTotals, ...] = ()
    """The hours whose total has changed, in order; at most 50 of all metrics. Empty if the table has no hours."""


class ChangedInputFile(Record):
    """A file of a source, its pushed events, or a published day of a table."""

    file: str | None
    """The name of the partner's file, or the pipeline and the day of a table, as in `daily_delays 2013-03-10`. None for
    pushed events."""
    change: Change
    rows_before: int
    rows_after: int
    arrived: datetime | None
    """When its newest object was written, UTC; None for a removed file."""


class ChangedInput(Record):
    """A source or table whose data of the day has changed."""

    input: str
    rows_before: int
    rows_after: int
    late_rows: int
    """Rows of added objects, and all rows of changed files."""
    removed_rows: int
    changed_files: int = 0
    """Entries of `files` if none were left out."""
    files: tuple[ChangedInputFile, ...] = ()
    """At most 20 of the input, and 40 of all inputs."""


class ChangeDocument(Document):
    """What has changed between the version of a day that people know and the published one."""

    date: str
    causes: tuple[Cause, ...]
    """What has changed between the runs; empty if nothing has, or if it is unknown."""
    definition_changes: tuple[str, ...] = ()
    """What differs between the definitions of the versions, at most 20 lines; empty if nothing does, or if it is
    unknown."""
    effect: str
    """The most important change in words: `flights 831 -> 883 (+6.3 %)`."""
    effect_percent: Annotated[float, Field(ge=0)] | None
    """The largest relative change of a metric in percent. None if a metric has become or stopped being 0 or empty."""
    attempt_before: int
    attempt_after: int
    rows: RowCounts
    metrics: tuple[ChangedMetric, ...]
    """At most 20 metrics that have changed, in the order of their declaration."""
    inputs: tuple[ChangedInput, ...]
    """At most 20 inputs that have changed, by name."""
    counts: tuple[SourceCounts, ...] = ()
    """What at most 20 sources with `counts` had sent when the inputs of the later version were listed."""
    cost_usd: float | None
    """Of the run that published the later version, in USD; None while it is unknown."""
    comparison_cost_usd: float | None = None
    """Of the comparison of the two versions, in USD; None while it is unknown."""
    comparison: str
    """URI of the whole comparison as JSON."""
    report: str
    """URI of the report as an HTML page."""
    correlation_id: str
    """As in the logs of the monitoring."""


def change_document(comparison: Comparison, *, summary: str, comparison_uri: str, report_uri: str) -> ChangeDocument:
    """Return the document about a comparison; `summary` is the subject of its message."""
    percent, cost = effect_percent(comparison), comparison.after.cost
    metrics = [metric for metric in comparison.metrics if metric.moved or metric.moved_hours][:MAX_METRICS]
    inputs = [source for source in comparison.inputs if source.changes][:MAX_INPUTS]
    return ChangeDocument(
        pipeline=comparison.pipeline,
        date=comparison.date,
        team=comparison.team,
        severity=severity(comparison),
        summary=summary,
        causes=comparison.causes,
        definition_changes=comparison.definition_changes[:MAX_INPUTS],
        effect=largest_effect(comparison),
        effect_percent=percent if math.isfinite(percent) else None,
        attempt_before=comparison.before.attempt,
        attempt_after=comparison.after.attempt,
        rows=comparison.rows,
        metrics=tuple(_changed_metrics(metrics, comparison.split)),
        inputs=tuple(_changed_inputs(inputs)),
        counts=comparison.after.counts[:MAX_INPUTS],
        cost_usd=cost.usd if cost else None,
        comparison_cost_usd=comparison.comparison_usd,
        comparison=comparison_uri,
        report=report_uri,
        correlation_id=comparison.correlation_id,
    )


def _changed_metrics(metrics: list[MetricChange], split: Split | None) -> Iterator[ChangedMetric]:
    """Yield the metrics with their hours, until the document has `MAX_ALL_HOURS`."""
    left, parts = MAX_ALL_HOURS, {part.metric: part for part in split.metrics} if split else {}
    for metric in metrics:
        shown = metric.moved_hours[:left]
        left -= len(shown)
        yield ChangedMetric(
            metric=cut_value(metric.metric, _MAX_NAME),
            total=metric.total,
            before=metric.before,
            after=metric.after,
            data=part.data if (part := parts.get(metric.metric)) else None,
            definition=part.definition if part else None,
            changed_hours=len(metric.moved_hours),
            hours=shown,
        )


def _changed_inputs(sources: list[SourceDifference]) -> Iterator[ChangedInput]:
    """Yield the inputs with their files, until the document has `MAX_ALL_FILES`."""
    left = MAX_ALL_FILES
    for source in sources:
        files = source.by_file()
        shown = files[: min(MAX_FILES, left)]
        left -= len(shown)
        yield ChangedInput(
            input=source.source,
            rows_before=source.before.rows,
            rows_after=source.now.rows,
            late_rows=source.late.rows,
            removed_rows=sum(item.before.rows for item in source.removed),
            changed_files=len(files),
            files=tuple(
                ChangedInputFile(
                    file=None if item.file is None else cut_value(item.file, _MAX_NAME),
                    change=item.change,
                    rows_before=item.before.rows,
                    rows_after=item.now.rows,
                    arrived=item.arrivals[-1] if item.arrivals else None,
                )
                for item in shown
            ),
        )


if __name__ == "__main__":
    sys.stdout.write(json_schema(ChangeDocument))
