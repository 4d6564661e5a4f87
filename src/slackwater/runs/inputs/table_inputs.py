"""The published days of other pipelines that a run reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from slackwater.errors import InputError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.period import Period, shifted
from slackwater.runs.table import RunTable


def read_dates(item: TableInput, date: str) -> list[str]:
    """Return the days of a table that a day reads, in order."""
    first, last = item.days
    return [shifted(date, offset) for offset in range(first, last + 1)]


def reading_dates(item: TableInput, date: str) -> list[str]:
    """Return the days that read a day of a table, the last one first."""
    first, last = item.days
    return [shifted(date, -offset) for offset in range(first, last + 1)]


def published_days(
    pipeline: Pipeline, day: Period, *, table: RunTable, unread: Collection[str] = ()
) -> Iterator[InputObject]:
    """Yield the version that is published now of each day that the pipeline's tables need for `day`.

    The digest of its rows identifies a version: a day that was published again with the same rows is the same input.
    Raises `InputError` for a day that is not published, unless the table allows it or its name is in `unread`.
    """
    for name, item in sorted(pipeline.published_tables.items()):
        for date in read_dates(item, day.name):
            published = table.day(item.table, date).published
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
                # A day that an older version has published has no digest: then each version counts as another input.
                etag=published.publication.content or published.run.tag,
                bytes=0,
                rows=published.publication.rows,
                arrived=published.at,
                file=f"{item.table} {date}",
                tag=published.run.tag,
            )
