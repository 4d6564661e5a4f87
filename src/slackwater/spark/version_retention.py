"""Remove old versions of days from a published table: their tags, their snapshots, and files that only they used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from math import ceil
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from slackwater.runs.period import is_hour
from slackwater.runs.record import VERSION_TAG, DayRecord
from slackwater.spark.job import log
from slackwater.spark.table import load_table, quoted_table, retry_on_conflict, table_metadata
from slackwater.steps.spark_errors import explain

# Each publication removes at most so many versions, and reads at most so many records of days.
REMOVED_AT_ONCE, READ_AT_ONCE = 20, 100
_Tagged = tuple[int, str, int]


class OldVersion(NamedTuple):
    """A version that a later one has replaced, or the commit of a day that no tag names."""

    date: str
    attempt: int
    tag: str | None
    """None if a job ended before it tagged its commit, or after it removed the tag and before the snapshot."""
    snapshot_id: int
    replaced_at: datetime
    """When the next version was committed, UTC. For a commit without a tag, when the next one of its day was, or the
    commit itself if a later attempt had committed before it."""


def old_versions(metadata: Mapping[str, Any], *, replaced_before: datetime) -> list[OldVersion]:
    """Return what was replaced before that time, except the first version of each day; the oldest first.

    Of an hour, all versions that were committed before that time are old: there are 24 times as many hours as days,
    and each tag makes every commit of the table slower. The rows of its last version stay in the table.

    `metadata` is that of the table, as Iceberg's specification defines it.
    """
    found = [*_tagged(metadata), *_untagged(metadata)]
    return sorted((item for item in found if item.replaced_at < replaced_before), key=lambda item: item.replaced_at)


def _tagged(metadata: Mapping[str, Any]) -> list[OldVersion]:
    """Return the versions that have a tag: of each day those between the first and the last, and of each hour all."""
    refs = metadata.get("refs", {}).values()
    heads = {ref["snapshot-id"] for ref in refs if ref["type"] != "tag"}
    committed = {snapshot["snapshot-id"]: _committed_at(snapshot) for snapshot in metadata.get("snapshots", [])}
    by_day: defaultdict[str, list[_Tagged]] = defaultdict(list)
    for tag, ref in metadata.get("refs", {}).items():
        if ref["type"] == "tag" and (match := VERSION_TAG.fullmatch(tag)):
            by_day[match[1]].append((int(match[2]), tag, ref["snapshot-id"]))
    return [
        OldVersion(name, attempt, tag, snapshot_id, replaced_at=committed[next_id])
        for name, versions in by_day.items()
        for (attempt, tag, snapshot_id), (_, _, next_id) in _replaced(name, sorted(versions))
        if snapshot_id not in heads
    ]


def _replaced(name: str, versions: Sequence[_Tagged]) -> Iterable[tuple[_Tagged, _Tagged]]:
    """Return the versions of a period that end, each with the one whose commit starts its last days."""
    return zip(versions, versions, strict=True) if is_hour(name) else pairwise(versions[1:])


def _untagged(metadata: Mapping[str, Any]) -> list[OldVersion]:
    """Return the commits of days that no tag and no branch names, so never the current snapshot of the table."""
    named = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    by_day: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for snapshot in sorted(metadata.get("snapshots", []), key=_committed_at):
        if "slackwater.date" in snapshot["summary"]:
            by_day[snapshot["summary"]["slackwater.date"]].append(snapshot)
    return [
        OldVersion(
            date=date,
            attempt=int(snapshot["summary"]["slackwater.attempt"]),
            tag=None,
            snapshot_id=snapshot["snapshot-id"],
            replaced_at=_committed_at(following),
        )
        for date, snapshots in by_day.items()
        # If none follows, `is_removable` decides whether a later attempt had committed before.
        for snapshot, following in zip(snapshots, [*snapshots[1:], snapshots[-1]], strict=True)
        if snapshot["snapshot-id"] not in named
    ]


def _committed_at(snapshot: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(snapshot["timestamp-ms"] / 1000, UTC)


def is_removable(version: OldVersion, day: DayRecord) -> bool:
    """Return whether nothing needs a version: no run of its day is active, and people know a later one.

    This excludes a commit that its job has not tagged yet: its run is active, or no later one has published.
    """
    if day.active or day.published is None:
        return False
    if is_hour(version.date) and not day.notification_due:
        return version.attempt <= day.published.run.attempt
    return version.attempt < min(day.published.run.attempt, day.seen_attempt)


def dates_to_read(versions: Sequence[OldVersion], *, turn: int) -> Collection[str]:
    """Return at most `READ_AT_ONCE` of the dates with such versions: other ones in each turn, until all had theirs.

    So days that block their versions, for example because nobody was notified, do not keep those of others.
    """
    dates = sorted({version.date for version in versions})
    turns = max(1, ceil(len(dates) / READ_AT_ONCE))
    return frozenset(dates[turn % turns :: turns])


def remove_old_versions(
    spark: SparkSession, catalog_table: str, *, replaced_before: datetime, day_of: Callable[[str], DayRecord]
) -> Sequence[OldVersion]:
    """Remove versions of a table, at most `REMOVED_AT_ONCE`, and return them.

    `day_of` returns the record of a date. One commit of the table removes the tags, and a second one the snapshots;
    Iceberg then deletes the files. If a job ends in between, the next call finds the snapshots without tags.
    """
    table = quoted_table(catalog_table)
    metadata = table_metadata(spark, table)
    candidates = old_versions(metadata, replaced_before=replaced_before)
    # Each publication adds one snapshot to the table, so the next one reads the records of other days.
    dates, known = dates_to_read(candidates, turn=metadata["last-sequence-number"]), cache(day_of)
    removable = (item for item in candidates if item.date in dates and is_removable(item, known(item.date)))
    removed = list(islice(removable, REMOVED_AT_ONCE))
    if tags := [version.tag for version in removed if version.tag]:
        # Not in one transaction: Iceberg would delete the files before the transaction's own commit, which may fail.
        retry_on_conflict(lambda: remove_tags(load_table(spark, table), tags))
    if removed:
        retry_on_conflict(lambda: _remove_snapshots(load_table(spark, table), removed))
        log("old versions removed", table=table, tags=tags, snapshots=len(removed))
    return removed


def remove_after_publication(
    spark: SparkSession, catalog_table: str, *, days: int, day_of: Callable[[str], DayRecord], now: datetime
) -> None:
    """Remove the versions of a table that were replaced more than `days` ago; with 0 days, none.

    Any error is only logged: the day is published already, and the next publication removes the same versions.
    """
    if not days:
        return
    try:
        remove_old_versions(spark, catalog_table, replaced_before=now - timedelta(days=days), day_of=day_of)
    except Exception as error:  # noqa: BLE001 - of Spark, of the catalog or of the run table
        error_type, message = explain(error)
        log("old versions were not removed", error=error_type, reason=message)


def remove_tags(table: Any, tags: Sequence[str]) -> None:
    """Remove tags from a table, Iceberg's Java object, in one commit."""
    refs = table.manageSnapshots()
    for tag in tags:
        refs = refs.removeTag(tag)
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
