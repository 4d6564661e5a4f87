"""What the sources of a run have sent, against the rows of its input manifest that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.period import Period, start_of
from slackwater.sources.counts import ALL
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition
from slackwater.state.completeness import PeriodCounts, SourceCounts, fact_hours, period_counts, total_counts
from slackwater.state.facts import StateTable, content_of
from slackwater.state.fold import PeriodState
from slackwater.state.rollup import with_values


class CountsTable(StateTable, Protocol):
    """A table of facts, with the states that follow from them."""

    def states(self, source: str, starts: Iterable[datetime]) -> list[PeriodState]:
        """Return the stored states of the periods that begin then, in order. The reads are consistent."""


@dataclass(frozen=True, kw_only=True)
class CountsReader:
    """Compares what sources have sent with what is stored. All methods raise `CloudError`."""

    project: Project
    state: CountsTable
    files: FileCache

    def periods(
        self,
        source: Source,
        hours: Collection[datetime],
        stored: Mapping[datetime, int],
        *,
        reads_unknown: bool = False,
    ) -> list[PeriodCounts]:
        """Return the counts of the periods of a source with `counts` that overlap these UTC hours.

        `stored` is the number of stored events that count, by hour, and was read before: a report that comes in between
        makes no hour complete that is not. Rejected events of hours before the first report, which are unknown in any
        case, are read with `reads_unknown` only. What is stored of each value is not in `stored`: those of a source
        that counts by a column are in the stored states, which follow some seconds later.
        """
        coverage = self.state.coverage(source.source)
        wanted = fact_hours(source, hours)
        if not reads_unknown:
            wanted = {hour for hour in wanted if coverage and hour >= coverage.first.replace(minute=0)}
        facts = self.state.facts(source.source, wanted)
        origins = {item.origin for hour in facts.values() for item in hour.rejected}
        current = current_origins(source.source, origins, files=self.files)
        periods = period_counts(
            source, hours, facts=facts, coverage=coverage, stored=stored, is_current=current.__contains__
        )
        if source.count_keys == (ALL,):
            return periods
        states = {state.start: state for state in self.state.states(source.source, [each.start for each in periods])}
        return [with_values(period, states.get(period.start)) for period in periods]

    def of_day(self, pipeline: str, day: Period, manifest: InputManifest) -> dict[str, list[PeriodCounts]]:
        """Return the counts of each source of the pipeline that has `counts`, in the UTC hours of a day.

        Reads nothing for other sources.
        """
        sources = (self.project.source(name) for name in sorted(self.project.pipeline(pipeline).sources))
        hours = [start_of(partition) for partition in day.partitions()]
        return {
            source.source: self.periods(source, hours, rows_by_hour(manifest.of_source(source.source)))
            for source in sources
            if source.counts
        }

    def totals(self, pipeline: str, day: Period, manifest: InputManifest) -> tuple[SourceCounts, ...]:
        """Return the totals of the day for each source of the pipeline that has `counts`, by name."""
        counts = self.of_day(pipeline, day, manifest)
        return tuple(total_counts(self.project.source(name), periods) for name, periods in counts.items())


def current_origins(source: str, origins: Iterable[str], *, files: FileCache) -> frozenset[str]:
    """Return those of the origins of rejected events that count: of a file, only what readers see of it now."""
    of_files = {origin: content for origin in origins if (content := content_of(origin))}
    contents = files.contents(source, {content for content, _ in of_files.values()})
    seen = {
        (content.id, content.committed.digest) for content in contents if content.committed and not content.is_removed
    }
    return frozenset(origin for origin in origins if origin not in of_files or of_files[origin] in seen)


def rows_by_hour(objects: Iterable[InputObject]) -> Mapping[datetime, int]:
    """Return the number of events that count by UTC hour; `objects` are of a source."""
    rows = Counter[datetime]()
    for item in objects:
        rows[start_of(Partition(item.date, item.hour))] += item.rows
    return rows
