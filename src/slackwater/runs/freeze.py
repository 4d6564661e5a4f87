"""Freezing a run's inputs: list once, write the list down, claim the day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from slackwater.errors import CloudError, DayChanged, InputError
from slackwater.project import Project
from slackwater.receiver.file_cache import FileCache, unsettled_objects
from slackwater.receiver.partition import source_prefix
from slackwater.runs.day import Day, day_of
from slackwater.runs.manifest import InputManifest, InputObject
from slackwater.runs.record import (
    ActiveRun,
    DayRecord,
    Publication,
    Run,
    RunRecord,
    RunState,
    run_identity,
)
from slackwater.runs.table import Executions, RunTable
from slackwater.storage import ObjectStore, StoredObject

_GRACE = timedelta(minutes=2)
"""Step Functions may not know an execution yet that has claimed a day: so young a claim is taken to be alive."""
_LISTINGS = 5
"""How often the inputs are listed at most, when files are being taken meanwhile."""
_READERS = 16
"""Metadata requests at once; listings of a day are read one after the other."""


class Action(StrEnum):
    """What the state machine has to do after freezing."""

    RUN = "run"
    WAIT = "wait"
    """Another execution runs this day: look again when it has ended."""
    UNCHANGED = "unchanged"
    """The published output already comes from these inputs and this definition."""


class Frozen(BaseModel):
    """The answer of freezing: references, counts and identifiers only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Action
    run: Run | None = None
    publication: Publication | None = None


@dataclass(frozen=True, kw_only=True)
class Freezer:
    """Freezes the inputs of a project's runs."""

    project: Project
    store: ObjectStore
    files: FileCache
    table: RunTable
    executions: Executions
    raw_bucket: str
    exchange_bucket: str
    now: Callable[[], datetime]

    def freeze(self, *, pipeline: str, date: str, execution: str, correlation_id: str, force: bool = False) -> Frozen:
        """List the day's inputs, write the manifest, and claim the day for `execution`.

        Called again by the same execution it gives the same answer. Raises `InputError` for a date that is none or
        has not begun, `UnknownName` for a pipeline that is none.
        """
        day = self._day(pipeline, date)
        record = self.table.day(pipeline, date)
        if record.active and record.active.execution == execution:
            return Frozen(action=Action.RUN, run=record.active.run)
        if record.active and self._is_alive(record.active):
            return Frozen(action=Action.WAIT)
        manifest = self._list(pipeline, day, known=self._known(record))
        run = self._run(manifest, record, correlation_id)
        sure = not force and record.active is None and not record.unsure
        if sure and record.published and record.published.run.run_id == run.run_id:
            return Frozen(action=Action.UNCHANGED, run=record.published.run, publication=record.published.publication)
        self.store.put_new(run.manifest, manifest.model_dump_json().encode())
        try:
            if record.active:
                self._close(record.active)
            self._claim(run, record, execution, manifest.frozen_at)
        except DayChanged:
            return Frozen(action=Action.WAIT)
        return Frozen(action=Action.RUN, run=run)

    def _day(self, pipeline: str, local_date: str) -> Day:
        try:
            day = day_of(date.fromisoformat(local_date), self.project.pipeline(pipeline).timezone)
        except ValueError as error:
            raise InputError(f"date: {local_date!r} is not a date such as 2013-03-10") from error
        if day.start > self.now():
            raise InputError(f"date: {local_date} has not begun in {self.project.pipeline(pipeline).timezone}")
        return day

    def _is_alive(self, active: ActiveRun) -> bool:
        running = self.executions.is_running(active.execution)
        return self.now() - active.since < _GRACE if running is None else running

    def _known(self, record: DayRecord) -> dict[str, InputObject]:
        """Objects of the published run: what is the same is not asked for again."""
        if record.published is None:
            return {}
        manifest = InputManifest.model_validate_json(self.store.get(record.published.run.manifest))
        return {item.uri: item for item in manifest.objects}

    def _list(self, pipeline: str, day: Day, *, known: dict[str, InputObject]) -> InputManifest:
        frozen_at = self.now()
        sources = sorted(self.project.pipeline(pipeline).sources)
        listed = [found for source in sources for found in self._settled_objects(source, day)]
        with ThreadPoolExecutor(_READERS) as pool:
            objects = pool.map(lambda found: self._input_object(found, known.get(found.uri)), listed)
        return InputManifest(
            pipeline=pipeline,
            date=day.date.isoformat(),
            frozen_at=frozen_at,
            objects=tuple(sorted(objects, key=lambda item: item.uri)),
        )

    def _settled_objects(self, source: str, day: Day) -> list[StoredObject]:
        """List the source's objects but for files half replaced. Raises `DayChanged` if that never rests."""
        if self.project.source(source).pull is None:
            return list(self._objects(source, day))
        entries = self.files.entries(source)
        for _ in range(_LISTINGS):
            found, before = list(self._objects(source, day)), entries
            entries = self.files.entries(source)
            if entries == before:
                unsettled = unsettled_objects(entries, bucket=self.raw_bucket)
                return [item for item in found if item.uri not in unsettled]
        raise DayChanged(f"files of {source} kept changing while the inputs of {day.date} were listed")

    def _objects(self, source: str, day: Day) -> Iterator[StoredObject]:
        wanted = set(day.partitions())
        for utc_date in _distinct(partition.date for partition in wanted):
            prefix = f"{source_prefix(self.raw_bucket, source)}date={utc_date}/"
            hours = {partition.hour for partition in wanted if partition.date == utc_date}
            for found in self.store.list(prefix):
                if _part(found.uri, "hour") in hours and found.uri.endswith(".parquet"):
                    yield found

    def _input_object(self, found: StoredObject, known: InputObject | None) -> InputObject:
        if known and known.etag == found.etag and known.bytes == found.size:
            return known
        rows = self.store.metadata(found.uri).get("rows", "")
        if not rows.isdecimal():
            raise CloudError(f"{found.uri} does not say how many events it holds: it was not written by the receiver")
        return InputObject(
            uri=found.uri,
            source=_part(found.uri, "source"),
            date=_part(found.uri, "date"),
            hour=_part(found.uri, "hour"),
            etag=found.etag,
            bytes=found.size,
            rows=int(rows),
            arrived=found.modified,
        )

    def _run(self, manifest: InputManifest, record: DayRecord, correlation_id: str) -> Run:
        run_id = run_identity(
            pipeline=manifest.pipeline,
            date=manifest.date,
            manifest=manifest.digest,
            definition=self.project.definition_digest(manifest.pipeline),
        )
        where = f"{manifest.pipeline}/{manifest.date}"
        attempt = record.attempts + 1
        return Run(
            pipeline=manifest.pipeline,
            date=manifest.date,
            run_id=run_id,
            attempt=attempt,
            correlation_id=correlation_id,
            manifest=f"s3://{self.exchange_bucket}/manifests/{where}/{manifest.digest}.json",
            prefix=f"s3://{self.exchange_bucket}/runs/{where}/{run_id}/{attempt}/",
            files=len(manifest.objects),
            rows=manifest.rows,
            bytes=manifest.bytes,
        )

    def _close(self, abandoned: ActiveRun) -> None:
        """Record the failure of a run whose execution ended without saying so: stopped, or lost with its machine."""
        run = abandoned.run
        record = self.table.run(run.pipeline, run.date, run.attempt)
        if record and record.state is RunState.RUNNING:
            why = "its execution ended without recording an outcome"
            self.table.save(
                run=record.model_copy(update={"state": RunState.FAILED, "ended_at": self.now(), "error": why})
            )

    def _claim(self, run: Run, record: DayRecord, execution: str, started_at: datetime) -> None:
        claimed = record.model_copy(
            update={
                "attempts": run.attempt,
                "active": ActiveRun(execution=execution, run=run, since=started_at),
                "unsure": record.unsure or record.active is not None,
            }
        )
        started = RunRecord(run=run, state=RunState.RUNNING, execution=execution, started_at=started_at)
        self.table.save(run=started, day=claimed)


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def _part(uri: str, key: str) -> str:
    """Return the value of `key=value` in an address of a partition."""
    return next((part.removeprefix(f"{key}=") for part in uri.split("/") if part.startswith(f"{key}=")), "")
