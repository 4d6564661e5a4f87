"""EMR Serverless entry point: compare two published versions of one day, by their tags, and keep what differs."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from slackwater.arrow.exchange import StoreFactory, store_dataset, write_frame
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import ArrowReference
from slackwater.aws.objects import s3_store
from slackwater.errors import AccessDenied, CloudError, DataError, InputError, ObjectMissing
from slackwater.late.comparison import (
    MAX_MOVERS,
    MAX_ROWS,
    MAX_TEXT,
    TOLERANCE,
    Comparison,
    MetricChange,
    Mover,
    PublishedVersion,
    RowChange,
    RowCounts,
    Totals,
    Value,
    comparison_uri,
)
from slackwater.late.versions import VersionPair, job_failure_uri, pair_uri
from slackwater.project import Project
from slackwater.runs.difference import Change, SourceDifference, difference
from slackwater.runs.manifest import InputManifest
from slackwater.steps.spark.compare import Paired, all_rows, examples, movers, pair_up, totals
from slackwater.steps.spark.job import log, run_job
from slackwater.storage import ObjectStore

_DAY = "date"
"""The column that all rows of a day share: it tells none of them apart."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", required=True, help="address of project.json")
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--date", required=True, type=date.fromisoformat)
    parser.add_argument("--prefix", required=True, help="where pair.json names the versions, and the comparison goes")
    parser.add_argument("--job", required=True, help="under whose name a failure is told")
    parser.add_argument("--correlation-id", required=True)
    parser.add_argument("--catalog-table", required=True, help="catalog.database.table")
    return parser.parse_args(arguments)


def compare_day(spark: SparkSession, options: argparse.Namespace, *, stores: StoreFactory) -> Comparison:
    """Compare the two versions and return the comparison, which is written last, by one PUT.

    Only totals and a bounded number of rows come to the driver. Raises `CloudError` for a version that is gone.
    """
    began, store = time.monotonic(), stores()
    pipeline = Project.model_validate_json(store.get(options.project)).pipeline(options.pipeline)
    pair = _pair(store, options)
    table = ".".join(quoted(part) for part in options.catalog_table.split("."))
    before, after = (read_version(spark, table, version, options.date) for version in (pair.before, pair.after))
    paired = pair_up(before, after, key=pipeline.publish.key, tolerance=TOLERANCE)
    found = _totals(paired, pair)
    rows = RowCounts(**{name: found[name] for name in RowCounts.model_fields})
    with _held(paired.differing()) as differing:
        some = rows.differing > 0
        comparison = Comparison(
            pipeline=pair.pipeline,
            date=pair.date,
            key=tuple(name for name in pipeline.publish.key if name != _DAY),
            before=pair.before,
            after=pair.after,
            rows=rows,
            metrics=_metrics(paired, found, _movers(differing) if some else {}),
            examples=_examples(differing) if some else (),
            all_rows=_keep(differing, pair, options, stores=stores, size=_bytes(spark, table, pair)) if some else None,
            inputs=_inputs(store, pair, pipeline.sources),
            seconds=round(time.monotonic() - began, 3),
        )
    store.put(comparison_uri(options.prefix), comparison.model_dump_json().encode())
    log("versions compared", rows=comparison.rows.model_dump(), seconds=comparison.seconds)
    return comparison


@contextmanager
def _held(paired: Paired) -> Iterator[Paired]:
    """Keep the rows on the executors, in memory or on disk, while they are looked at more than once."""
    paired.frame.persist()
    try:
        yield paired
    finally:
        paired.frame.unpersist()


def read_version(spark: SparkSession, table: str, version: PublishedVersion, day: date) -> DataFrame:
    """Return the day's rows as one version of the table has them, with the columns that it had then.

    Raises `CloudError` if the table or the version's tag is not there.
    """
    if not spark.catalog.tableExists(table):
        raise CloudError(f"there is no table {table}: the versions of {day} cannot be read")
    tags = spark.table(f"{table}.refs").where("type = 'TAG'").select("name")
    if tags.where(sf.col("name") == version.tag).isEmpty():
        raise CloudError(f"{table} has no tag {version.tag} any more: attempt {version.attempt} cannot be read")
    return _at(spark, table, version).where(sf.col(_DAY) == sf.lit(day))


def _at(spark: SparkSession, table: str, version: PublishedVersion) -> DataFrame:
    return spark.sql(f"SELECT * FROM {table} VERSION AS OF '{version.tag}'")  # noqa: S608 - tags are made by us


def _bytes(spark: SparkSession, table: str, pair: VersionPair) -> int:
    """Return the size of the day's files in both versions."""
    day = sf.col(f"partition.{_DAY}") == sf.lit(pair.date).cast("date")
    before, after = (
        _at(spark, f"{table}.files", version).where(day).select("file_size_in_bytes")
        for version in (pair.before, pair.after)
    )
    found = before.unionAll(after).agg(sf.sum("file_size_in_bytes")).first()
    return int(found[0] or 0) if found else 0


def _pair(store: ObjectStore, options: argparse.Namespace) -> VersionPair:
    pair = VersionPair.model_validate_json(store.get(pair_uri(options.prefix)))
    if (pair.pipeline, pair.date) != (options.pipeline, str(options.date)):
        raise InputError(
            f"{pair_uri(options.prefix)} names versions of {pair.pipeline} {pair.date}, "
            f"not of {options.pipeline} {options.date}"
        )
    return pair


def _totals(paired: Paired, pair: VersionPair) -> Row:
    found = totals(paired).first()
    if found is None:
        raise CloudError(f"comparing the versions of {pair.date} gave no answer")
    for side, version in (("before", pair.before), ("after", pair.after)):
        if (found[f"{side}_times"] or 1) > 1:
            raise DataError(
                f"attempt {version.attempt} has keys ({', '.join(field.name for field in paired.key)}) that stand more "
                "than once: it was published under another publish.key, so its rows cannot be told apart by this one"
            )
    return found


def _metrics(paired: Paired, found: Row, moved: Mapping[int, Sequence[Mover]]) -> tuple[MetricChange, ...]:
    return tuple(
        MetricChange(
            metric=paired.values[place].name,
            total=Totals.SUM if paired.is_sum(place) else Totals.MEAN,
            before=_finite(found[f"before_{place}"]),
            after=_finite(found[f"after_{place}"]),
            movers=tuple(moved.get(place, ())),
        )
        for place in paired.numeric
    )


def _movers(differing: Paired) -> dict[int, list[Mover]]:
    found: dict[int, list[Mover]] = {}
    if not differing.numeric:
        return found
    for row in movers(differing, limit=MAX_MOVERS, max_text=MAX_TEXT).collect():
        mover = Mover(key=_key(differing, row), before=row["before"], after=row["after"])
        found.setdefault(row["metric"], []).append(mover)
    return found


def _examples(differing: Paired) -> tuple[RowChange, ...]:
    rows = examples(differing, limit=MAX_ROWS, max_text=MAX_TEXT).collect()
    return tuple(
        RowChange(change=Change(row["change"]), key=_key(differing, row), values=_values(differing, row))
        for row in rows
    )


def _values(differing: Paired, row: Row) -> dict[str, tuple[Value, Value]]:
    """Return the columns that differ, or all of them for a row that is new or gone."""
    whole = row["change"] != Change.CHANGED
    return {
        field.name: (_value(row[f"before_{place}"]), _value(row[f"after_{place}"]))
        for place, field in enumerate(differing.values)
        if whole or row[f"other_{place}"]
    }


def _key(paired: Paired, row: Row) -> dict[str, Value]:
    return {
        field.name: _value(row[f"key_{place}"]) for place, field in enumerate(paired.key) if field.name.lower() != _DAY
    }


def _value(value: Any) -> Value:
    """Return a cell as JSON can hold it: NaN and the infinities, as they differ from null, as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    kept: Value = value
    return kept


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _keep(
    differing: Paired, pair: VersionPair, options: argparse.Namespace, *, stores: StoreFactory, size: int
) -> ArrowReference:
    """Write all rows that differ as Arrow files; `size` is that of both versions in bytes."""
    began, prefix = time.monotonic(), f"{options.prefix}rows/"
    versions = f"{pair.before.attempt}-{pair.after.attempt}"
    producer = f"{options.pipeline}/{options.date}/{versions}/{options.job}/compare"
    manifest = write_frame(all_rows(differing), prefix, producer=producer, stores=stores, input_bytes=size)
    return store_dataset(manifest, prefix, store=stores(), seconds=time.monotonic() - began)


def _inputs(store: ObjectStore, pair: VersionPair, sources: Sequence[str]) -> tuple[SourceDifference, ...]:
    """Return what has become of the day's inputs between the two; nothing when a manifest is gone."""
    try:
        before, after = (
            InputManifest.model_validate_json(store.get(version.manifest)) for version in (pair.before, pair.after)
        )
    except (ObjectMissing, AccessDenied) as error:  # S3 says either of an object that is not there
        log("the inputs cannot be compared", reason=str(error))
        return ()
    return difference(before, after, sources=sources)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    options = parse(arguments)
    context = {"correlation_id": options.correlation_id, "pipeline": options.pipeline, "date": str(options.date)}
    return run_job(
        "compare_day",
        lambda spark: compare_day(spark, options, stores=s3_store),
        context={**context, "prefix": options.prefix},
        tell=lambda failure: s3_store().put(job_failure_uri(options.prefix, options.job), failure.encode()),
    )


if __name__ == "__main__":
    sys.exit(main())
