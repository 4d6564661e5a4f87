"""Give verdicts about the data of hours and days, and list the periods that have failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from slackwater.client.arguments import Date, check_begun, iso_date, last_period, period_name
from slackwater.errors import InputError, SlackwaterError, UnknownName
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.holds import refuse_long_reason
from slackwater.runs.period import check_kind, day_of, parse_date, start_of
from slackwater.runs.table import RunTable
from slackwater.runs.waits.days import ProjectDays
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.sources.partitions import Partition
from slackwater.state.facts import KEPT
from slackwater.state.verdicts import Quality, Subject, Verdict, VerdictTable, new_verdict
from slackwater.storage import ObjectStore

Hour = datetime | str
"""A UTC hour: an aware `datetime`, or a string such as 2026-01-01T15."""
_HOUR = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_INSTANT = timedelta(microseconds=1)


class GivenVerdict(Record):
    """A verdict that was stored."""

    verdicts: tuple[Verdict, ...]
    """One for each UTC hour of a source, or one for a day or an hour of a pipeline."""
    read_by: tuple[str, ...]
    """The deployed pipelines that read the data, also through others. What they have published is checked."""
    obeyed_by: tuple[str, ...]
    """Those of them whose waiting runs obey it, by `when.quality`."""
    note: str
    """Why their runs and published days are looked at later; empty if they are looked at now."""


class FailedPeriod(Record):
    """An hour of a source, or the published version of a day, that has failed or has read what has failed."""

    of: Literal["source", "pipeline"]
    name: str
    period: str
    """A UTC hour of a source, such as 2026-01-01T15, or a day or an hour of a pipeline."""
    version: int | None
    """The published attempt of the day or hour of a pipeline; None for a source."""
    verdicts: tuple[Verdict, ...]
    """Why: those about the period, and of a day those that have travelled to it."""

    @property
    def document(self) -> dict[str, object]:
        """As commands print it in JSON."""
        period = {"hour": self.period} if self.of == "source" else {"date": self.period, "version": self.version}
        return {self.of: self.name, **period, "verdicts": [item.document for item in self.verdicts]}


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Stores verdicts, and has the runs evaluated that wait for them."""

    project: Project
    """The deployed one."""
    table: VerdictTable
    runs: RunTable
    store: ObjectStore
    wake: Callable[[Subject, list[str], datetime], object]
    """Has the runs evaluated that wait for the quality of these periods, and the published days checked that may have
    read them; the verdicts about them were given at that instant. May raise `SlackwaterError`."""
    principal: Callable[[], str]
    now: Callable[[], datetime]

    def give(self, name: str, quality: Quality, *, reason: str, hour: Hour | None, date: Date | None) -> GivenVerdict:
        """Store a verdict about an hour or a day. Arguments and errors are those of `Client.verdict`."""
        if quality not in get_args(Quality):
            raise InputError(f"quality: {quality!r} is neither fail nor pass")
        if (hour is None) == (date is None):
            raise InputError("hour, date: give one of them: a UTC hour, or a day")
        if not reason.strip():
            raise InputError("reason: it is empty: say why, because it is kept with the verdict")
        refuse_long_reason(reason)
        subject, periods, version = self._subject(name, hour, date)
        before = self.table.verdicts(subject, periods[0], periods[-1])
        # Newer than those that it replaces, also if their writers' time is ahead of ours.
        at = max([self.now(), *(verdict.at + _INSTANT for verdict in before)])
        principal = self.principal()
        given = [
            new_verdict(subject, period, quality, version=version, reason=reason, principal=principal, at=at)
            for period in periods
        ]
        read_by, obeyed_by = self._readers(subject, periods)
        # Stored before the waiting runs are looked up: so no wake-up is lost.
        self.table.put_verdicts(given)
        note = self._wake(subject, periods, at) if read_by else ""
        return GivenVerdict(verdicts=tuple(given), read_by=read_by, obeyed_by=obeyed_by, note=note)

    def failed(self, subjects: Iterable[Subject], first: str, last: str) -> list[FailedPeriod]:
        """Return the hours and the published days that have failed, from one date to another, in order."""
        reader = VerdictReader(table=self.runs, store=self.store, verdicts=self.table)

        def read(subject: Subject) -> list[FailedPeriod]:
            if subject.of == "source":
                found = reader.of_range(subject.name, f"{first}T00", f"{last}T23")
                return [_failed(subject, item.period, None, (item,)) for item in found]
            if not reader.may_have_failed:
                return []
            days = self.runs.days(subject.name, first, last_period(last))
            return [
                _failed(subject, day.date, day.published.run.attempt, found)
                for day in days
                if day.published and (found := reader.of_published(subject.name, day.date))
            ]

        wanted = list(subjects)
        reader.prefetch(wanted)
        return [period for subject in wanted for period in read(subject)]

    def subjects(self, name: str | None) -> list[Subject]:
        """Return the sources and pipelines with a name, or all of them. Raises `UnknownName`."""
        found = [Subject("source", source) for source in sorted(self.project.sources) if name in {None, source}]
        stored = name and self.project.stored_name(name)
        found += [Subject("pipeline", each) for each in sorted(self.project.pipelines) if stored in {None, each}]
        if name and not found:
            raise UnknownName(
                f"no source or pipeline {name!r} is deployed (sources: {', '.join(sorted(self.project.sources))}; "
                f"pipelines: {', '.join(map(self.project.present_name, sorted(self.project.pipelines)))})"
            )
        return found

    def _subject(self, name: str, hour: Hour | None, date: Date | None) -> tuple[Subject, list[str], int | None]:
        """Return what a verdict is about, its periods in order, and the version of a published one."""
        kinds = {subject.of: subject for subject in self.subjects(name)}
        if hour is not None and "source" in kinds:
            return kinds["source"], [self._hour(hour)], None
        if "pipeline" in kinds:
            subject = kinds["pipeline"]
            period = self._published_period(self.project.pipelines[subject.name], hour, date)
            published = self.runs.day(subject.name, period).published
            if published is None:
                raise InputError(f"date: {name} has published nothing for {period}: a verdict is about a version")
            return subject, [period], published.run.attempt
        day = iso_date(date or "")
        timezone = self.project.source(name).pull_timezone
        check_begun(day, timezone, name="date")
        hours = [start_of(partition) for partition in day_of(parse_date(day), timezone).partitions()]
        # Of today: an hour that has not begun has no data yet.
        return kinds["source"], [self._hour(each) for each in hours if each <= self.now()], None

    def _published_period(self, pipeline: Pipeline, hour: Hour | None, date: Date | None) -> str:
        """Return the day or hour of a pipeline. Raises `InputError` if it has no periods of this kind."""
        if pipeline.period == "day":
            if hour is not None:
                raise InputError(f"hour: {pipeline.pipeline} is a pipeline, which publishes days: give the date")
            return iso_date(date or "")
        period = self._begun_hour(hour) if hour is not None else period_name(date or "")
        check_kind(period, pipeline)
        return period

    def _hour(self, value: Hour) -> str:
        """Return a UTC hour of a source as its name. Raises `InputError`."""
        name = self._begun_hour(value)
        if start_of(Partition(*name.split("T"))) < self.now() - KEPT:
            raise InputError(f"hour: {name} is more than {KEPT.days} days ago: verdicts are not kept for so long")
        return name

    def _begun_hour(self, value: Hour) -> str:
        """Return a UTC hour as its name. Raises `InputError`."""
        message = f"hour: {value!r} is not a UTC hour such as 2026-01-01T15"
        try:
            if isinstance(value, str):
                if not _HOUR.fullmatch(value):
                    raise InputError(message)
                value = datetime.fromisoformat(f"{value}:00:00+00:00")
            start = value.astimezone(UTC)
        except ValueError as error:
            raise InputError(message) from error
        if value.tzinfo is None or start != start.replace(minute=0, second=0, microsecond=0):
            raise InputError(message)
        name = start.isoformat()[:13]
        if start > self.now():
            raise InputError(f"hour: {name} has not begun, UTC")
        return name

    def _readers(self, subject: Subject, periods: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the pipelines that read data, also through others, and those whose runs wait for its quality."""
        days = ProjectDays(project=self.project, now=self.now)
        found = [(pipeline, name) for pipeline, name, _ in days.readings(subject, periods)]
        read_by = {pipeline.pipeline for pipeline, _ in found}
        obeyed_by = {pipeline.pipeline for pipeline, name in found if name in pipeline.when.quality}
        return self._present(read_by), self._present(obeyed_by)

    def _present(self, pipelines: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(map(self.project.present_name, pipelines)))

    def _wake(self, subject: Subject, periods: list[str], at: datetime) -> str:
        """Have waiting runs evaluated and days checked; return why that was not possible, or an empty string."""
        try:
            self.wake(subject, periods, at)
        except SlackwaterError as error:
            # Both happen in any case.
            return f"runs that wait look at it within 15 minutes, and published days at the next daily check: {error}"
        return ""


def _failed(subject: Subject, period: str, version: int | None, verdicts: tuple[Verdict, ...]) -> FailedPeriod:
    return FailedPeriod(of=subject.of, name=subject.name, period=period, version=version, verdicts=verdicts)
