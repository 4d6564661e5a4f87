"""Reads the inputs of a day, and evaluates what its run waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from slackwater.model import duration_of
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.when import NewerThan, WaitLimit
from slackwater.project.project import Project
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.source_counts import CountsReader, rows_by_hour
from slackwater.runs.inputs.table_inputs import read_periods
from slackwater.runs.period import Period, period_of, start_of
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, SourceCounts, total_counts
from slackwater.state.conditions import (
    CompleteSource,
    Evaluation,
    FailedInput,
    InputFact,
    Limit,
    NewerInput,
    Outcome,
    PublishedDays,
    evaluate,
)
from slackwater.state.verdicts import VerdictTable
from slackwater.state.waits import DayKey


@dataclass(frozen=True, kw_only=True)
class InputEvaluator:
    """Evaluates what runs wait for, by the definitions of a project."""

    project: Project
    inputs: InputListing
    counts: CountsReader
    table: RunTable
    verdicts: VerdictTable
    now: Callable[[], datetime]

    def evaluate(self, key: DayKey) -> Evaluation:
        """Return what the run of a day does, and which conditions do not hold.

        Raises `UnknownName` for a pipeline that does not exist any more, `ObjectInvalid`, `DayChanged`, `CloudError`.
        """
        pipeline = self.project.pipeline(key.pipeline)
        day = period_of(key.date, pipeline.timezone)
        facts = list(self._facts(pipeline, day))
        unknown, incomplete = (_limit(limit, day) for limit in (pipeline.when.unknown, pipeline.when.incomplete))
        # The time last: reading may take long, and a limit may pass meanwhile.
        evaluation = evaluate(facts, unknown=unknown, incomplete=incomplete, now=self.now())
        failed = any(item.kind == "failed" for item in evaluation.unmet)
        if evaluation.outcome is Outcome.FAIL and not failed and self.table.day(pipeline.pipeline, key.date).published:
            # A person has published the day meanwhile: nobody misses it, and the run looks at what has come since.
            return evaluation._replace(outcome=Outcome.RUN)
        return evaluation

    def _facts(self, pipeline: Pipeline, day: Period) -> Iterator[InputFact]:
        for name, wanted in sorted(pipeline.when.inputs.items()):
            if isinstance(wanted, NewerThan):
                yield NewerInput(name, self._newest(pipeline, name, day), duration_of(wanted.newer_than))
            else:
                yield CompleteSource(name, self._counts(pipeline, self.project.source(name), day))
        for name, item in sorted(pipeline.published_tables.items()):
            if item.missing == "wait":
                yield self._published(pipeline, name, day)
        # Last: a verdict that is given while the inputs are read counts.
        reader = VerdictReader(table=self.table, store=self.inputs.store, verdicts=self.verdicts)
        for name in sorted(pipeline.when.quality):
            yield FailedInput(name, reader.of_input(pipeline, name, day, pipelines=self.project.pipelines))

    def _counts(self, pipeline: Pipeline, source: Source, day: Period) -> SourceCounts:
        """Return what the source has sent in the hours of the day, against the events that the run would read."""
        keeps, partitions = pipeline.on_removed(source) == "keep", list(day.partitions())
        hours = [start_of(partition) for partition in partitions]
        counts = total_counts(source, self.counts.periods(source, hours, {}))
        # What is not enough with duplicates is not enough without them: most evaluations read no ids. Without some
        # counts, the run waits in any case, until it is to run without them.
        not_enough = {CountState.SHORT}
        if self.now() < _limit(pipeline.when.unknown, day).at:
            not_enough.add(CountState.UNKNOWN)
        for reads_ids in (False, True) if source.id_column else (True,):
            if counts.unknown == counts.periods:
                break
            objects = self.inputs.of_source(source.source, partitions, keeps_removed=keeps, reads_ids=reads_ids)
            counts = total_counts(source, self.counts.periods(source, hours, rows_by_hour(objects)))
            if counts.state in not_enough:
                break
        return counts

    def _newest(self, pipeline: Pipeline, name: str, day: Period) -> datetime | None:
        """Return when the newest object of the day has arrived, or the rows of a table have changed; None without."""
        if name in pipeline.foreign_tables:
            # A table that cannot be read yet is one that the run waits for.
            items = self.inputs.foreign.inputs(pipeline, day, {}, unread=pipeline.tables)
            return next((item.arrived for item in items if item.source == name), None)
        return max(self.inputs.arrivals(name, day), default=None)

    def _published(self, pipeline: Pipeline, name: str, day: Period) -> PublishedDays:
        item = pipeline.published_tables[name]
        dates = read_periods(item, day, pipeline, pipelines=self.project.pipelines)
        missing = tuple(date for date in dates if self.table.day(item.table, date).published is None)
        return PublishedDays(name, item.table, len(dates), missing)


def _limit(limit: WaitLimit, day: Period) -> Limit:
    return Limit(day.end + duration_of(limit.after), limit.then)
