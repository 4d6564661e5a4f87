"""Compare two published versions of one day, and store what differs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict
from pyspark.sql import DataFrame, Row, SparkSession

from slackwater.arrow.dataset import store_dataset
from slackwater.arrow.exchange import StoreFactory, write_frame
from slackwater.arrow.reference import ArrowReference, Producer
from slackwater.errors import AccessDenied, CloudError, InputError, ObjectMissing, VersionRemoved
from slackwater.late.changes.pairs import VersionPair, comparison_uri, job_started_uri, pair_uri
from slackwater.late.comparison import (
    MAX_MOVERS,
    MAX_ROWS,
    MAX_STRING_LENGTH,
    TOLERANCE,
    Comparison,
    MetricChange,
    Mover,
    RowChange,
    Value,
)
from slackwater.model import PeriodName, Record
from slackwater.project.project import Project
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.runs.inputs.input_definition import InputDefinition, input_definition
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.runs.period import period_of
from slackwater.spark.compare.paired import (
    Metric,
    PairedVersions,
    differing_rows,
    examples,
    movers,
    pair_versions,
)
from slackwater.spark.compare.totals import day_totals, hour_column
from slackwater.spark.job import log
from slackwater.spark.table import files_of_period, quoted_table, rows_of_version, tags_of
from slackwater.storage import ObjectStore

# All rows of a day have the same date, so this column of the key is not shown.
_DAY = "date"


class ComparisonJob(Record):
    """The argument of a comparison job, as the state machine passes it: identifiers and a URI."""

    model_config = ConfigDict(extra="forbid")

    pipeline: str
    date: PeriodName
    prefix: str
    """URI prefix of pair.json, which names the two versions, and of everything that the job writes."""
    job: str
    """The name of the job, which is part of the URI at which it stores a failure."""
    correlation_id: str


def compare_versions(
    spark: SparkSession, job: ComparisonJob, *, project: str, catalog_table: str, stores: StoreFactory
) -> Comparison:
    """Compare two versions of the job's day, store the comparison, and return it. It is stored last, by one PUT.

    `project` is the URI of project.json, `catalog_table` is `catalog.database.table`. Only totals and a bounded number
    of rows reach the driver. Raises `VersionRemoved` or `CloudError` if a version no longer exists, `InputError` if
    pair.json is of another day, and `DataError` if a version cannot be compared by the pipeline's key.
    """
    began, store = time.monotonic(), stores()
    # First, so that a job that is killed counts as a try, and one that never got capacity does not.
    store.put(job_started_uri(job.prefix, job.job), b"")
    definitions = Project.model_validate_json(store.get(project))
    pipeline = definitions.pipeline(job.pipeline)
    pair = read_pair(job, store=store)
    table = quoted_table(catalog_table)
    before, after = read_versions(spark, table, pair)
    period = period_of(job.date, pipeline.timezone)
    size = sum(files_of_period(spark, table, job.date, tag=version.tag).bytes for version in (pair.before, pair.after))
    paired = pair_versions(before, after, key=pipeline.publish.key, tolerance=TOLERANCE)
    differing = paired.differing()
    metrics = paired.metrics(pair.metrics)
    hour = None
    if pipeline.period == "day":
        hour = hour_column(paired, pipeline.publish.hour, day=period, timezone=pipeline.timezone)
    rows, changes = day_totals(paired, metrics, hour, pair)
    # Several Spark actions read these rows, so the executors keep them, in memory or on disk.
    differing.frame.persist()
    try:
        any_differs = rows.differing > 0
        comparison = Comparison(
            pipeline=pair.pipeline,
            date=pair.date,
            correlation_id=job.correlation_id,
            key=tuple(name for name in pipeline.publish.key if name != _DAY),
            before=pair.before,
            after=pair.after,
            rows=rows,
            metrics=with_movers(changes, metrics, differing) if any_differs else changes,
            examples=example_changes(differing) if any_differs else (),
            all_rows=(
                store_differing_rows(differing, pair, job, input_bytes=size, stores=stores) if any_differs else None
            ),
            inputs=input_differences(pair, input_definition(pipeline, definitions.pipelines), store=store),
            seconds=round(time.monotonic() - began, 3),
            team=pipeline.team,
            notify=pipeline.late.notify,
        )
    finally:
        differing.frame.unpersist()
    store.put(comparison_uri(job.prefix), comparison.model_dump_json().encode())
    log("versions compared", rows=comparison.rows.model_dump(), seconds=comparison.seconds)
    return comparison


def read_versions(spark: SparkSession, table: str, pair: VersionPair) -> list[DataFrame]:
    """Return the day's rows in both versions of the table, each with the columns that the version has.

    Raises `VersionRemoved` if the earlier version has no tag any more, and `CloudError` if the table does not exist or
    the later version has no tag: retention removes only versions that another one has replaced.
    """
    if not spark.catalog.tableExists(table):
        raise CloudError(f"there is no table {table}: the versions of {pair.date} cannot be read")
    tags, before, after = tags_of(spark, table), pair.before, pair.after
    if before.tag not in tags:
        raise VersionRemoved(
            f"version {before.attempt} of {pair.pipeline} {pair.date} was removed by the setting version_days, which "
            f"limits how long a replaced version can be read, so version {after.attempt} cannot be compared with it; "
            f"`slackwater history {pair.pipeline} --date {pair.date}` lists the versions"
        )
    if after.tag not in tags:
        raise CloudError(f"{table} has no tag {after.tag} any more: attempt {after.attempt} cannot be read")
    return [rows_of_version(spark, table, version.tag, pair.date) for version in (before, after)]


def read_pair(job: ComparisonJob, *, store: ObjectStore) -> VersionPair:
    """Return the versions that pair.json names. Raises `InputError` if they are of another pipeline or day."""
    uri = pair_uri(job.prefix)
    pair = VersionPair.model_validate_json(store.get(uri))
    if (pair.pipeline, pair.date) != (job.pipeline, job.date):
        raise InputError(f"{uri} names versions of {pair.pipeline} {pair.date}, not of {job.pipeline} {job.date}")
    return pair


def with_movers(
    changes: Sequence[MetricChange], metrics: Sequence[Metric], differing: PairedVersions
) -> tuple[MetricChange, ...]:
    """Return the changes of these metrics with the rows of `differing` that changed each of them the most."""
    by_metric: dict[int | None, list[Mover]] = {}
    if any(metric.index is not None for metric in metrics):
        rows = movers(differing, metrics, limit=MAX_MOVERS, max_length=MAX_STRING_LENGTH).collect()
        # Spark sorts so few rows with a job and a shuffle of their own.
        for row in sorted(rows, key=lambda row: row["rank"]):
            mover = Mover(key=_key(differing, row), before=row["before"], after=row["after"])
            by_metric.setdefault(row["metric"], []).append(mover)
    return tuple(
        change.model_copy(update={"movers": tuple(by_metric.get(metric.index, ()))})
        for change, metric in zip(changes, metrics, strict=True)
    )


def example_changes(differing: PairedVersions) -> tuple[RowChange, ...]:
    """Return the first rows that differ, in order of key."""
    changes = []
    for row in examples(differing, limit=MAX_ROWS, max_length=MAX_STRING_LENGTH).collect():
        change = Change(row["change"])
        # A row that was added or removed has all of its columns, a changed one those that differ.
        values = {
            field.name: (_json_value(row[f"before_{index}"]), _json_value(row[f"after_{index}"]))
            for index, field in enumerate(differing.values)
            if change is not Change.CHANGED or row[f"differs_{index}"]
        }
        changes.append(RowChange(change=change, key=_key(differing, row), values=values))
    return tuple(changes)


def _key(paired: PairedVersions, row: Row) -> dict[str, Value]:
    """Return the key of a row by column, without the date."""
    return {
        field.name: _json_value(row[f"key_{index}"])
        for index, field in enumerate(paired.key)
        if field.name.lower() != _DAY
    }


def _json_value(cell: Any) -> Value:
    """Return a cell as a value of JSON. NaN and the infinities, which JSON lacks, become strings: null is null."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else f"{'-' if cell < 0 else ''}Infinity"
    value: Value = cell
    return value


def store_differing_rows(
    differing: PairedVersions, pair: VersionPair, job: ComparisonJob, *, input_bytes: int, stores: StoreFactory
) -> ArrowReference:
    """Store all rows that differ as Arrow files, and return their reference; `input_bytes` is the size of both days."""
    began, prefix = time.monotonic(), f"{job.prefix}rows/"
    producer = Producer(
        pipeline=job.pipeline,
        date=job.date,
        run_id=job.job,
        attempt=pair.after.attempt,
        stage="compare",
        correlation_id=job.correlation_id,
    )
    rows = differing_rows(differing)
    written = write_frame(rows, prefix, producer=producer, stores=stores, input_bytes=input_bytes)
    return store_dataset(written.manifest, prefix, store=stores(), seconds=time.monotonic() - began)


def input_differences(
    pair: VersionPair, present: InputDefinition, *, store: ObjectStore
) -> tuple[SourceDifference, ...]:
    """Return how the day's inputs differ between the versions, as far as the definitions of both name them.

    `present` is the definition of a version that does not say which it had. Empty if an input manifest is gone.
    """
    try:
        before, after = (read_manifest(store, version.manifest) for version in (pair.before, pair.after))
    except (ObjectMissing, AccessDenied) as error:
        # Without the permission to list the bucket, S3 answers 403 instead of 404 for a missing object.
        log("the inputs cannot be compared", reason=str(error))
        return ()
    return shared_inputs(before, after, former=pair.before.reads, present=pair.after.reads or present).differences
