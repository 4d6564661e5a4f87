"""A large day of one source whose objects arrive one after the other, and its runs in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.arrow.dataset import find_reference, load_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.arrow.reference import ArrowManifest, ArrowReference, StepRecord
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.added_objects import store_earlier_stages
from slackwater.runs.inputs.manifest import InputManifest, InputObject, store_manifest
from slackwater.runs.record import Run, RunRecord, RunState
from slackwater.sources.definition import Source
from slackwater.spark.stage import StageJob, run_stage
from slackwater.steps.step import StepContext

PIPELINE, DATE, NOW = "by_shop", "2026-03-02", datetime(2026, 3, 5, tzinfo=UTC)
FIELDS = {"sold": "timestamp", "shop": "string", "day": "date", "n": "int64", "price": "double", "paid": "boolean"}
SOURCE: dict[str, Any] = {"source": "sales", "timestamp": {"field": "sold"}, "fields": FIELDS, "push": {}}
SHOPS = {**SOURCE, "source": "shops"}
# Prices are multiples of 1/64, so that sums are exact and equal in any order of the rows.
WRITE = """
COPY (
  SELECT
    sold, sold AS _event_time, sold AS _received_at, '' AS _batch_id, '' AS _extra,
    if(h % 23 = 0, NULL, 'shop ' || h % {shops}) AS shop, DATE '2026-03-01' + (h % 5)::INTEGER AS day,
    if(h % 11 = 0, NULL, (h % 100)::BIGINT - 2) AS n,
    CASE WHEN h % 13 = 0 THEN NULL WHEN h % 199 = 0 THEN 'NaN'::DOUBLE ELSE (h % 640) / 64 END AS price,
    h % 3 = 0 AS paid
  FROM (
    SELECT hash(i + {first}) // 7 AS h, TIMESTAMPTZ '2026-03-02 12:00:00+00' + INTERVAL (i % 3600) SECOND AS sold
    FROM range({rows}) AS events(i)
  )
) TO '{path}'
"""
CHECKED = {
    "step": "data_quality",
    "depends_on": ["sales"],
    "with": {
        "rules": [
            {"rule": "range", "column": "n", "min": 0, "severity": "reject"},
            {"rule": "not_null", "column": "price", "severity": "warn"},
            {"rule": "allowed", "column": "paid", "values": [True, False]},
            {"rule": "regex", "column": "shop", "pattern": "shop [0-8]", "severity": "warn"},
        ]
    },
}
CHAIN = {
    "checked": CHECKED,
    "kept": {"step": "filter", "depends_on": ["checked"], "with": {"where": "n < 90 OR shop = 'shop 1'"}},
    "named": {"step": "select", "depends_on": ["kept"], "with": {"cast": {"n": "decimal(9, 2)"}}},
    "less": {"step": "delete_columns", "depends_on": ["named"], "with": {"columns": ["paid"]}},
}
MEASURES = {
    "sales": {"function": "count"},
    "numbers": {"function": "count", "column": "n"},
    "n": {"function": "sum", "column": "n"},
    "price": {"function": "sum", "column": "price"},
    "first": {"function": "min", "column": "day"},
    "last": {"function": "max", "column": "sold"},
    "dearest": {"function": "max", "column": "price"},
}
AGGREGATE = {"step": "aggregate", "depends_on": ["less"], "with": {"group_by": ["shop"], "measures": MEASURES}}
COLUMNS = """
  shop, count(*) AS sales, count(n) AS numbers, sum(n) AS n, sum(price) AS price, min(day) AS first, max(sold) AS last,
  max(price) AS dearest
"""
TOTALS = COLUMNS.replace("shop,", "")
SQL = f"SELECT {COLUMNS} FROM less GROUP BY shop"
GROUPINGS: dict[str, dict[str, Any]] = {
    "aggregate": AGGREGATE,
    "sql": {"step": "sql", "depends_on": ["less"], "with": {"query": SQL}},
    "total": {"step": "sql", "depends_on": ["less"], "with": {"query": f"SELECT {TOTALS} FROM less"}},
}
KEPT = "coalesce(n >= 0, true) AND (n < 90 OR shop = 'shop 1')"


def project_of(steps: dict[str, Any], sources: tuple[dict[str, Any], ...] = (SOURCE,)) -> Project:
    """Return a project whose pipeline publishes the last of the steps."""
    *_, last = steps
    names = [source["source"] for source in sources]
    pipeline = {"pipeline": PIPELINE, "sources": names, "steps": steps, "publish": {"step": last, "key": ["date"]}}
    return Project(
        sources={source["source"]: Source.model_validate(source) for source in sources},
        pipelines={PIPELINE: Pipeline.model_validate(pipeline)},
    )


@dataclass
class LargeDay:
    """A day whose objects arrive one after the other, and its runs."""

    spark: SparkSession
    stores: StoreFactory
    project: Project
    folder: Path
    objects: list[InputObject] = field(default_factory=list)
    records: list[RunRecord] = field(default_factory=list)
    large_rows: int = 1000

    def add(self, rows: int, *, shops: int = 9) -> None:
        """Add an object with generated events of one hour."""
        self.folder.mkdir(parents=True, exist_ok=True)
        first, path = sum(item.rows for item in self.objects), self.folder / f"{len(self.objects)}.parquet"
        duckdb.execute(WRITE.format(first=first, rows=rows, shops=shops, path=path))
        known = {"uri": f"file://{path}", "etag": path.name, "bytes": path.stat().st_size, "rows": rows, "arrived": NOW}
        self.objects.append(InputObject(source="sales", date=DATE, hour="12", **known))

    def start(self, *, force: bool = False) -> Run:
        store = self.stores()
        manifest = InputManifest(pipeline=PIPELINE, date=DATE, frozen_at=NOW, objects=tuple(self.objects))
        attempt = len(self.records) + 1
        run = Run(
            pipeline=PIPELINE,
            date=DATE,
            run_id="run",
            attempt=attempt,
            correlation_id="c",
            manifest=f"s3://exchange/manifests/{manifest.digest}.json",
            prefix=f"s3://exchange/runs/{PIPELINE}/{DATE}/run/{attempt}{'f' if force else ''}/",
            files=len(self.objects),
            rows=manifest.rows,
            bytes=manifest.bytes,
        )
        store_manifest(store, run.manifest, manifest)
        earlier, since = [] if force else self.records[::-1], NOW - timedelta(days=9999)
        store_earlier_stages(self.project, run, manifest, earlier, since=since, store=store, large_rows=self.large_rows)
        return run

    def compute(self, run: Run) -> ArrowReference:
        (stage,) = stages(self.project.pipeline(PIPELINE))
        job = StageJob(run=run, stage=stage.name, project="s3://assets/project.json", catalog_table="none")
        run_stage(job, self.project, StepContext(spark=self.spark), stores=self.stores)
        return find_reference(run.stage_prefix(stage.name), store=self.stores())

    def run(self) -> ArrowReference:
        """Run the day, so that later runs may use its rows."""
        run = self.start()
        reference = self.compute(run)
        definition, code = self.project.written_digest(PIPELINE), self.project.code_digest(PIPELINE)
        known = {"execution": "e", "started_at": NOW, "definition": definition, "code": code}
        self.records.append(RunRecord(run=run, state=RunState.PUBLISHED, **known))
        return reference

    def manifest(self, reference: ArrowReference) -> ArrowManifest:
        return load_manifest(reference.manifest, store=self.stores())

    def rows(self, reference: ArrowReference) -> list[str]:
        frame = read_frame(self.spark, self.manifest(reference), stores=self.stores)
        return rows_of(frame.toArrow())

    def expected(self, columns: str = COLUMNS, groups: str = "GROUP BY shop") -> list[str]:
        """Return the rows that DuckDB computes from all objects of the day."""
        cast = "REPLACE (n::DECIMAL(9, 2) AS n)"
        objects = f"(SELECT * {cast} FROM read_parquet('{self.folder}/*.parquet') WHERE {KEPT})"
        return rows_of(duckdb.sql(f"SELECT {columns} FROM {objects} {groups}").arrow().read_all())

    def counts(self, reference: ArrowReference) -> list[StepRecord]:
        """Return what the steps did, without how long and without examples, with the number of stored rejected rows."""
        return [self._with_stored(without_examples(step)) for step in self.manifest(reference).steps]

    def _with_stored(self, step: StepRecord) -> StepRecord:
        if "rejected_rows" not in step.effect:
            return step
        stored = sum(load_manifest(uri, store=self.stores()).rows for uri in step.effect["rejected_rows"])
        return step.model_copy(update={"effect": {**step.effect, "rejected_rows": stored}})


def rows_of(table: pa.Table) -> list[str]:
    """Return each row as text, in which NaN equals NaN, and equal instants are equal."""
    return sorted(str({name: str(value) for name, value in row.items()}) for row in table.to_pylist())


def without_examples(step: StepRecord) -> StepRecord:
    results = [{**result, "examples": []} for result in step.effect.get("results", ())]
    effect = {**step.effect, **({"results": results} if results else {})}
    return step.model_copy(update={"seconds": 0.0, "effect": effect})
