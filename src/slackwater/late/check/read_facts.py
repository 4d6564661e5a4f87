"""Reads what a check has to know about a day. An error of reading is one of the facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import takewhile

from pydantic import ValidationError

from slackwater.errors import SlackwaterError
from slackwater.late.check.facts import DayFacts, DayInputs, DefinitionChange, MaxAge, SourceThresholds
from slackwater.late.check.rules import rule_of
from slackwater.late.decision import MAX_TABLE_RERUNS, DecisionRule, LateDecision, TableChange
from slackwater.late.entry import definition_input, late_inputs
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import TableInput
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.inputs.input_definition import InputDefinition, described_changes, input_definition
from slackwater.runs.inputs.listing import DayListing, InputListing
from slackwater.runs.inputs.manifest import InputManifest, InputObject, published_manifest
from slackwater.runs.inputs.rejected_again import describe_rejected
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import HOUR, Period
from slackwater.runs.record import DayRecord, RunReason, RunRecord, RunState
from slackwater.runs.run_identity import new_run_id
from slackwater.runs.table import Executions, RunTable, is_running
from slackwater.runs.waits.mutual_waits import waiting_for
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.sources.definition import Source
from slackwater.sources.partitions import version_of
from slackwater.state.completeness import CountState, total_counts
from slackwater.state.verdicts import Verdict, VerdictTable
from slackwater.storage import ObjectStore

# Between two daily checks, when the clocks change.
_MOST_HOURS = 25


@dataclass(frozen=True, kw_only=True)
class FactReader:
    """Reads the facts of the days of one pipeline: first the record of each day, and then, where needed, its inputs.

    The records are read before the objects are listed. Otherwise objects that a run has read in between would be
    missing in the listing.
    """

    definition: Pipeline
    project: Project
    inputs: InputListing
    counts: CountsReader
    table: RunTable
    executions: Executions
    store: ObjectStore
    verdicts: VerdictTable | None
    now: Callable[[], datetime]

    @cached_property
    def failures(self) -> VerdictReader | None:
        """What has failed by verdicts; None if nothing has."""
        if self.verdicts is None:
            return None
        reader = VerdictReader(table=self.table, store=self.store, verdicts=self.verdicts)
        return reader if reader.may_have_failed else None

    @cached_property
    def waiting(self) -> frozenset[str]:
        """The pipelines whose verdicts this one does not obey: they may wait for it."""
        return waiting_for(self.definition.pipeline, self.project.pipelines)

    @cached_property
    def reads(self) -> InputDefinition:
        """The inputs that the present definition names."""
        return input_definition(self.definition, self.project.pipelines)

    def read_record(self, day: Period, *, is_in_window: bool, is_current: bool = False) -> DayFacts:
        """Return the facts without the inputs: the record of the day, and whether the day is running."""
        pipeline, date = self.definition.pipeline, day.name
        record = DayRecord(pipeline=pipeline, date=date)
        facts = DayFacts(day=day, record=record, is_in_window=is_in_window, is_current=is_current)
        try:
            record = self.table.day(pipeline, date)
            facts = replace(facts, record=record, is_published=record.published is not None)
            return replace(facts, is_running=is_running(self.executions, record.active, now=self.now()))
        except (SlackwaterError, ValidationError) as raised:
            return facts.failed(raised)

    def read_inputs(self, facts: DayFacts, objects: DayListing | None = None) -> tuple[DayFacts, InputManifest | None]:
        """Return the facts with the compared inputs, and the present ones; None if they decide nothing.

        Without `objects`, a listing of the day, this method lists it.
        """
        if facts.error:
            return facts, None
        try:
            return self._read_inputs(facts, objects)
        except (SlackwaterError, ValidationError) as raised:
            return facts.failed(raised), None

    def _read_inputs(self, facts: DayFacts, objects: DayListing | None) -> tuple[DayFacts, InputManifest | None]:
        record, published = facts.record, facts.record.published
        if published is None:
            return facts, None
        before = None if facts.is_early else published_manifest(self.store, published)
        # The manifest's own time would be too early if an earlier run has written an equal manifest.
        run = self.table.run(record.pipeline, record.date, published.run.attempt)
        facts = replace(facts, frozen_at=run.frozen_at if run else None)
        if before is None:
            return facts, None
        # Tables that only the present definition reads, or with other days, decide nothing about the day.
        unread = [each.name for each in self.reads.tables if each not in run.reads.tables] if run and run.reads else ()
        # Without the known objects, the check would read the metadata of each object of the window again.
        listed = self.inputs.manifest(record.pipeline, facts.day, known=before, listed=objects, unread=unread)
        facts = replace(facts, compared=self._compared(facts, run, before, listed))
        if unread and rule_of(facts).decision is LateDecision.RERUN:
            # The run would read these tables too. If it cannot, it takes the place of no other re-run.
            self.inputs.manifest(record.pipeline, facts.day, known=listed, listed=objects)
        return facts, listed

    def _compared(
        self, facts: DayFacts, run: RunRecord | None, before: InputManifest, listed: InputManifest
    ) -> DayInputs:
        """Return the present inputs, compared with those before.

        Reads the run table only for later attempts and changed tables, the file cache only for dropped and for lost
        files, and facts only about sources with `counts`.
        """
        definition, project, now, record = self.definition, self.project, self.now(), facts.record
        shared = shared_inputs(before, listed, former=run.reads if run else None, present=self.reads)
        change = self._definition_change(run)
        later = attempts_after_published(record, self.table)
        waits = late_waits(shared.before, shared.now, definition, files=self.inputs.files, now=now)
        ages = max_ages(definition, project)
        late = late_inputs(shared.before, shared.now, sources=self.reads.inputs)
        periods = self.counts.of_day(record.pipeline, facts.day, listed)
        counts = tuple(total_counts(project.source(name), each) for name, each in periods.items())
        short = [project.source(item.source) for item in counts if item.state is CountState.SHORT]
        return DayInputs(
            digest=listed.digest,
            rows=listed.rows,
            bytes=listed.bytes,
            differences=shared.differences,
            thresholds=thresholds_of(definition, project),
            tables=definition.published_tables,
            failed=latest_failures(later, listed.digest, project),
            last_rerun_at=last_rerun_at(run, later),
            waits=waits,
            max_ages=ages,
            ages_at=next_age(waits, ages, now=now),
            definition=change,
            rejected=tuple(describe_rejected(shared.before, shared.differences, files=self.inputs.files)),
            is_repeated=self._is_repeated(record, shared.differences, now),
            counts=counts,
            periods=periods,
            incomplete_until=incomplete_until(waits, ages, short, now=now),
            invalid_read=self._failed(shared.before),
            invalid_now=self._failed(shared.now),
            on_invalid=definition.late.on_invalid,
            table_changes=_notified_changes(shared.before, shared.now, definition.published_tables),
            late_inputs=(*late, definition_input(change.digest, at=listed.frozen_at)) if change else late,
        )

    def _failed(self, manifest: InputManifest) -> dict[str, tuple[Verdict, ...]]:
        """Return by input the verdicts about a manifest that the pipeline obeys."""
        return self.failures.of_manifest(manifest, waiting=self.waiting) if self.failures else {}

    def _definition_change(self, run: RunRecord | None) -> DefinitionChange | None:
        """Return what differs between the definition of the published run and the present one; None if unknown."""
        digest = self.project.written_digest(self.definition.pipeline)
        if run is None or run.reads is None or run.definition == digest:
            return None
        return DefinitionChange(
            lines=described_changes(run.reads, self.reads),
            digest=digest,
            reruns=self.definition.late.on_definition == "rerun",
            moves_hours=run.reads.timezone != self.reads.timezone,
        )

    def _is_repeated(self, record: DayRecord, differences: tuple[SourceDifference, ...], now: datetime) -> bool:
        """Return whether a changed table would run the day again, as tables have done too often."""
        tables = set(self.definition.tables).intersection(self.definition.rerun_inputs)
        if not any(source.changes for source in differences if source.source in tables):
            return False
        if record.hold and record.hold.rule == DecisionRule.REPEATED:
            return True
        return table_reruns(record, self.table, tables, now=now) >= MAX_TABLE_RERUNS


def _notified_changes(
    before: InputManifest, now: InputManifest, tables: dict[str, TableInput]
) -> tuple[TableChange, ...]:
    """Return the changed days of the tables with `on_change: notify`, by table and day.

    `before` are the inputs of the published run, and `tables` those that are days of other pipelines.
    """
    changes = []
    for table in sorted(name for name, item in tables.items() if item.on_change == "notify"):
        old, new = ({item.file or "": item for item in each.of_source(table)} for each in (before, now))
        for day in sorted(old.keys() | new.keys()):
            earlier, later = old.get(day), new.get(day)
            version = later.etag if later else ""
            if version != (earlier.etag if earlier else ""):
                rows = {"rows_before": earlier.rows if earlier else 0, "rows_now": later.rows if later else 0}
                changes.append(TableChange(table=table, day=day, version=version, **rows))
    return tuple(changes)


def thresholds_of(definition: Pipeline, project: Project) -> dict[str, SourceThresholds]:
    """Return the thresholds of each input of a pipeline. Raises `UnknownName` for a source that does not exist."""
    own = f"pipeline {definition.pipeline}"
    origins = dict.fromkeys(definition.late.thresholds, own)
    return {
        name: SourceThresholds(definition.thresholds(project.source(name)), origins.get(name, "its source"))
        for name in definition.sources
    } | {name: SourceThresholds(definition.table_thresholds(name), own) for name in definition.tables}


def attempts_after_published(record: DayRecord, table: RunTable) -> list[RunRecord]:
    """Return the attempts of a published day after the published one, in order; read only if there are any.

    All of them have failed, or ended without an outcome. Raises `CloudError`.
    """
    if record.published is None or record.attempts <= record.published.run.attempt:
        return []
    published = record.published.run.attempt
    return [run for run in table.runs(record.pipeline, record.date) if run.run.attempt > published]


def latest_failures(attempts: Sequence[RunRecord], inputs: str, project: Project) -> list[RunRecord]:
    """Return the latest of the attempts of a day, in order, that have failed with the identity of a new run.

    `inputs` is the digest of the day's present inputs. An attempt that is still recorded as running counts, because no
    execution of the day is alive.
    """
    # A rollback that was refused says nothing about a run.
    attempts = [attempt for attempt in attempts if attempt.rollback is None]
    if not attempts:
        return []
    run = attempts[-1].run
    identity = new_run_id(project, run.pipeline, run.date, inputs=inputs)
    failed = takewhile(
        lambda run: run.state is not RunState.PUBLISHED and run.run.run_id == identity, reversed(attempts)
    )
    return list(failed)[::-1]


def last_rerun_at(published: RunRecord | None, later: Sequence[RunRecord]) -> datetime | None:
    """Return when the latest re-run of a day started, also one that failed; None if the day was never run again.

    `published` is the published run, None if its record is missing, and `later` are the attempts after it.
    """
    if later:
        return later[-1].started_at
    if published is None:
        return None
    # Not by the replaced rows: the version before may have had none. Only runs of older versions record no reason.
    is_rerun = RunReason.FIRST not in published.reasons
    if not (published.reasons or published.definition):
        is_rerun = published.publication is not None and published.publication.replaced > 0
    return published.started_at if is_rerun else None


def table_reruns(record: DayRecord, table: RunTable, names: Collection[str], *, now: datetime) -> int:
    """Return how many runs of the day have started within 24 hours after one of these tables had changed.

    Raises `CloudError`.
    """
    since = now - timedelta(hours=24)
    runs = table.runs(record.pipeline, record.date)
    return sum(1 for run in runs if run.started_at > since and not set(names).isdisjoint(run.changed_inputs))


def max_ages(definition: Pipeline, project: Project) -> dict[str, MaxAge]:
    """Return how long late data of each input may wait, for those that have a limit: the pipeline's, or their own."""
    own = definition.late.max_age_hours
    if own is not None:
        return dict.fromkeys(definition.rerun_inputs, MaxAge(own, f"late.max_age_hours {own:g}"))
    hours = {name: project.source(name).late_max_age_hours for name in definition.sources}
    return {
        name: MaxAge(limit, f"late_max_age_hours {limit:g} of its source")
        for name, limit in hours.items()
        if limit is not None
    }


def late_waits(
    before: InputManifest, current: InputManifest, definition: Pipeline, *, files: FileCache, now: datetime
) -> dict[str, float]:
    """Return for how many hours the oldest late data of each input of a published day has waited, if there is any.

    `before` are the inputs of the published run, and `current` the present ones. A new object waits since it was
    written; the rows of a dropped file wait since a pull recorded its removal. Raises `CloudError` if the file cache
    fails.
    """
    sources, known = set(definition.rerun_inputs), {item.identity for item in before.objects}
    oldest = dict[str, datetime]()
    for item in current.objects:
        if item.source in sources and item.identity not in known:
            oldest[item.source] = min(oldest.get(item.source, item.arrived), item.arrived)
    dropped = [item for item in before.objects if current.left_out.get(item.uri) == "drop"]
    for source in {item.source for item in dropped}.intersection(sources):
        removals = _removals(source, [item for item in dropped if item.source == source], files)
        if first := min((*removals, *filter(None, [oldest.get(source)])), default=None):
            oldest[source] = first
    return {source: (now - instant) / HOUR for source, instant in oldest.items()}


def next_age(waits: Mapping[str, float], max_ages: Mapping[str, MaxAge], *, now: datetime) -> datetime | None:
    """Return when late data of an input will have waited for as long as it may, UTC.

    `waits` is for how many hours the oldest late data of each input has waited at the instant `now`. None if the next
    daily check comes before.
    """
    left = [limit.hours - waits[name] for name, limit in max_ages.items() if name in waits]
    hours = min((each for each in left if 0 < each <= _MOST_HOURS), default=None)
    # Objects have whole seconds. The result is the same in each check, in spite of rounded hours.
    return None if hours is None else (now + hours * HOUR + timedelta(seconds=0.5)).replace(microsecond=0)


def incomplete_until(
    waits: Mapping[str, float], max_ages: Mapping[str, MaxAge], short: Sequence[Source], *, now: datetime
) -> datetime | None:
    """Return until when late data waits for events that the sources `short` have reported; None if it does not.

    The oldest late data of an input waits for as long as it may, and without a limit for the longest `within` of these
    sources. `waits` is for how many hours it has waited at the instant `now`.
    """
    within = max((source.counts.wait / HOUR for source in short if source.counts), default=0.0)
    left = [(max_ages[name].hours if name in max_ages else within) - waited for name, waited in waits.items()]
    hours = min(left, default=0.0)
    if not short or hours <= 0:
        return None
    return (now + hours * HOUR + timedelta(seconds=0.5)).replace(microsecond=0)


def _removals(source: str, objects: Sequence[InputObject], files: FileCache) -> Iterator[datetime]:
    """Yield when the removal of each object's files was recorded, UTC: of the last one, if several had its content."""
    ids = {version[0] for item in objects if (version := version_of(item.uri))}
    paths_of = {content.id: content.paths for content in files.contents(source, ids)}
    # A file may have got another content before it was removed, so the content does not always name it.
    groups = {(*paths_of.get(version[0], ()), item.file) for item in objects if (version := version_of(item.uri))}
    entries = files.entries(source, {path for group in groups for path in group if path})
    removed = {entry.path: entry.removed_since for entry in entries if entry.removed_since}
    for group in groups:
        if instants := [removed[path] for path in group if path in removed]:
            yield max(instants)
