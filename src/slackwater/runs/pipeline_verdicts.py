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
from slackwater.runs.inputs.manifest import InputObject, run_manifest
from slackwater.runs.period import period_of
from slackwater.runs.record import Run, RunRecord, invalid_input_uri
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import version_read
from slackwater.state.verdicts import Quality, Subject, Verdict, VerdictTable, failures, new_verdict
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
                own = self._own(subject, periods, record.run)
                given = {(verdict.period, verdict.version) for verdict in own if verdict.principal == _name(record.run)}
                self._give(subject, periods - given, "fail", record.run, reason=reason, at=record.ended_at)

    def of_published(self, records: Iterable[RunRecord], *, at: datetime | None = None) -> None:
        """Clear what the pipelines have said because of the same days, about what published runs have read.

        With `at`, the runs would have read the same at that instant, and later verdicts stay.
        """
        # Most deployments have no verdict: then nothing else is read.
        for record in records if (subjects := set(self.table.subjects())) else ():
            ended = at or record.ended_at
            if ended is None:
                continue
            manifest = run_manifest(self.store, record.run)
            periods = self._periods(manifest.objects if manifest else ())
            if record.reads:
                # Also hours whose events are gone.
                day = period_of(record.run.date, record.reads.timezone)
                hours: set[_Period] = {(f"{partition.date}T{partition.hour}", None) for partition in day.partitions()}
                periods |= {Subject("source", name): hours for name in record.reads.sources}
            for subject in sorted(subjects & periods.keys()):
                own = self._own(subject, periods[subject], record.run)
                # A verdict may be later than the run after it: it is newer than those of a person whose clock is ahead.
                failed = {(item.period, item.version) for item in failures(own) if at is None or item.at <= at}
                reason = f"attempt {record.run.attempt} has published"
                self._give(subject, periods[subject] & failed, "pass", record.run, reason=reason, at=ended)

    def _periods(self, objects: Iterable[InputObject]) -> dict[Subject, set[_Period]]:
        found = defaultdict[Subject, set[_Period]](set)
        for item in objects:
            if item.is_published_day:
                pipeline, date, version = version_read(item, self.runs)
                found[Subject("pipeline", pipeline)].add((date, version))
            elif item.tag is None:
                found[Subject("source", item.source)].add((f"{item.date}T{item.hour}", None))
        return found

    def _about(self, subject: Subject, periods: set[_Period]) -> list[Verdict]:
        names = sorted(name for name, _ in periods)
        return self.table.verdicts(subject, names[0], names[-1])

    def _own(self, subject: Subject, periods: set[_Period], run: Run) -> list[Verdict]:
        return [verdict for verdict in self._about(subject, periods) if verdict.giver == _giver(run)]

    def _give(
        self, subject: Subject, periods: set[_Period], quality: Quality, run: Run, *, reason: str, at: datetime
    ) -> None:
        if not periods:
            return
        before = self._about(subject, periods)
        # Newer than those before it, also if their writers' time is ahead of ours.
        at = max([at, *(verdict.at + _INSTANT for verdict in before)])
        given = [
            new_verdict(
                subject,
                period,
                quality,
                version=version,
                reason=reason,
                principal=_name(run),
                giver=_giver(run),
                at=at,
            )
            for period, version in sorted(periods, key=lambda item: (item[0], item[1] or 0))
        ]
        # Stored before the waiting runs are looked up: so no wake-up is lost.
        self.table.put_verdicts(given)
        self.wake(subject, sorted({verdict.period for verdict in given}), at)


def _giver(run: Run) -> str:
    return f"{run.pipeline} {run.date}"


def _name(run: Run) -> str:
    return f"pipeline {run.pipeline} of {run.date}, attempt {run.attempt}"
