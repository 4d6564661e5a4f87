"""The days whose runs may wait for an input: by the definitions, so that nothing is scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.day import HOUR, parse_date
from slackwater.state.waits import DayKey

_DAY = timedelta(days=1)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class ProjectDays:
    """The days of a project that may wait: `slackwater.state.waits.DaysThatWait`."""

    project: Project
    now: Callable[[], datetime]

    def of_source(self, source: str, hours: Iterable[datetime] | None) -> Iterator[DayKey]:
        """Yield the days that wait for the source and read any of these UTC hours; with None, of any hour."""
        wanted = None if hours is None else list(hours)
        for pipeline in self.project.pipelines.values():
            if source in pipeline.when.inputs or (source in pipeline.sources and source in pipeline.when.quality):
                dates = self._dates(pipeline)
                yield from (
                    DayKey(pipeline.pipeline, date)
                    for date in (dates if wanted is None else dates & local_dates(wanted, pipeline.timezone))
                )

    def of_day(self, pipeline: str, date: str) -> Iterator[DayKey]:
        """Yield the days of other pipelines that wait for this day."""
        published = parse_date(date)
        for reader in self.project.pipelines.values():
            for name, item in reader.published_tables.items():
                if item.table == pipeline and (item.missing == "wait" or name in reader.when.quality):
                    first, last = item.days
                    read_by = {(published - timedelta(days=day)).isoformat() for day in range(first, last + 1)}
                    yield from (DayKey(reader.pipeline, day) for day in read_by & self._dates(reader))

    def _dates(self, pipeline: Pipeline) -> set[str]:
        """Return the days of a pipeline that may wait now: those that have begun, and whose wait is not over."""
        zone, now = ZoneInfo(pipeline.timezone), self.now()
        # One day more: the wait is counted from the end of the day, and evaluated again at most 15 minutes later.
        date, last = (now - pipeline.when.longest - _DAY - HOUR).astimezone(zone).date(), now.astimezone(zone).date()
        dates = set[str]()
        while date <= last:
            dates.add(date.isoformat())
            date += _DAY
        return dates


def local_dates(hours: Iterable[datetime], timezone: str) -> set[str]:
    """Return the dates in a timezone that UTC hours overlap: two, if midnight is within an hour."""
    zone = ZoneInfo(timezone)
    return {instant.astimezone(zone).date().isoformat() for hour in hours for instant in (hour, hour + HOUR - _INSTANT)}
