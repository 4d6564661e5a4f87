"""Fakes for runs: a store, a run table and executions in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import md5
from typing import Any

from slackwater.arrow.reference import (
    ArrowFile,
    ArrowManifest,
    ArrowReference,
    Producer,
    StepRecord,
    manifest_uri,
    reference_uri,
)
from slackwater.errors import DayChanged, ObjectMissing
from slackwater.pipeline.definition import Pipeline, Publish, StepUse
from slackwater.project.project import Project
from slackwater.runs.comparison_run import ComparisonRun, DueCost
from slackwater.runs.cost_recorder import is_final
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.pipeline_records import (
    MOST_DAYS,
    MOST_OBJECTS,
    ArrivalHistory,
    DefinitionNotice,
    LateDay,
    LedgerDay,
    RerunUsage,
)
from slackwater.runs.record import DayRecord, Run, RunRecord
from slackwater.sources.definition import Source
from slackwater.storage import ObjectHead, StoredObject

_BUCKET, _PIPELINE, _DAY, _RUN_ID = "b" * 63, "p" * 63, "2013-03-10", "0" * 32
LONGEST_RUN = Run(
    pipeline=_PIPELINE,
    date=_DAY,
    run_id=_RUN_ID,
    attempt=10**6,
    correlation_id="c" * 128,
    manifest=f"s3://{_BUCKET}/manifests/{_PIPELINE}/{_DAY}/{'0' * 16}/{'0' * 64}.json",
    prefix=f"s3://{_BUCKET}/runs/{_PIPELINE}/{_DAY}/{_RUN_ID}/{10**6}/",
    files=10**15,
    rows=10**15,
    bytes=10**15,
    read_bytes=10**15,
)
"""A run with the longest names and numbers."""


class DictStore:
    """An `ObjectStore` in a dictionary; every write is one second later than the one before."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str], datetime]] = {}
        self.asked_metadata: list[str] = []

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        modified = datetime.fromtimestamp(1_700_000_000 + len(self.objects), UTC)
        self.objects[uri] = (body, dict(metadata or {}), modified)

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        if uri in self.objects:
            return False
        self.put(uri, body, metadata=metadata)
        return True

    def get(self, uri: str) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][0]

    def get_range(self, uri: str, start: int, length: int) -> bytes:
        if uri not in self.objects:
            raise ObjectMissing(uri)
        return self.objects[uri][0][start : start + length]

    def metadata(self, uri: str) -> Mapping[str, str]:
        self.asked_metadata.append(uri)
        return self.objects[uri][1]

    def head(self, uri: str) -> ObjectHead | None:
        if uri not in self.objects:
            return None
        body, metadata, modified = self.objects[uri]
        return ObjectHead(md5(body, usedforsecurity=False).hexdigest(), metadata, len(body), modified)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[StoredObject]:
        for uri, (body, _, modified) in sorted(self.objects.items()):
            if uri.startswith(prefix) and uri > start_after:
                yield StoredObject(uri, len(body), md5(body, usedforsecurity=False).hexdigest(), modified)

    def delete(self, uris: Iterable[str]) -> None:
        for uri in uris:
            self.objects.pop(uri, None)


_CHECKSUM = "0" * 16


def store_stage(
    store: DictStore,
    run: Run,
    stage: str,
    *,
    rows: int,
    files: int,
    steps: Sequence[StepRecord] = (),
    parents: Sequence[str] = (),
) -> str:
    """Store what the job of a stage writes: Arrow files, manifest, reference. Return the URI of the manifest."""
    uris = [f"{run.arrow_prefix}{stage}/{number:05d}.arrow" for number in range(files)]
    for uri in uris:
        store.put(uri, b"rows")
    manifest = ArrowManifest(
        producer=Producer(pipeline=run.pipeline, date=run.date, run_id=run.run_id, attempt=run.attempt, stage=stage),
        created_at=datetime(2013, 3, 13, 18, tzinfo=UTC),
        arrow_schema="",
        files=tuple(
            ArrowFile(
                uri=uri,
                rows=rows // files,
                bytes=4,
                checksum=_CHECKSUM,
                batches=(),
                metadata_checksum=_CHECKSUM,
                column_checksums=(),
            )
            for uri in uris
        ),
        steps=tuple(steps),
        parents=tuple(parents),
    )
    uri = manifest_uri(run.stage_prefix(stage))
    store.put(uri, manifest.model_dump_json().encode())
    reference = ArrowReference(manifest=uri, rows=rows, bytes=4 * files, files=files, seconds=1.25)
    store.put(reference_uri(run.stage_prefix(stage)), reference.model_dump_json().encode())
    return uri


RUN_TABLE: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": name, "AttributeType": "S"}
        for name in ("pipeline", "item", "published_pipeline", "notification_due_pipeline", "held_pipeline")
    ],
    "KeySchema": [{"AttributeName": "pipeline", "KeyType": "HASH"}, {"AttributeName": "item", "KeyType": "RANGE"}],
    "GlobalSecondaryIndexes": [
        {
            "IndexName": name,
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}, {"AttributeName": "item", "KeyType": "RANGE"}],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
        for name, key in (
            ("published", "published_pipeline"),
            ("notification-due", "notification_due_pipeline"),
            ("held", "held_pipeline"),
        )
    ],
}
"""Keys and indexes of the run table, as CreateTable and CloudFormation name them."""


class DictRunTable:
    """A `RunTable` in dictionaries, with the same optimistic lock."""

    def __init__(self) -> None:
        self.by_day: dict[tuple[str, str], DayRecord] = {}
        self.records: dict[tuple[str, str, int], RunRecord] = {}
        self.usage: dict[tuple[str, str], RerunUsage] = {}
        self.late: dict[tuple[str, str], tuple[LateDay, frozenset[str]]] = {}
        self.for_ledger: dict[tuple[str, str], LedgerDay] = {}
        self.rejects: dict[str, datetime] = {}
        self.compared: dict[tuple[str, str, int, str], ComparisonRun] = {}
        self.histories: dict[str, ArrivalHistory] = {}
        self.notices: dict[str, DefinitionNotice] = {}

    def day(self, pipeline: str, date: str) -> DayRecord:
        return self.by_day.get((pipeline, date), DayRecord(pipeline=pipeline, date=date))

    def days(
        self, pipeline: str, first: str, last: str, *, limit: int | None = None, latest_first: bool = False
    ) -> list[DayRecord]:
        records = [
            day for (name, date), day in sorted(self.by_day.items()) if name == pipeline and first <= date <= last
        ]
        return (records[::-1] if latest_first else records)[:limit]

    def first_published(self, pipeline: str) -> str | None:
        return min(
            (date for (name, date), day in self.by_day.items() if name == pipeline and day.published), default=None
        )

    def notifications_due(self, pipeline: str, *, before: str) -> Iterator[str]:
        days = [day for (name, _), day in sorted(self.by_day.items()) if name == pipeline and day.notification_due]
        return iter([day.date for day in days if day.date < before])

    def held(self, pipeline: str) -> Iterator[str]:
        return iter([date for (name, date), day in sorted(self.by_day.items()) if name == pipeline and day.hold])

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        return self.records.get((pipeline, date, attempt))

    def runs(self, pipeline: str, date: str | None = None) -> list[RunRecord]:
        return [r for (p, d, _), r in sorted(self.records.items()) if p == pipeline and date in (None, d)]

    def runs_between(self, pipeline: str, first: str, last: str) -> list[RunRecord]:
        return [r for (p, d, _), r in sorted(self.records.items()) if p == pipeline and first <= d <= last]

    def date_of_run(self, pipeline: str, run_id: str) -> str | None:
        dates = [record.run.date for record in self.runs(pipeline) if record.run.run_id.startswith(run_id)]
        return dates[-1] if dates else None

    def save(self, *records: DayRecord | RunRecord) -> None:
        # A day comes first, so that a conflict writes nothing.
        for record in records:
            if isinstance(record, RunRecord):
                self.records[record.run.pipeline, record.run.date, record.run.attempt] = record
                continue
            stored = self.by_day.get((record.pipeline, record.date))
            if (stored.version if stored else 0) != record.version:
                raise DayChanged(record.date)
            written = record.model_copy(update={"version": record.version + 1})
            self.by_day[record.pipeline, record.date] = written

    def rerun_usage(self, pipeline: str, date: str) -> RerunUsage:
        return self.usage.get((pipeline, date), RerunUsage(pipeline=pipeline, date=date))

    def save_rerun_usage(self, usage: RerunUsage) -> None:
        if self.rerun_usage(usage.pipeline, usage.date).version != usage.version:
            raise DayChanged(usage.date)
        self.usage[usage.pipeline, usage.date] = usage.model_copy(update={"version": usage.version + 1})

    def definition_notice(self, pipeline: str) -> DefinitionNotice:
        return self.notices.get(pipeline, DefinitionNotice(pipeline=pipeline))

    def save_definition_notice(self, notice: DefinitionNotice) -> None:
        if self.definition_notice(notice.pipeline).version != notice.version:
            raise DayChanged(notice.pipeline)
        self.notices[notice.pipeline] = notice.model_copy(update={"version": notice.version + 1})

    def record_late_day(self, pipeline: str, date: str, *, at: datetime, keys: Collection[str] = ()) -> None:
        day, known = self.late.get((pipeline, date), (None, frozenset[str]()))
        if keys and len(known) < MOST_OBJECTS:
            known |= frozenset(sorted(set(keys))[:MOST_OBJECTS])
        elif day and day.last >= at:
            return
        late = LateDay(date=date, since=day.since if day else at, last=at, objects=len(known))
        self.late[pipeline, date] = late, known

    def late_day(self, pipeline: str, date: str) -> LateDay | None:
        day, _ = self.late.get((pipeline, date), (None, None))
        return day

    def late_days(self, pipeline: str, *, first: str = "", last: str) -> list[LateDay]:
        days = [
            day for (name, date), (day, _) in sorted(self.late.items()) if name == pipeline and first <= date <= last
        ]
        return days[:MOST_DAYS]

    def remove_late_day(self, pipeline: str, date: str, *, read_at: datetime) -> None:
        if (pipeline, date) in self.late and self.late[pipeline, date][0].last <= read_at:
            del self.late[pipeline, date]

    def remove_unchanged_late_day(self, pipeline: str, day: LateDay) -> None:
        if (pipeline, day.date) in self.late and self.late[pipeline, day.date][0].last == day.last:
            del self.late[pipeline, day.date]

    def record_ledger_day(self, pipeline: str, date: str, *, at: datetime) -> None:
        known = self.for_ledger.get((pipeline, date))
        if known is None or known.last < at:
            self.for_ledger[pipeline, date] = LedgerDay(date=date, last=at)

    def ledger_days(self, pipeline: str) -> list[LedgerDay]:
        return [day for (name, _), day in sorted(self.for_ledger.items()) if name == pipeline][:MOST_DAYS]

    def remove_ledger_day(self, pipeline: str, day: LedgerDay) -> None:
        if self.for_ledger.get((pipeline, day.date)) == day:
            del self.for_ledger[pipeline, day.date]

    def rejects_until(self, pipeline: str) -> datetime | None:
        return self.rejects.get(pipeline)

    def save_rejects_until(self, pipeline: str, until: datetime) -> None:
        self.rejects[pipeline] = until

    def arrival_history(self, pipeline: str) -> ArrivalHistory:
        return self.histories.get(pipeline, ArrivalHistory(pipeline=pipeline))

    def save_arrival_history(self, history: ArrivalHistory) -> None:
        self.histories[history.pipeline] = history

    def save_comparison(self, comparison: ComparisonRun) -> None:
        key = comparison.pipeline, comparison.date, comparison.after, comparison.execution_name
        self.compared[key] = comparison

    def comparison(self, pipeline: str, due: DueCost) -> ComparisonRun | None:
        return self.compared.get((pipeline, *due))

    def comparisons(self, pipeline: str, date: str) -> list[ComparisonRun]:
        return [item for key, item in sorted(self.compared.items()) if key[:2] == (pipeline, date)]

    def costs_due(self, pipeline: str) -> Iterator[DueCost]:
        runs = [
            DueCost(run.run.date, run.run.attempt) for run in self.runs(pipeline) if run.ended_at and not is_final(run)
        ]
        comparisons = [
            DueCost(*key[1:]) for key, item in self.compared.items() if key[0] == pipeline and not is_final(item)
        ]
        return iter(sorted(runs + comparisons))

    def save_cost(self, record: RunRecord | ComparisonRun) -> bool:
        stored: RunRecord | ComparisonRun | None
        written = record.model_copy(update={"cost_version": record.cost_version + 1})
        if isinstance(written, ComparisonRun):
            due = DueCost(written.date, written.after, written.execution_name)
            stored = self.comparison(written.pipeline, due)
        else:
            stored = self.run(written.run.pipeline, written.run.date, written.run.attempt)
        if stored is None or stored.cost_version != record.cost_version:
            return False
        if isinstance(written, ComparisonRun):
            self.save_comparison(written)
        else:
            self.save(written)
        return True


class DictCatalog:
    """A `TableCatalog` in a dictionary: the URI of each table's metadata, or an error, by `database.table`."""

    def __init__(self) -> None:
        self.tables: dict[str, str | Exception] = {}

    def metadata_uri(self, database: str, table: str) -> str:
        uri = self.tables[f"{database}.{table}"]
        if isinstance(uri, Exception):
            raise uri
        return uri


NO_FOREIGN_TABLES = ForeignTables(DictCatalog(), DictStore())
"""For projects whose pipelines read no tables of other systems."""


def listing_of(source: Source, *, store: Any, files: Any, now: Callable[[], datetime]) -> InputListing:
    """Return the listing of inputs of a pipeline, `all`, that reads this source only."""
    pipeline = Pipeline(
        pipeline="all",
        sources=(source.source,),
        steps={"rows": StepUse(step="select", depends_on=(source.source,))},
        publish=Publish(step="rows", key=("date",)),
    )
    return InputListing(
        project=Project(sources={source.source: source}, pipelines={"all": pipeline}),
        store=store,
        files=files,
        table=DictRunTable(),
        foreign=NO_FOREIGN_TABLES,
        raw_bucket="raw",
        now=now,
    )


class SetExecutions:
    """`Executions` with a set of running names."""

    def __init__(self, *running: str) -> None:
        self.running = set(running)
        self.known = set(running)

    def is_running(self, execution: str) -> bool | None:
        return execution in self.running if execution in self.known else None
