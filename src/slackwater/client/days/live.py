"""The provisional versions of days and hours that were open when their inputs were listed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from slackwater.formatting import provisional
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.period import period_at, shifted
from slackwater.runs.record import DayRecord
from slackwater.runs.table import RunTable

# After its end, a period stays provisional until the schedule has run it: of most pipelines for some hours.
_BEFORE = {"day": 2, "hour": 48}


class ProvisionalDay(Record):
    """The provisional version of a day or hour that has no published one."""

    pipeline: str
    date: str
    attempt: int
    at: datetime
    """When it was recorded, UTC."""
    rows: int
    through: datetime
    """When its inputs were listed, UTC."""

    @property
    def line(self) -> str:
        """In one line: `2013-03-10: provisional, through 15:04 UTC`."""
        return f"{self.date}: {provisional(self.through)}"

    @property
    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


def provisional_day(day: DayRecord) -> ProvisionalDay | None:
    """Return the provisional version of a day; None without one."""
    version = day.provisional
    if version is None or version.run.through is None:
        return None
    return ProvisionalDay(
        pipeline=day.pipeline,
        date=day.date,
        attempt=version.run.attempt,
        at=version.at,
        rows=version.publication.rows,
        through=version.run.through,
    )


def provisional_days(table: RunTable, pipelines: Iterable[Pipeline], *, now: datetime) -> list[ProvisionalDay]:
    """Return the provisional versions of the current and the latest periods of pipelines. Raises `CloudError`."""
    found = []
    for pipeline in pipelines:
        last = period_at(now, pipeline).name
        first = shifted(last, -_BEFORE[pipeline.period])
        found += [item for day in table.days(pipeline.pipeline, first, last) if (item := provisional_day(day))]
    return found
