"""The lineage of a published version: what it has read (up), and the versions that have read it (down)."""

from __future__ import annotations

from datetime import datetime

from slackwater.model import Record
from slackwater.runs.inputs.manifest import InputObject
from slackwater.state.verdicts import Verdict


class HourRead(Record):
    """The events of one UTC hour of a source that a version has read."""

    date: str
    hour: str
    objects: int
    files: int
    """Of a partner; 0 for pushed events."""
    rows: int
    bytes: int


class SourceRead(Record):
    """The events of a source that a version has read."""

    name: str
    objects: int
    files: int
    rows: int
    bytes: int
    hours: tuple[HourRead, ...]
    """In order."""
    inputs: tuple[InputObject, ...]
    """The exact objects, in order of URI, with the file that each comes from; empty unless they were asked for."""
    verdicts: tuple[Verdict, ...]
    """By which these hours have failed."""


class VersionRead(Record):
    """A version of a day or hour of another pipeline that a version has read."""

    name: str
    """Of the table in the definition."""
    pipeline: str
    date: str
    version: int
    rows: int
    newest: int | None
    """The version that is published now."""
    is_newest: bool
    """Whether the rows that were read are those of the newest version, which may have another number."""


class TableRead(Record):
    """An Iceberg table of another system that a version has read."""

    name: str
    table: str
    """As `database.table`."""
    snapshot: str
    rows: int


class Loaded(Record):
    """What a load step has written after the publication."""

    name: str
    step: str
    target: str
    """The path below the project's files, or the table."""
    rows: int | None


class VersionLineage(Record):
    """A published version, with what it has read and what its load steps have written."""

    pipeline: str
    date: str
    version: int
    run_id: str
    table: str
    """The warehouse table, as `catalog.database.table`."""
    tag: str
    """The Iceberg tag that keeps the version readable."""
    rows: int
    published_at: datetime | None
    is_newest: bool
    """Whether it is the one that is published now."""
    manifest: str
    """URI of the input manifest, which says all of this."""
    is_known: bool
    """Whether the manifest still exists: without it, what the version has read is not known."""
    sources: tuple[SourceRead, ...]
    days: tuple[VersionRead, ...]
    tables: tuple[TableRead, ...]
    loads: tuple[Loaded, ...]
    verdicts: tuple[Verdict, ...]
    """By which the version, or what it has read, has failed."""


class DayRead(Record):
    """What a reader has read of a day or hour of another pipeline."""

    pipeline: str
    date: str
    version: int | None
    """None if the reader was published without this day, or if its input manifest is gone."""
    newest: int | None
    """The version that is published now."""
    is_newest: bool
    """Whether the rows that were read are those of the newest version, which may have another number."""


class Reader(Record):
    """A published day or hour whose definition reads another one."""

    pipeline: str
    date: str
    version: int
    """The version that is published now."""
    read: DayRead
    verdicts: tuple[Verdict, ...]
    """By which the reader's version, or what it has read, has failed."""


class Lineage(Record):
    """The lineage of a version of a day or an hour."""

    pipeline: str
    date: str
    version: int
    up: tuple[VersionLineage, ...]
    """The version itself, then all that it has read, through chains; empty if it was not asked for."""
    down: tuple[Reader, ...]
    """The readers, then the readers of those, through chains; empty if they were not asked for."""
    is_complete: bool
    """False if there are more than `MOST_VERSIONS`: the others are left out."""


MOST_VERSIONS = 1_000
"""Versions of each direction that a lineage has at most."""
