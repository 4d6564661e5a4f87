"""The verdicts that a pipeline gives about what its runs have read.

A run that fails because of a rule of severity `invalidate` says that its input should not be used. The next run that
publishes the same day clears what the pipeline has said because of this day, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from slackwater.runs.attempt_files import invalid_input_uri
from slackwater.runs.holds import MAX_REASON
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import run_manifest
from slackwater.runs.invalid_input import InvalidInput, refused_input
from slackwater.runs.period import parse_date
from slackwater.runs.record import Run, RunRecord
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import version_read
from slackwater.state.verdicts import Quality, Subject, Verdict, VerdictTable, failures, new_verdict
from slackwater.storage import ObjectStore

_INSTANT = timedelta(microseconds=1)
_DAY = timedelta(days=1)
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

        A pipeline that is not deployed says nothing: nothing would clear it. Raises `ObjectMissing` if no job has
        written an `InvalidInput`.
        """
        if record.ended_at is None or (record.files and record.files.is_undeployed):
            return
        refused = InvalidInput.model_validate_json(self.store.get(invalid_input_uri(record.run.prefix)))
        for subject, periods in self._periods(refused).items():
            names = sorted(name for name, _ in periods)
            before = self.table.verdicts(subject, names[0], names[-1])
            # By an earlier call.
            given = {(item.period, item.version) for item in before if item.principal == _name(record.run)}
            reason = refused.reason[:MAX_REASON]
            self._give(subject, periods - given, "fail", record.run, before, reason=reason, at=record.ended_at)

    def of_published(self, records: Iterable[RunRecord], *, at: datetime | None = None) -> None:
        """Clear what the pipelines have said because of the same days, about what published runs have read.

        What later runs have said stays. With `at`, the runs would have read the same at that instant: what was said
        until then is cleared, whichever run has said it.
        """
        # Most deployments have no verdict: then nothing else is read.
        for record in records if (subjects := set(self.table.subjects())) else ():
            # A run of an older version does not say what it has read: the next one clears.
            if record.reads and (ended := at or record.ended_at):
                for subject in sorted(subjects & _read_by(record.reads)):
                    self._clear(subject, record.run, latest=at, ended=ended)

    def _clear(self, subject: Subject, run: Run, *, latest: datetime | None, ended: datetime) -> None:
        """Clear what has failed because of the run's day, of all that the run has read of a source or a pipeline."""
        first, last = "0000", "9999"
        if subject.of == "source":
            first, last = _hours_about(run.date)
        before = self.table.verdicts(subject, first, last)
        periods = {
            (item.period, item.version)
            for item in failures(item for item in before if item.giver == _giver(run))
            # By attempt: a verdict may be later than the run after it, because it is newer than those of a person whose
            # clock is ahead.
            if (item.at <= latest if latest else _attempt(item) <= run.attempt)
        }
        # The manifest may be large, and only it names versions.
        if periods and subject.of == "pipeline":
            manifest = run_manifest(self.store, run)
            read = self._periods(refused_input("", manifest.objects if manifest else ()))
            periods &= read.get(subject, set())
        self._give(subject, periods, "pass", run, before, reason=f"attempt {run.attempt} has published", at=ended)

    def _periods(self, read: InvalidInput) -> dict[Subject, set[_Period]]:
        found = defaultdict[Subject, set[_Period]](set)
        for source, hour in read.hours:
            found[Subject("source", source)].add((hour, None))
        for item in read.days:
            pipeline, date, version = version_read(item, self.runs)
            found[Subject("pipeline", pipeline)].add((date, version))
        return found

    def _give(
        self,
        subject: Subject,
        periods: set[_Period],
        quality: Quality,
        run: Run,
        before: Iterable[Verdict],
        *,
        reason: str,
        at: datetime,
    ) -> None:
        """Store verdicts; `before` are those about these periods."""
        if not periods:
            return
        # Newer than those that it replaces, also if their writers' time is ahead of ours.
        at = max([at, *(verdict.at + _INSTANT for verdict in before if verdict.giver in {"", _giver(run)})])
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


def _attempt(verdict: Verdict) -> int:
    """Return the attempt that has given a pipeline's verdict."""
    return int(verdict.principal.rpartition(" ")[2])


def _hours_about(period: str) -> tuple[str, str]:
    """Return the first and the last UTC hour of the day before a day or an hour, and of the day after it.

    A day has its hours between them in any timezone: a run may have had that of a former definition. Those whose events
    are gone are among them.
    """
    date = parse_date(period.partition("T")[0])
    return f"{date - _DAY}T00", f"{date + _DAY}T23"


def _read_by(reads: InputDefinition) -> set[Subject]:
    """Return what a run has read by its definition. Tables of other systems have no verdicts."""
    tables = {Subject("pipeline", item.table) for item in reads.tables}
    return tables | {Subject("source", name) for name in reads.sources}
