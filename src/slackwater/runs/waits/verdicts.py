"""The verdicts about what a day reads, and about what it has published."""

from __future__ import annotations

from datetime import timedelta

from slackwater.pipeline.definition import Pipeline
from slackwater.runs.day import Day
from slackwater.runs.table import RunTable
from slackwater.state.verdicts import Subject, Verdict, VerdictTable, deciding


def failures_of_input(
    pipeline: Pipeline, name: str, day: Day, *, verdicts: VerdictTable, table: RunTable
) -> tuple[Verdict, ...]:
    """Return the verdicts by which periods have failed that a run of the day would read of an input, in order.

    None for an Iceberg table. Raises `CloudError`.
    """
    if name in pipeline.published_tables:
        item = pipeline.published_tables[name]
        first, last = ((day.date + timedelta(days=offset)).isoformat() for offset in item.days)
        return published_failures(item.table, first, last, verdicts=verdicts, table=table)
    if name not in pipeline.sources:
        return ()
    hours = [f"{partition.date}T{partition.hour}" for partition in day.partitions()]
    return failures_of_hours(name, hours[0], hours[-1], verdicts=verdicts)


def failures_of_hours(source: str, first: str, last: str, *, verdicts: VerdictTable) -> tuple[Verdict, ...]:
    """Return the verdicts by which UTC hours of a source have failed, in order. Raises `CloudError`."""
    found = verdicts.verdicts(Subject("source", source), first, last)
    return tuple(verdict for verdict in deciding(found) if verdict.is_failure)


def published_failures(
    pipeline: str, first: str, last: str, *, verdicts: VerdictTable, table: RunTable
) -> tuple[Verdict, ...]:
    """Return the verdicts by which published versions of the days from `first` to `last` have failed, in order.

    A verdict about a version that was replaced does not count. Raises `CloudError`.
    """
    found = deciding(verdicts.verdicts(Subject("pipeline", pipeline), first, last))
    # Few days have verdicts: only their records are read.
    dates = {verdict.period for verdict in found if verdict.is_failure}
    published = {date: table.day(pipeline, date).published for date in dates}
    return tuple(
        verdict
        for verdict in found
        if verdict.is_failure and (of := published[verdict.period]) and of.run.attempt == verdict.version
    )
