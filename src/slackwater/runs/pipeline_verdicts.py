"""The verdicts that a pipeline gives about what its runs have read.

A run that fails because of a rule of severity `invalidate` says that its input should not be used. The next run that
publishes the same day clears what the pipeline has said because of this day, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from slackwater.runs.holds import MAX_REASON
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import InputObject, run_manifest
from slackwater.runs.period import period_of
from slackwater.runs.record import Run, RunRecord, invalid_input_uri
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import version_read
from slackwater.state.verdicts import Quality, Subject, VerdictTable, failures, new_verdict
from slackwater.storage import ObjectStore

_INSTANT = timedelta(microseconds=1)
_Period = tuple[str, int | None]
"""A UTC hour of a source, or a published day and its version."""


@dataclass(frozen=True, kw_only=True)
class PipelineVerdicts:
    """Stores verdicts about the inputs of runs that have ended. A repeated call changes nothing.

    All methods raise `CloudError`, and `ObjectInvalid` for a manifest that is not readable. Nothing is said about a run
    whose manifest is gone.
    """

    store: ObjectStore
    runs: RunTable
    table: VerdictTable
    wake: Callable[[Subject, list[str], datetime], None]
    """Has the runs evaluated that wait for the quality of these periods, and the published days checked that may have
    read them; the verdicts about them were given at that instant."""

    def of_failed(self, record: RunRecord) -> None:
        """Say that the input has failed which a rule of severity `invalidate` has refused: all that the run has read.

        Raises `ObjectMissing` if no job has written its name.
        """
        name = self.store.get(invalid_input_uri(record.run.prefix)).decode()
        if (manifest := run_manifest(self.store, record.run)) and record.ended_at:
            reason = (record.error or "")[:MAX_REASON]
            for subject, periods in self._periods(manifest.of_source(name)).items():
                self._give(subject, periods, "fail", record.run, reason=reason, at=record.ended_at)

    def of_published(self, records: Iterable[RunRecord], *, at: datetime | None = None) -> None:
        """Clear what the pipelines have said because of the same days, about what published runs have read.

        With `at`, the runs would have read the same at that instant; otherwise they have read it when they ran.
        """
        # Most deployments have no verdict: then nothing else is read.
        for record in records if (subjects := set(self.table.subjects())) else ():
            ended = at or record.ended_at
            wanted = {subject for subject in subjects & _read_by(record, subjects) if self._has_failed(subject, record)}
            if ended is None or not wanted:
                continue
            periods = dict[Subject, set[_Period]]()
            if record.reads:
                # Also hours whose events are gone.
                hours: set[_Period] = {(name, None) for name in _hours(record.run, record.reads)}
                periods = {Subject("source", name): hours for name in record.reads.sources}
            # It may be large, and only it names versions.
            if not wanted <= periods.keys() and (manifest := run_manifest(self.store, record.run)):
                periods = self._periods(manifest.objects) | periods
            for subject in sorted(wanted & periods.keys()):
                reason = f"attempt {record.run.attempt} has published"
                self._give(subject, periods[subject], "pass", record.run, reason=reason, at=ended)

    def _has_failed(self, subject: Subject, record: RunRecord) -> bool:
        """Return whether a period of the subject, which the run may have read, has failed because of the run's day."""
        first, last = "0000", "9999"
        if record.reads and subject.of == "source":
            hours = _hours(record.run, record.reads)
            first, last = hours[0], hours[-1]
        own = (item for item in self.table.verdicts(subject, first, last) if item.giver == _giver(record.run))
        return bool(failures(own))

    def _periods(self, objects: Iterable[InputObject]) -> dict[Subject, set[_Period]]:
        found = defaultdict[Subject, set[_Period]](set)
        for item in objects:
            if item.is_published_day:
                pipeline, date, version = version_read(item, self.runs)
                found[Subject("pipeline", pipeline)].add((date, version))
            elif item.tag is None:
                found[Subject("source", item.source)].add((f"{item.date}T{item.hour}", None))
        return found

    def _give(
        self, subject: Subject, periods: set[_Period], quality: Quality, run: Run, *, reason: str, at: datetime
    ) -> None:
        giver, names = _giver(run), sorted(name for name, _ in periods)
        before = self.table.verdicts(subject, names[0], names[-1])
        own = [verdict for verdict in before if verdict.giver == giver]
        # Those of an earlier call, or of a later run.
        periods = periods - {(verdict.period, verdict.version) for verdict in own if verdict.at >= at}
        if quality == "pass":
            periods &= {(verdict.period, verdict.version) for verdict in failures(own)}
        if not periods:
            return
        # Newer than those that it replaces, also if their writers' time is ahead of ours.
        at = max([at, *(verdict.at + _INSTANT for verdict in before if verdict.giver in {"", giver})])
        given = [
            new_verdict(
                subject,
                period,
                quality,
                version=version,
                reason=reason,
                principal=f"pipeline {run.pipeline} of {run.date}",
                giver=giver,
                at=at,
            )
            for period, version in sorted(periods, key=lambda item: (item[0], item[1] or 0))
        ]
        # Stored before the waiting runs are looked up: so no wake-up is lost.
        self.table.put_verdicts(given)
        self.wake(subject, sorted({verdict.period for verdict in given}), at)


def _giver(run: Run) -> str:
    return f"{run.pipeline} {run.date}"


def _hours(run: Run, reads: InputDefinition) -> list[str]:
    """Return the UTC hours of the run's day, in order."""
    return [f"{partition.date}T{partition.hour}" for partition in period_of(run.date, reads.timezone).partitions()]


def _read_by(record: RunRecord, subjects: set[Subject]) -> set[Subject]:
    """Return what a run has read by its definition; all subjects if that is not known."""
    if record.reads is None:
        return subjects
    tables = {Subject("pipeline", item.table) for item in record.reads.tables if item.days}
    return tables | {Subject("source", name) for name in record.reads.sources}
