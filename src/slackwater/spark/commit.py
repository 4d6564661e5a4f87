"""The Iceberg commit of a day: each attempt has one at most, and none replaces the rows of a later attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import AuditFailed, CloudError, Superseded
from slackwater.runs.period import partition_values
from slackwater.runs.record import Run
from slackwater.spark.table import (
    files_of_period,
    is_conflict,
    is_of,
    prepare_table,
    refuse_other_period,
    retry_on_conflict,
    table_metadata,
)

# The snapshot property with the digest of a day's rows.
CONTENT = "slackwater.content"
THROUGH = "slackwater.through"
"""The snapshot property with the time at which the inputs of a provisional version were listed."""


class Audited(NamedTuple):
    """Rows that passed the audit."""

    rows: int
    content: str
    """Digest of the rows and their columns; see `Publication.content`."""


@dataclass(frozen=True)
class Commit:
    """The commit of a day, as the table's snapshot records it."""

    snapshot_id: str
    rows: int
    """Rows that it has added."""
    replaced: int
    """Rows that it has deleted."""
    content: str
    """Digest of the rows; see `Publication.content`."""


def snapshot_identity(run: Run) -> dict[str, str]:
    """Return the snapshot properties that identify the run and attempt that committed, and mark provisional rows."""
    mark = {THROUGH: run.through.isoformat()} if run.through else {}
    return {
        **mark,
        "slackwater.pipeline": run.pipeline,
        "slackwater.date": run.date,
        "slackwater.run-id": run.run_id,
        "slackwater.attempt": str(run.attempt),
        "slackwater.correlation-id": run.correlation_id,
    }


def find_commit(spark: SparkSession, table: str, identity: Mapping[str, str]) -> Commit | None:
    """Return the commit of the run and attempt that `identity` names, or None if it has not committed."""
    if not spark.catalog.tableExists(table):
        return None
    names = ("slackwater.pipeline", "slackwater.date", "slackwater.run-id", "slackwater.attempt")
    snapshot = next(iter(_snapshots_of(spark, table, identity, names)), None)
    if snapshot is None:
        return None
    return Commit(
        snapshot_id=str(snapshot["snapshot-id"]),
        rows=int(snapshot["summary"].get("added-records", 0)),
        replaced=int(snapshot["summary"].get("deleted-records", 0)),
        content=snapshot["summary"].get(CONTENT, ""),
    )


def commit_day(
    spark: SparkSession,
    frame: DataFrame,
    table: str,
    identity: Mapping[str, str],
    audited: Audited,
    *,
    min_rows_percent: float | None,
) -> Commit:
    """Replace the day in the table by the rows of the frame, in one commit, and return the commit.

    The table is created if it does not exist, and gets the frame's new columns. `identity` are the snapshot properties
    that name the run and attempt, and `audited` is the result of the audit of the frame. `min_rows_percent` is the
    least number of rows, in percent of those that the day has now; with None, any number may replace them.

    Raises `Superseded` if a later attempt has published the day, and `AuditFailed` for too few rows and for columns
    that do not fit the table; then this job has changed no row of the table. Raises `CloudError` if the table does not
    show the commit.
    """
    day = identity["slackwater.date"]

    def compare_with_published() -> None:
        refuse_if_superseded(spark, table, identity)
        if min_rows_percent is not None:
            refuse_if_fewer(spark, table, day, rows=audited.rows, percent=min_rows_percent)

    # The checks come before anything that changes the table: a refused run creates no table and adds no column.
    if spark.catalog.tableExists(table):
        refuse_other_period(spark, table, day)
        compare_with_published()
    prepare_table(spark, table, frame, tuple(partition_values(day)))

    def replace_day() -> None:
        # The snapshot is read before the checks: a commit of the day that the checks do not see is a conflict.
        inspected = current_snapshot(spark, table)
        if find_commit(spark, table, identity):  # by another job of this attempt, at the same time
            return
        compare_with_published()
        overwrite_day(frame, table, day, {**identity, CONTENT: audited.content}, inspected=inspected)

    # After a conflict the checks decide again: a later attempt replaces an earlier one, and never the reverse.
    retry_on_conflict(replace_day)
    # Spark's writer does not return the snapshot that it has committed.
    commit = find_commit(spark, table, identity)
    if commit is None:
        raise CloudError(f"{table} does not show the snapshot that was just committed for {day}")
    return commit


def refuse_if_superseded(spark: SparkSession, table: str, identity: Mapping[str, str]) -> None:
    """Raise `Superseded` if a later attempt has published the day: its inputs are newer than those of this job.

    `identity` are the snapshot properties of this job's commit.
    """
    # This happens when a job outlives its execution: the next execution takes over the day with a later attempt.
    snapshots = _snapshots_of(spark, table, identity, ("slackwater.pipeline", "slackwater.date"))
    latest = max((int(snapshot["summary"]["slackwater.attempt"]) for snapshot in snapshots), default=0)
    if latest > int(identity["slackwater.attempt"]):
        raise Superseded(
            f"attempt {latest} has published {identity['slackwater.date']} already; "
            f"this is attempt {identity['slackwater.attempt']}, with older inputs"
        )


def refuse_if_fewer(spark: SparkSession, table: str, day: str, *, rows: int, percent: float) -> None:
    """Raise `AuditFailed` if `rows`, which would replace the published rows, are less than `percent` of them."""
    published = files_of_period(spark, table, day).rows
    if published is None:
        spark.catalog.refreshTable(table)
        published = spark.table(table).where(is_of(day)).count()
    # Decimals are exact: in floating point, 111 of 1,000 rows would be below 11.1 percent.
    if 100 * rows < Decimal(str(percent)) * published:
        raise AuditFailed(
            f"{rows} rows would replace the {published} rows that are published for {day}, less than "
            f"publish.audit.min_rows_percent {percent:g}"
        )


def overwrite_day(
    frame: DataFrame, table: str, day: str, identity: Mapping[str, str], *, inspected: str | None
) -> None:
    """Replace the day's rows by the frame's rows (also by none) in one commit with `identity` as its properties.

    `inspected` is the table's snapshot on which the decision to commit is based. If another job has added or removed
    files of the day since, Iceberg refuses the commit; see `CONFLICT_MESSAGES`.
    """
    writer = frame.writeTo(table).option("isolation-level", "serializable")
    # Without a snapshot to start from, Iceberg checks every commit since the table was created.
    if inspected is not None:
        writer = writer.option("validate-from-snapshot-id", inspected)
    for name, value in identity.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    # With a filter, because a dynamic overwrite would keep the old rows of a day whose new result is empty.
    writer.overwrite(is_of(day))


def withdraw_if_superseded(
    spark: SparkSession, table: str, day: str, identity: Mapping[str, str], commit: Commit
) -> None:
    """Remove the committed rows and raise `Superseded` if a later attempt has published the day before.

    `identity` are the snapshot properties of this job's commit.
    """
    # Iceberg's own check compares files: it misses a later attempt with no rows for a day that had no rows.
    try:
        refuse_if_superseded(spark, table, identity)
    except Superseded:
        try:
            overwrite_day(spark.table(table).where("false"), table, day, {}, inspected=commit.snapshot_id)
        except Exception as error:
            # A conflict means that the later attempt has replaced the committed rows itself.
            if not is_conflict(error):
                raise
        raise


def current_snapshot(spark: SparkSession, table: str) -> str | None:
    """Return the id of the table's current snapshot; None if nothing was ever committed."""
    main = table_metadata(spark, table).get("refs", {}).get("main")
    return None if main is None else str(main["snapshot-id"])


def _snapshots_of(
    spark: SparkSession, table: str, identity: Mapping[str, str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the table's snapshots whose properties `names` have the values of `identity`, the oldest first."""
    snapshots = [
        snapshot
        for snapshot in table_metadata(spark, table).get("snapshots", [])
        if all(snapshot["summary"].get(name) == identity[name] for name in names)
    ]
    return sorted(snapshots, key=lambda snapshot: snapshot["timestamp-ms"])
