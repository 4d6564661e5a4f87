"""Split the change of a day: compare the rows between two versions with both, and store what each part changed."""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import StoreFactory, read_frame
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import ArrowReference
from slackwater.errors import AuditFailed, DataError
from slackwater.late.changes.pairs import VersionPair, comparison_uri, split_run_prefix, split_uri
from slackwater.late.comparison import TOLERANCE, Comparison, MetricChange, MetricSplit, RowCounts, Split
from slackwater.project.project import Project
from slackwater.runs.attempt_files import unpublished_uri
from slackwater.spark.compare.comparison import ComparisonJob, read_pair, read_versions
from slackwater.spark.compare.paired import pair_versions
from slackwater.spark.compare.totals import day_totals
from slackwater.spark.job import log
from slackwater.spark.publish import audit, with_partition
from slackwater.spark.table import quoted_table


def split_versions(
    spark: SparkSession, job: ComparisonJob, *, project: str, catalog_table: str, stores: StoreFactory
) -> Split:
    """Compare the rows that a job of the earlier version has stored with both versions; store and return the split.

    `project` is the URI of project.json, `catalog_table` is `catalog.database.table`. Raises `DataError` if the rows
    could not have been published, and `VersionRemoved` or `CloudError` if a version no longer exists.
    """
    began, store = time.monotonic(), stores()
    key = Project.model_validate_json(store.get(project)).pipeline(job.pipeline).publish.key
    pair = read_pair(job, store=store)
    comparison = Comparison.model_validate_json(store.get(comparison_uri(job.prefix)))
    before, after = read_versions(spark, quoted_table(catalog_table), pair)
    stored = store.get(unpublished_uri(split_run_prefix(job.prefix, job.job)))
    manifest = load_manifest(ArrowReference.model_validate_json(stored).manifest, store=store)
    between = with_partition(read_frame(spark, manifest, stores=stores), job.date)
    try:
        audit(between, key)
    except AuditFailed as error:
        raise DataError(
            f"with the inputs of version {pair.after.attempt}, the definition of version {pair.before.attempt} gives "
            f"rows that cannot be published, so there is nothing to compare: {error}"
        ) from error
    between = _with_types_of(between, before)
    data, changes = _changes(before, between, key, pair)
    definition, _ = _changes(between, after, key, pair)
    totals = {change.metric.lower(): change.after for change in changes}
    split = Split(
        metrics=tuple(MetricSplit.of(metric, totals.get(metric.metric.lower())) for metric in comparison.metrics),
        data=data,
        definition=definition,
        seconds=round(time.monotonic() - began, 3),
    )
    store.put(split_uri(job.prefix), split.model_dump_json().encode())
    log("change split", data=data.model_dump(), definition=definition.model_dump(), seconds=split.seconds)
    return split


def _with_types_of(frame: DataFrame, table: DataFrame) -> DataFrame:
    """Return the frame with the types of the table for the columns of both: publishing would have widened them."""
    types = {field.name.lower(): field.dataType for field in table.schema}
    columns = [
        sf.col(quoted(name)).cast(types[name.lower()]).alias(name) if name.lower() in types else sf.col(quoted(name))
        for name in frame.columns
    ]
    return frame.select(*columns)


def _changes(
    before: DataFrame, after: DataFrame, key: tuple[str, ...], pair: VersionPair
) -> tuple[RowCounts, tuple[MetricChange, ...]]:
    paired = pair_versions(before, after, key=key, tolerance=TOLERANCE)
    return day_totals(paired, paired.metrics(pair.metrics), None, pair)
