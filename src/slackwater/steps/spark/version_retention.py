"""Remove old versions of days from a published table: their tags, their snapshots, and files that only they used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from slackwater.runs.record import DayRecord
from slackwater.steps.spark.job import explain, log
from slackwater.steps.spark.stage import StageJob
from slackwater.steps.spark.table import load_table, quoted_table, retry_on_conflict, tagged_snapshots

# Each publication removes at most so many versions, and reads at most so many records of days.
REMOVED_AT_ONCE, _READ_AT_ONCE = 20, 100
# `slackwater.runs.record.version_tag`; tags of other systems are not ours to remove.
_TAG = re.compile(r"(\d{4}-\d\d-\d\d)-\w{12}-(\d+)")


class OldVersion(NamedTuple):
    """A version that a later one has replaced."""

    date: str
    attempt: int
    tag: str
    snapshot_id: int
    replaced_at: datetime
    """When the next version was committed, UTC."""


def old_versions(tags: Mapping[str, tuple[int, datetime]], *, replaced_before: datetime) -> list[OldVersion]:
    """Return the versions that were replaced before that time, except the first of each day; the oldest first.

    `tags` has the snapshot of each tag: its id, and when it was committed.
    """
    by_day: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for tag in tags:
        if match := _TAG.fullmatch(tag):
            by_day[match[1]].append((int(match[2]), tag))
    found: list[OldVersion] = []
    for date, versions in by_day.items():
        ordered = sorted(versions)
        for (attempt, tag), (_, next_tag) in pairwise(ordered[1:]):
            snapshot_id, replaced_at = tags[tag][0], tags[next_tag][1]
            if replaced_at < replaced_before:
                found.append(OldVersion(date, attempt, tag, snapshot_id, replaced_at))
    return sorted(found, key=lambda version: version.replaced_at)


def is_removable(version: OldVersion, day: DayRecord) -> bool:
    """Return whether nothing needs a version: no run of its day is active, and people know a later one."""
    if day.active or day.published is None:
        return False
    return version.attempt < min(day.published.run.attempt, day.seen_attempt)


def remove_old_versions(
    spark: SparkSession, catalog_table: str, *, replaced_before: datetime, day_of: Callable[[str], DayRecord]
) -> Sequence[OldVersion]:
    """Remove versions of a table, at most `REMOVED_AT_ONCE`, and return them.

    `day_of` returns the record of a date. One commit of the table removes the tags, and a second one the snapshots;
    Iceberg then deletes the files. A job that ends in between leaves the snapshots and their files, which nothing
    finds again: this costs storage, but no version that has a tag becomes unreadable.
    """
    table = quoted_table(catalog_table)
    candidates = old_versions(tagged_snapshots(spark, table), replaced_before=replaced_before)
    removable = (version for version in candidates[:_READ_AT_ONCE] if is_removable(version, day_of(version.date)))
    removed = list(islice(removable, REMOVED_AT_ONCE))
    if removed:
        # Not in one transaction: Iceberg would delete the files before the transaction's own commit, which may fail.
        retry_on_conflict(lambda: _remove_tags(load_table(spark, table), removed))
        retry_on_conflict(lambda: _remove_snapshots(load_table(spark, table), removed))
        log("old versions removed", table=table, tags=[version.tag for version in removed])
    return removed


def remove_after_publication(
    spark: SparkSession, job: StageJob, *, days: int, day_of: Callable[[str], DayRecord], now: datetime
) -> None:
    """Remove the versions of the job's table that were replaced more than `days` ago; with 0 days, none.

    Any error is only logged: the day is published already, and the next publication removes the same versions.
    """
    if not days:
        return
    try:
        remove_old_versions(spark, job.catalog_table, replaced_before=now - timedelta(days=days), day_of=day_of)
    except Exception as error:  # noqa: BLE001 - of Spark, of the catalog or of the run table
        error_type, message = explain(error)
        log("old versions were not removed", error=error_type, reason=message)


def _remove_tags(table: Any, versions: Sequence[OldVersion]) -> None:
    """Remove the tags of versions from a table, Iceberg's Java object, in one commit."""
    refs = table.manageSnapshots()
    for version in versions:
        refs = refs.removeTag(version.tag)
    refs.commit()


def _remove_snapshots(table: Any, versions: Sequence[OldVersion]) -> None:
    """Remove the snapshots of versions without tags, in one commit. Iceberg then deletes the files that only they use.

    `table` is Iceberg's Java object of the table.
    """
    # Without a time, Iceberg would also remove the snapshots that `history.expire.max-snapshot-age-ms` names.
    expire = table.expireSnapshots().expireOlderThan(0)
    for version in versions:
        expire = expire.expireSnapshotId(version.snapshot_id)
    expire.commit()
