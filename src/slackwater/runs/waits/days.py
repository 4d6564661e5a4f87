"""The days whose runs may wait for an input: by the definitions, so that nothing is scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.inputs.table_inputs import reading_periods
from slackwater.runs.period import HOUR, distance, names_in_hour, period_at, shifted
from slackwater.state.verdicts import Subject
from slackwater.state.waits import DayKey

_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class ProjectDays:
    """The days of a project that may wait: `slackwater.state.waits.DaysThatWait`."""

    project: Project
    now: Callable[[], datetime]

    def of_source(self, source: str, hours: Iterable[datetime] | None) -> Iterator[DayKey]:
        """Yield the days that wait for the source and read any of these UTC hours; with None, of any hour."""
        wanted = None if hours is None else list(hours)
        for pipeline in self.project.pipelines.values():
            if source in pipeline.when.inputs:
                dates = self._dates(pipeline)
                yield from (
                    DayKey(pipeline.pipeline, date)
                    for date in (dates if wanted is None else dates & _names(pipeline, wanted))
                )

    def of_day(self, pipeline: str, date: str) -> Iterator[DayKey]:
        """Yield the days of other pipelines that wait for this day, or for the quality of what may have read it."""
        for reader, name, dates in self.readings(Subject("pipeline", pipeline), [date]):
            item = reader.published_tables[name]
            if name in reader.when.quality or (item.table == pipeline and item.missing == "wait"):
                yield from (DayKey(reader.pipeline, day) for day in dates & self._dates(reader))

    def of_verdict(self, subject: Subject, periods: Iterable[str]) -> Iterator[DayKey]:
        """Yield the days that wait for the quality of these periods, or of what may have read them, through chains."""
        for pipeline, name, dates in self.readings(subject, periods):
            if name in pipeline.when.quality:
                yield from (DayKey(pipeline.pipeline, date) for date in dates & self._dates(pipeline))

    def that_read(self, subject: Subject, periods: Iterable[str]) -> set[DayKey]:
        """Return the days that may have read these periods, or what has read them, by the present definitions."""
        return {
            DayKey(pipeline.pipeline, date) for pipeline, _, dates in self.readings(subject, periods) for date in dates
        }

    def readings(self, subject: Subject, periods: Iterable[str]) -> Iterator[tuple[Pipeline, str, set[str]]]:
        """Yield which days of which pipelines may have read the periods, with the name of the input, through chains."""
        read = list[tuple[str, set[str]]]()
        if subject.of == "pipeline":
            read.append((subject.name, set(periods)))
        else:
            hours = [datetime.fromisoformat(f"{period}:00:00+00:00") for period in periods]
            for pipeline in self.project.pipelines.values():
                if subject.name in pipeline.sources:
                    dates = _names(pipeline, hours)
                    read.append((pipeline.pipeline, dates))
                    yield pipeline, subject.name, dates
        seen = dict[str, set[str]]()
        while read:
            upstream, dates = read.pop()
            new = dates - seen.setdefault(upstream, set())
            seen[upstream] |= new
            for reader in self.project.pipelines.values() if new else ():
                for name, item in reader.published_tables.items():
                    if item.table == upstream:
                        days = {
                            day
                            for date in new
                            for day in reading_periods(item, date, reader, pipelines=self.project.pipelines)
                        }
                        read.append((reader.pipeline, days))
                        yield reader, name, days

    def _dates(self, pipeline: Pipeline) -> set[str]:
        """Return the days or hours of a pipeline that may wait now: those that have begun, and still have time."""
        now = self.now()
        # One day more: the wait is counted from the end of the day, and evaluated again at most 15 minutes later.
        first = period_at(now - pipeline.when.longest - _DAY - HOUR, pipeline).name
        count = distance(first, period_at(now, pipeline).name) + 1
        return {shifted(first, number) for number in range(count)}


def _names(pipeline: Pipeline, hours: list[datetime]) -> set[str]:
    """Return the periods of a pipeline that overlap UTC hours."""
    return {name for hour in hours for name in names_in_hour(hour, pipeline)}
