"""The published days and hours of other pipelines that a run reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from slackwater.errors import InputError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.period import Period, period_at, period_kind, period_of, shifted
from slackwater.runs.record import DayRecord
from slackwater.runs.table import RunTable


def read_periods(item: TableInput, period: Period, reader: Pipeline, *, pipelines: Mapping[str, Pipeline]) -> list[str]:
    """Return the days or hours of a table that a period of the reader reads, in order.

    `pipelines` are those of the project, by stored name. A day reads all hours of its days: 23 to 25 of each, or one
    more where midnight is within an hour. An hour reads days counted from the one that contains its start, in the
    timezone of the pipeline that publishes them.
    """
    table = pipelines[item.table]
    if reader.period == table.period:
        return _shifted(period.name, item.hours or (0, 0) if table.period == "hour" else item.days)
    if reader.period == "hour":
        return _shifted(period_at(period.start, table).name, item.days)
    days = (period_of(name, reader.timezone) for name in _shifted(period.name, item.days))
    return [f"{hour.date}T{hour.hour}" for day in days for hour in day.partitions()]


def reading_periods(item: TableInput, name: str, reader: Pipeline, *, pipelines: Mapping[str, Pipeline]) -> list[str]:
    """Return the days or hours of the reader that read a day or an hour of a table, in order.

    `pipelines` are those of the project, by stored name.
    """
    table = pipelines[item.table]
    if reader.period == table.period:
        first, last = item.hours or (0, 0) if table.period == "hour" else item.days
        return _shifted(name, (-last, -first))
    first, last = item.days
    if reader.period == "day":
        return _shifted(period_at(period_of(name, "UTC").start, reader).name, (-last, -first))
    days = (period_of(day, table.timezone) for day in _shifted(name, (-last, -first)))
    return [hour for day in days for hour in day.started_hours()]


def _shifted(name: str, offsets: tuple[int, int]) -> list[str]:
    first, last = offsets
    return [shifted(name, offset) for offset in range(first, last + 1)]


def published_periods(
    pipeline: Pipeline,
    day: Period,
    *,
    table: RunTable,
    pipelines: Mapping[str, Pipeline],
    unread: Collection[str] = (),
) -> Iterator[InputObject]:
    """Yield the version that is published now of each day or hour that the pipeline's tables need for `day`.

    `pipelines` are those of the project, by stored name. The digest of its rows identifies a version: a day that was
    published again with the same rows is the same input. Raises `InputError` for a day that is not published, unless
    the table allows it or its name is in `unread`.
    """
    for name, item in sorted(pipeline.published_tables.items()):
        names = read_periods(item, day, pipeline, pipelines=pipelines)
        if (pipeline.period, pipelines[item.table].period) == ("day", "hour"):
            _refuse_split_hours(name, item, day, pipeline)
        records = _records(item.table, names, table)
        for date in names:
            published = records[date].published if date in records else None
            if published is None:
                if item.missing == "error" and name not in unread:
                    raise InputError(
                        f"tables.{name}: {item.table} has not published {date}: run it first "
                        f"(slackwater run {item.table} --date {date}), or allow it with `missing: empty`"
                    )
                continue
            yield InputObject(
                uri=f"{published.publication.table}/date={date}",
                source=name,
                date=date,
                hour="00",
                etag=published.rows_digest,
                bytes=0,
                rows=published.publication.rows,
                arrived=published.at,
                file=f"{item.table} {date}",
                tag=published.run.tag,
            )


def _refuse_split_hours(name: str, item: TableInput, day: Period, pipeline: Pipeline) -> None:
    """Raise `InputError` if a day reads only a part of an hour: rows of an hour have no time."""
    first, last = (shifted(day.name, offset) for offset in item.days)
    if period_of(first, pipeline.timezone).start.minute or period_of(last, pipeline.timezone).end.minute:
        raise InputError(
            f"tables.{name}: days of {pipeline.timezone} begin within an hour of UTC, and {item.table} has whole "
            "hours: read its sources instead"
        )


def _records(pipeline: str, names: list[str], table: RunTable) -> dict[str, DayRecord]:
    """Return the records of days or hours that follow each other: of hours, one query reads them."""
    if period_kind(names[0]) == "day":
        return {name: table.day(pipeline, name) for name in names}
    return {record.date: record for record in table.days(pipeline, names[0], names[-1])}
