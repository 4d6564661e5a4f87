"""The example's raw objects, written from the package's CSVs like the receiver's, and its stages in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from slackwater.arrow.dataset import find_reference, load_manifest
from slackwater.arrow.exchange import StoreFactory
from slackwater.arrow.reference import ArrowReference
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputManifest, InputObject, store_manifest
from slackwater.runs.period import day_of
from slackwater.runs.record import Run
from slackwater.sources.fields import FieldType
from slackwater.spark.stage import StageJob, run_stage
from slackwater.steps.step import StepContext
from tests.fakes_spark import FolderStore
from tests.independent import database
from tests.two_stages import two_stage_project

PROJECT_URI = "s3://assets/project.json"
MANIFEST_URI = "s3://exchange/manifests/m.json"
TYPES = {
    FieldType.STRING: pa.string(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: pa.timestamp("us", "UTC"),
    FieldType.DATE: pa.date32(),
}


def events_of(table: str, day: str, scratch: Path, project: Project) -> list[dict[str, Any]]:
    """Return the package's events of a local day and of the hours around it, as the source declares them."""
    hours = day_of(date.fromisoformat(day), "America/New_York")
    around = (hours.start - timedelta(hours=2), hours.end + timedelta(hours=2))
    names = ", ".join(project.source(table).fields)
    cursor = database(scratch).execute(
        f"SELECT {names} FROM {table} WHERE time_hour >= ? AND time_hour < ?",
        [instant.replace(tzinfo=None) for instant in around],
    )
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


@dataclass(frozen=True)
class Day:
    """One day of the example: its raw objects, and its jobs."""

    store: FolderStore
    project: Project
    date: str
    objects: tuple[InputObject, ...] = ()
    attempt: int = 1

    def with_events(self, source: str, events: list[dict[str, Any]], *, name: str = "0") -> Day:
        """Write one Parquet object per hour of the events, by `time_hour`."""
        by_hour: dict[Any, list[dict[str, Any]]] = {}
        for event in events:
            by_hour.setdefault(event["time_hour"], []).append(event)
        written = []
        for hour, rows in sorted(by_hour.items()):
            key = f"raw/source={source}/date={hour:%Y-%m-%d}/hour={hour:%H}/{name}.parquet"
            path = self.store.path(f"s3://raw/{key}")
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(self._table(source, rows), path)
            written.append(
                InputObject(
                    uri=f"file://{path}",
                    source=source,
                    date=f"{hour:%Y-%m-%d}",
                    hour=f"{hour:%H}",
                    etag=name,
                    bytes=path.stat().st_size,
                    rows=len(rows),
                    arrived="2013-03-13T00:00:00Z",
                )
            )
        return replace(self, objects=(*self.objects, *written))

    def _table(self, source: str, rows: list[dict[str, Any]]) -> pa.Table:
        declared = [(name, TYPES[field.type]) for name, field in self.project.source(source).fields.items()]
        timestamp = pa.timestamp("us", "UTC")
        own = [("_event_time", timestamp), ("_received_at", timestamp)]
        own += [("_batch_id", pa.string()), ("_extra", pa.string())]
        full = [
            {**row, "_event_time": row["time_hour"], "_received_at": row["time_hour"], "_batch_id": "b"} for row in rows
        ]
        return pa.Table.from_pylist(full, schema=pa.schema([*declared, *own]))

    def freeze(self) -> Day:
        """Write the project and the input manifest."""
        manifest = InputManifest(
            pipeline="daily_delays", date=self.date, frozen_at=datetime(2013, 3, 13, tzinfo=UTC), objects=self.objects
        )
        store_manifest(self.store, MANIFEST_URI, manifest)
        self.store.put(PROJECT_URI, self.project.model_dump_json(by_alias=True).encode())
        return self

    @property
    def prefix(self) -> str:
        return f"s3://exchange/runs/daily_delays/{self.date}/run/{self.attempt}/"

    @property
    def identity(self) -> Run:
        return Run(
            pipeline="daily_delays",
            date=self.date,
            run_id="run",
            attempt=self.attempt,
            correlation_id="c-1",
            manifest=MANIFEST_URI,
            prefix=self.prefix,
            files=len(self.objects),
            rows=sum(item.rows for item in self.objects),
            bytes=sum(item.bytes for item in self.objects),
        )

    def job(self, stage: str) -> StageJob:
        """Return the job of one stage."""
        return StageJob(run=self.identity, stage=stage, project=PROJECT_URI, catalog_table="warehouse.days.none")

    def run(self, spark: SparkSession, stores: StoreFactory) -> dict[str, ArrowReference]:
        """Run every stage in order, without publishing; return their references by name."""
        references: dict[str, ArrowReference] = {}
        context = StepContext(spark=spark)
        for stage in stages(self.project.pipeline("daily_delays")):
            manifest = run_stage(self.job(stage.name), self.project, context, stores=stores)
            reference = find_reference(self.identity.stage_prefix(stage.name), store=stores())
            assert manifest == load_manifest(reference.manifest, store=stores())
            references[stage.name] = reference
        return references


def nyc_day(store: FolderStore, day: str, scratch: Path) -> Day:
    """Return a day of the example with all of its events, frozen."""
    project = two_stage_project()
    nyc = Day(store=store, project=project, date=day)
    for source in ("flights", "weather"):
        nyc = nyc.with_events(source, events_of(source, day, scratch, project))
    return nyc.freeze()
