"""The published versions of a day: where each comes from, and whether it can still be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from slackwater.client.arguments import Date, iso_date
from slackwater.errors import InputError
from slackwater.runs.cost import RunCost
from slackwater.runs.inputs.manifest import Record
from slackwater.runs.record import DayRecord, Rollback, RunReason, RunRecord, RunState
from slackwater.runs.rollback import RollbackRequest, version_to_restore

if TYPE_CHECKING:
    from slackwater.client.client import Client


class VersionStatus(StrEnum):
    """What has become of a version."""

    PUBLISHED = "published"
    """The table holds it now."""
    READABLE = "readable"
    """A later version has replaced it; its Iceberg tag keeps it readable."""
    REMOVED = "removed"
    """Its Iceberg tag is gone."""


class DayVersion(Record):
    """One published version of a day."""

    version: int
    """The attempt that published it."""
    status: VersionStatus
    tag: str
    """The Iceberg tag: `SELECT * FROM table VERSION AS OF '<tag>'` in Spark reads it."""
    published_at: datetime
    run_id: str
    rows: int
    input_files: int
    """Objects in the input manifest."""
    input_rows: int
    """Events in these objects."""
    frozen_at: datetime
    """When these inputs were listed."""
    reasons: tuple[RunReason, ...]
    """Why its run started; empty if that is unknown."""
    definition: str
    """Digest of the pipeline's definition; empty if it is unknown."""
    code: str
    """Digest of the code; empty if it is unknown."""
    rollback: Rollback | None
    """The earlier version that this one repeats, and why."""
    cost: RunCost | None


def day_versions(day: DayRecord, runs: Iterable[RunRecord], tags: Collection[str]) -> list[DayVersion]:
    """Return the published versions of a day, in order. `runs` are its runs, and `tags` the tags of its table."""
    current = day.published.run.attempt if day.published else 0
    versions: list[DayVersion] = []
    for record in runs:
        run, publication, published_at = record.run, record.publication, record.ended_at
        if record.state is not RunState.PUBLISHED or publication is None or published_at is None:
            continue
        replaced = VersionStatus.READABLE if run.tag in tags else VersionStatus.REMOVED
        versions.append(
            DayVersion(
                version=run.attempt,
                status=VersionStatus.PUBLISHED if run.attempt == current else replaced,
                tag=run.tag,
                published_at=published_at,
                run_id=run.run_id,
                rows=publication.rows,
                input_files=run.files,
                input_rows=run.rows,
                frozen_at=record.frozen_at,
                reasons=record.reasons,
                definition=record.definition,
                code=record.code,
                rollback=record.rollback,
                cost=record.cost,
            )
        )
    return versions


def readable_version(
    pipeline: str, date: str, versions: Iterable[DayVersion], number: int, *, tags: Collection[str]
) -> DayVersion:
    """Return the version of that number. `tags` are the tags of the table.

    Raises `InputError` if there is none, or if its tag is gone; it names the versions that can be read.
    """
    by_number = {version.version: version for version in versions}
    readable = ", ".join(str(number) for number, version in by_number.items() if version.tag in tags) or "none"
    if number not in by_number:
        raise InputError(f"version: {pipeline} has no published version {number} of {date} (readable: {readable})")
    version = by_number[number]
    if version.tag not in tags:
        raise InputError(
            f"version: version {number} of {pipeline} {date} was removed from the table, with its tag {version.tag} "
            f"(readable: {readable})"
        )
    return version


def check_rollback(
    day: DayRecord, runs: Sequence[RunRecord], tags: Collection[str], *, to: int, reason: str
) -> DayVersion:
    """Return the version `to`, which a rollback of the day can publish again.

    `runs` are the day's runs, and `tags` the tags of its table. Raises `InputError`.
    """
    version = readable_version(day.pipeline, day.date, day_versions(day, runs, tags), to, tags=tags)
    earlier = next(record for record in runs if record.run.attempt == to)
    version_to_restore(day, earlier, RollbackRequest(to, reason))
    return version


def tag_of_version(client: Client, sql: str, *, date: Date | None, version: int | None) -> dict[str, str]:
    """Return by pipeline the tag as of which the statement reads its table; empty without a version.

    Raises `InputError` for a version without a date or the reverse, one that cannot be read, or a statement that does
    not name the table of exactly one pipeline.
    """
    from slackwater.client.sql import named_pipeline

    if version is None or date is None:
        if version is None and date is None:
            return {}
        missing = "--date" if date is None else "--version"
        raise InputError(f"{missing} is missing: a version is that of a day, so --version and --date go together")
    pipeline, day = named_pipeline(sql, client.project.pipelines), iso_date(date)
    versions, tags = client.history(pipeline, day), client.warehouse.tags(pipeline)
    return {pipeline: readable_version(pipeline, day, versions, version, tags=tags).tag}
