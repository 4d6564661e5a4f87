"""What has become of a day's inputs: the difference between two of its manifests, exact to the object."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from slackwater.runs.manifest import InputManifest, InputObject, Record


class Amount(Record):
    """So many objects, with so many rows and bytes."""

    objects: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(objects=self.objects + other.objects, rows=self.rows + other.rows, bytes=self.bytes + other.bytes)


class Change(StrEnum):
    """What has become of an input."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class InputChange(Record):
    """One hour's objects of one file, or of pushes: what they were and what they are."""

    source: str
    date: str
    hour: str
    """Of the partition, UTC."""
    file: str | None
    """The partner's file, None for pushed events."""
    change: Change
    before: Amount = Amount()
    now: Amount = Amount()
    arrived: datetime | None = None
    """When the newest of its objects was written, UTC; None for what is gone."""


class FileChange(NamedTuple):
    """What has become of one file, or of a source's pushes, in one way and over all its hours."""

    source: str
    file: str | None
    change: Change
    before: Amount
    now: Amount
    hours: tuple[tuple[str, str], ...]
    """Date and hour of each partition."""
    arrivals: tuple[datetime, ...]
    """Of the newest objects of each hour, in order; none for what is gone."""


class SourceDifference(Record):
    """What has become of one source's part of the day."""

    source: str
    before: Amount
    now: Amount
    changes: tuple[InputChange, ...] = ()
    """In order of hour and file; none when nothing has changed."""

    def amount(self, change: Change) -> Amount:
        """What was added, what changed inputs hold now, or what was removed."""
        found = (item for item in self.changes if item.change is change)
        parts = (item.before if change is Change.REMOVED else item.now for item in found)
        return sum(parts, Amount())

    def by_file(self) -> list[FileChange]:
        """The changes put together by file and kind: newly come hours of a file stand apart from changed ones."""
        found: dict[tuple[str | None, Change], list[InputChange]] = {}
        for item in self.changes:
            found.setdefault((item.file, item.change), []).append(item)
        return [
            FileChange(
                source=self.source,
                file=file,
                change=change,
                before=sum((item.before for item in items), Amount()),
                now=sum((item.now for item in items), Amount()),
                hours=tuple((item.date, item.hour) for item in items),
                arrivals=tuple(sorted(item.arrived for item in items if item.arrived)),
            )
            for (file, change), items in found.items()
        ]

    @property
    def late(self) -> Amount:
        """What has come since: added objects, and the whole of changed files."""
        return self.amount(Change.ADDED) + self.amount(Change.CHANGED)


def difference(before: InputManifest, now: InputManifest, *, sources: Iterable[str]) -> tuple[SourceDifference, ...]:
    """Compare two manifests of one day, source by source.

    An object of a file that is gone while other objects of the same file have come is a changed file; so is an object
    that was overwritten.
    """
    return tuple(
        SourceDifference(
            source=source,
            before=_amount(before.of_source(source)),
            now=_amount(now.of_source(source)),
            changes=_changes(before.of_source(source), now.of_source(source)),
        )
        for source in sorted(sources)
    )


_Place = tuple[str, str, str | None]
"""Date, hour, file."""


def _changes(before: Iterable[InputObject], now: Iterable[InputObject]) -> tuple[InputChange, ...]:
    old, new = {_identity(item): item for item in before}, {_identity(item): item for item in now}
    gone = [item for identity, item in old.items() if identity not in new]
    come = [item for identity, item in new.items() if identity not in old]
    overwritten = {item.uri for item in gone} & {item.uri for item in come}
    replaced = ({item.file for item in gone} & {item.file for item in come}) - {None}

    def is_change(item: InputObject) -> bool:
        return item.uri in overwritten or item.file in replaced

    found: dict[tuple[_Place, Change], tuple[list[InputObject], list[InputObject]]] = {}
    for side, item in chain(((0, item) for item in gone), ((1, item) for item in come)):
        change = Change.CHANGED if is_change(item) else (Change.REMOVED, Change.ADDED)[side]
        found.setdefault(((item.date, item.hour, item.file), change), ([], []))[side].append(item)
    ordered = sorted(found.items(), key=lambda entry: (entry[0][0][:2], entry[0][0][2] or "", entry[0][1]))
    return tuple(_change(place, change, *sides) for (place, change), sides in ordered)


def _change(place: _Place, change: Change, old: list[InputObject], new: list[InputObject]) -> InputChange:
    date, hour, file = place
    return InputChange(
        source=next(iter([*old, *new])).source,
        date=date,
        hour=hour,
        file=file,
        change=change,
        before=_amount(old),
        now=_amount(new),
        arrived=max((item.arrived for item in new), default=None),
    )


def _identity(item: InputObject) -> tuple[str, str, int]:
    return item.uri, item.etag, item.bytes


def _amount(items: Iterable[InputObject]) -> Amount:
    return sum((Amount(objects=1, rows=item.rows, bytes=item.bytes) for item in items), Amount())
