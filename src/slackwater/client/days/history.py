"""The published versions of a day: where each comes from, and whether it can still be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from slackwater.costs.cost import RunCost
from slackwater.errors import InputError
from slackwater.model import Record
from slackwater.runs.record import DayRecord, Rollback, RunReason, RunRecord, RunState
from slackwater.runs.rollback import version_to_restore


class VersionStatus(StrEnum):
    """What has become of a version."""

    PUBLISHED = "published"
    """The table holds it now."""
    PROVISIONAL = "provisional"
    """The table holds it now; the day had not ended when its inputs were listed."""
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
    """Return the published versions of a day, in order. `runs` are its runs, and `tags` the tags of its table.

    Of provisional versions, only the one that the table holds now is a version.
    """
    latest = day.published or day.provisional
    current = latest.run.attempt if latest else 0
    versions: list[DayVersion] = []
    for record in runs:
        run, publication, published_at = record.run, record.publication, record.ended_at
        if record.state is not RunState.PUBLISHED or publication is None or published_at is None:
            continue
        if run.through and run.attempt != current:
            continue
        holds = VersionStatus.PROVISIONAL if run.through else VersionStatus.PUBLISHED
        replaced = VersionStatus.READABLE if run.tag in tags else VersionStatus.REMOVED
        versions.append(
            DayVersion(
                version=run.attempt,
                status=holds if run.attempt == current else replaced,
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


def readable_version(day: DayRecord, runs: Iterable[RunRecord], tags: Collection[str], number: int) -> DayVersion:
    """Return the version of a day with that number. `runs` are the day's runs, and `tags` the tags of its table.

    Raises `InputError` if there is none, or if its tag is gone; it names the versions that can be read.
    """
    by_number = {version.version: version for version in day_versions(day, runs, tags)}
    readable = ", ".join(str(number) for number, version in by_number.items() if version.tag in tags) or "none"
    if number not in by_number:
        raise InputError(
            f"version: {day.pipeline} has no published version {number} of {day.date} (readable: {readable})"
        )
    version = by_number[number]
    if version.tag not in tags:
        raise InputError(
            f"version: version {number} of {day.pipeline} {day.date} was removed from the table, with its tag "
            f"{version.tag} (readable: {readable})"
        )
    return version


def check_rollback(day: DayRecord, runs: Sequence[RunRecord], tags: Collection[str], *, to: int, reason: str) -> None:
    """Raise `InputError` if a rollback of the day cannot publish the version `to` again.

    `runs` are the day's runs, and `tags` the tags of its table.
    """
    readable_version(day, runs, tags, to)
    earlier = next(record for record in runs if record.run.attempt == to)
    version_to_restore(day, earlier, to=to, reason=reason)
