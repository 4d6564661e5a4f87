"""Who has read a version: the definitions name the days that may have, and their input manifests what they have read.

Nothing is searched: the days follow from the `days` of each table input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slackwater.lineage.graph import MOST_VERSIONS, DayRead, Reader
from slackwater.lineage.upstream import Upstream, read_day
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import run_manifest
from slackwater.runs.inputs.table_inputs import reading_periods
from slackwater.runs.record import PublishedRun, tagged_attempt


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """Finds the published days that have read a day, through chains."""

    project: Project
    """The deployed one: a pipeline that reads the day no longer is not found."""
    upstream: Upstream

    def readers(self, pipeline: str, date: str, *, version: int | None) -> tuple[list[Reader], bool]:
        """Return the readers of a day or an hour, and whether these are all; with `version`, those that have read it.

        A reader is in the result once for each day that it reads. Raises `CloudError`, `ObjectInvalid`.
        """
        wanted, found = [(pipeline, date)], list[Reader]()
        seen = set(wanted)
        for read_pipeline, read_date in wanted:  # grows meanwhile
            for published in self._published(read_pipeline, read_date):
                reader = self._reader(published, read_pipeline, read_date)
                is_first = (read_pipeline, read_date) == (pipeline, date)
                if is_first and version is not None and reader.read.version != version:
                    continue
                if len(found) == MOST_VERSIONS:
                    return found, False
                found.append(reader)
                key = reader.pipeline, reader.date
                if reader.read.version is not None and key not in seen:
                    seen.add(key)
                    wanted.append(key)
        return found, True

    def _published(self, pipeline: str, date: str) -> Iterator[PublishedRun]:
        """Yield the published days of the pipelines that read a day, in order of pipeline and date."""
        for name, reader in sorted(self.project.pipelines.items()):
            items = [item for item in reader.published_tables.values() if item.table == pipeline]
            dates = sorted(
                {day for item in items for day in reading_periods(item, date, reader, pipelines=self.project.pipelines)}
            )
            days = self.upstream.table.days(name, dates[0], dates[-1]) if dates else ()
            # Two inputs of one table may leave out days between theirs.
            yield from (day.published for day in days if day.published and day.date in dates)

    def _reader(self, published: PublishedRun, pipeline: str, date: str) -> Reader:
        run, verdicts = published.run, self.upstream.verdicts
        item = read_day(run_manifest(self.upstream.store, run), pipeline, date)
        newest = self.upstream.newest(pipeline, date)
        return Reader(
            pipeline=run.pipeline,
            date=run.date,
            version=run.attempt,
            read=DayRead(
                pipeline=pipeline,
                date=date,
                version=tagged_attempt(item.tag) if item else None,
                newest=newest.run.attempt if newest else None,
                is_newest=item is not None and self.upstream.has_newest_rows(item, newest),
            ),
            verdicts=verdicts.of_version(run.pipeline, run.date, run.attempt) if verdicts else (),
        )
