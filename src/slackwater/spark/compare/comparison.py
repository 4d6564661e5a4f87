"""Compare two published versions of one day, and store what differs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import date
from typing import Any

from pydantic import ConfigDict
from pyspark.sql import DataFrame, Row, SparkSession

from slackwater.arrow.dataset import store_dataset
from slackwater.arrow.exchange import StoreFactory, write_frame
from slackwater.arrow.reference import ArrowReference, Producer
from slackwater.errors import AccessDenied, CloudError, DataError, InputError, ObjectMissing, VersionRemoved
from slackwater.late.changes.choose_versions import VersionPair, pair_uri
from slackwater.late.changes.job_claims import job_started_uri
from slackwater.late.comparison import (
    MAX_MOVERS,
    MAX_ROWS,
    MAX_STRING_LENGTH,
    TOLERANCE,
    Comparison,
    MetricChange,
    Mover,
    PublishedVersion,
    RowChange,
    Value,
    comparison_uri,
)
from slackwater.model import IsoDate, Record
from slackwater.project.project import Project
from slackwater.runs.day import day_of
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.runs.inputs.input_definition import InputDefinition, input_definition
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.inputs.shared_inputs import shared_inputs
from slackwater.spark.compare.paired import (
    Metric,
    PairedVersions,
    differing_rows,
    examples,
    movers,
    pair_versions,
)
from slackwater.spark.compare.totals import SIDES, DayTotals, HourColumn, grouped_totals, hour_column
from slackwater.spark.job import log
from slackwater.spark.table import files_of_day, quoted_table, rows_of_version, tags_of
from slackwater.storage import ObjectStore

# All rows of a day have the same date, so this column of the key is not shown.
_DAY = "date"


class ComparisonJob(Record):
    """The argument of a comparison job, as the state machine passes it: identifiers and a URI."""

    model_config = ConfigDict(extra="forbid")

    pipeline: str
    date: IsoDate
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
    pipeline = Project.model_validate_json(store.get(project)).pipeline(job.pipeline)
    pair = read_pair(job, store=store)
    table = quoted_table(catalog_table)
    before, after = (read_version(spark, table, version, pair) for version in (pair.before, pair.after))
    day = date.fromisoformat(job.date)
    size = sum(files_of_day(spark, table, day, tag=version.tag).bytes for version in (pair.before, pair.after))
    paired = pair_versions(before, after, key=pipeline.publish.key, tolerance=TOLERANCE)
    differing = paired.differing()
    metrics = paired.metrics(pair.metrics)
    hour = hour_column(paired, pipeline.publish.hour, day=day_of(day, pipeline.timezone), timezone=pipeline.timezone)
    totals = _totals(paired, metrics, hour, pair)
    rows = totals.rows
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
            metrics=metric_changes(paired, metrics, totals, differing if any_differs else None),
            examples=example_changes(differing) if any_differs else (),
            all_rows=(
                store_differing_rows(differing, pair, job, input_bytes=size, stores=stores) if any_differs else None
            ),
            inputs=input_differences(pair, input_definition(pipeline), store=store),
            seconds=round(time.monotonic() - began, 3),
            team=pipeline.team,
            notify=pipeline.late.notify,
        )
    finally:
        differing.frame.unpersist()
    store.put(comparison_uri(job.prefix), comparison.model_dump_json().encode())
    log("versions compared", rows=comparison.rows.model_dump(), seconds=comparison.seconds)
    return comparison


def read_version(spark: SparkSession, table: str, version: PublishedVersion, pair: VersionPair) -> DataFrame:
    """Return the day's rows in one version of the table, with the columns that the version has.

    Raises `VersionRemoved` if the earlier version has no tag any more, and `CloudError` if the table does not exist or
    the later version has no tag: retention removes only versions that another one has replaced.
    """
    day = pair.date
    if not spark.catalog.tableExists(table):
        raise CloudError(f"there is no table {table}: the versions of {day} cannot be read")
    if version.tag not in tags_of(spark, table):
        if version.attempt < pair.after.attempt:
            raise VersionRemoved(
                f"version {version.attempt} of {pair.pipeline} {day} was removed by the setting version_days, which "
                f"limits how long a replaced version can be read, so version {pair.after.attempt} cannot be compared "
                f"with it; `slackwater history {pair.pipeline} --date {day}` lists the versions"
            )
        raise CloudError(f"{table} has no tag {version.tag} any more: attempt {version.attempt} cannot be read")
    return rows_of_version(spark, table, version.tag, date.fromisoformat(day))


def read_pair(job: ComparisonJob, *, store: ObjectStore) -> VersionPair:
    """Return the versions that pair.json names. Raises `InputError` if they are of another pipeline or day."""
    uri = pair_uri(job.prefix)
    pair = VersionPair.model_validate_json(store.get(uri))
    if (pair.pipeline, pair.date) != (job.pipeline, job.date):
        raise InputError(f"{uri} names versions of {pair.pipeline} {pair.date}, not of {job.pipeline} {job.date}")
    return pair


def _totals(paired: PairedVersions, metrics: Sequence[Metric], hour: HourColumn | None, pair: VersionPair) -> DayTotals:
    """Compute the totals. Raises `DataError` if a version has several rows with one key."""
    totals = DayTotals(date.fromisoformat(pair.date), grouped_totals(paired, metrics, hour).collect(), hour)
    for side, version in zip(SIDES, (pair.before, pair.after), strict=True):
        if totals.rows_of_a_key(side) > 1:
            raise DataError(
                f"attempt {version.attempt} has keys ({', '.join(field.name for field in paired.key)}) that occur more "
                "than once: it was published with another publish.key, and this key does not identify its rows"
            )
    return totals


def metric_changes(
    paired: PairedVersions, metrics: Sequence[Metric], totals: DayTotals, differing: PairedVersions | None
) -> tuple[MetricChange, ...]:
    """Return the change of every metric, with the rows of `differing` that changed it the most.

    `differing` is None if no row differs. A declared metric of which neither version has numbers is there without
    totals, so that readers see its name.
    """
    by_metric: dict[int | None, list[Mover]] = {}
    if differing is not None and any(metric.index is not None for metric in metrics):
        for row in movers(differing, metrics, limit=MAX_MOVERS, max_length=MAX_STRING_LENGTH).collect():
            mover = Mover(key=_key(differing, row), before=row["before"], after=row["after"])
            by_metric.setdefault(row["metric"], []).append(mover)
    changes = []
    for metric in metrics:
        before, after = totals.of_day(metric)
        change = MetricChange(
            metric=metric.name,
            total=metric.total,
            exact=metric.index is not None and paired.is_exact(metric.index),
            before=before,
            after=after,
            movers=tuple(by_metric.get(metric.index, ())),
            hours=totals.of_hours(metric),
        )
        changes.append(change)
    return tuple(changes)


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
        before, after = (
            InputManifest.model_validate_json(store.get(version.manifest)) for version in (pair.before, pair.after)
        )
    except (ObjectMissing, AccessDenied) as error:
        # Without the permission to list the bucket, S3 answers 403 instead of 404 for a missing object.
        log("the inputs cannot be compared", reason=str(error))
        return ()
    return shared_inputs(before, after, former=pair.before.reads, present=pair.after.reads or present).differences
