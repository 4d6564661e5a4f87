"""The difference between two input manifests of one day, exact to the object."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from slackwater.model import Record
from slackwater.runs.inputs.manifest import InputManifest, InputObject


class Amount(Record):
    """A number of objects, with their rows and bytes in total."""

    objects: int = 0
    rows: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(objects=self.objects + other.objects, rows=self.rows + other.rows, bytes=self.bytes + other.bytes)


class Change(StrEnum):
    """How an input, or a row of the output, differs between two versions of a day."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class InputChange(Record):
    """The change of one file, or of pushed events, in one partition."""

    source: str
    date: str
    """Of the partition, UTC."""
    hour: str
    """Of the partition, UTC."""
    file: str | None
    """The partner's file; None for pushed events."""
    change: Change
    before: Amount = Amount()
    now: Amount = Amount()
    arrived: datetime | None = None
    """When the newest of the objects in `now` was written, UTC; None when all were removed."""
    on_removed: Literal["hold", "drop"] | None = None
    """If the partner has removed the file: what the pipeline does then. None if the objects themselves are gone."""


class FileChange(NamedTuple):
    """The same change of one file, or of a source's pushed events, in all partitions that it affects."""

    source: str
    file: str | None
    change: Change
    before: Amount
    now: Amount
    hours: tuple[tuple[str, str], ...]
    """Date and hour of each partition."""
    arrivals: tuple[datetime, ...]
    """When the newest object of each partition was written, in order; empty for removed objects."""

    @property
    def amount(self) -> Amount:
        """What there is of the file now, or what there was of a removed one."""
        return self.before if self.change is Change.REMOVED else self.now


class SourceDifference(Record):
    """The changes of one source's objects between two manifests."""

    source: str
    before: Amount
    now: Amount
    changes: tuple[InputChange, ...] = ()
    """In order of hour and file; empty when nothing has changed."""

    def amount(self, change: Change) -> Amount:
        """Return the total of the changes of one type: `before` of removed inputs, `now` of all others."""
        amounts = (
            item.before if change is Change.REMOVED else item.now for item in self.changes if item.change is change
        )
        return sum(amounts, Amount())

    def by_file(self) -> list[FileChange]:
        """Group the changes by file and type of change. A file with added and changed hours gives two `FileChange`s."""
        return _grouped(self.changes, lambda item: (item.file, item.change))

    @property
    def late(self) -> Amount:
        """Late data: the added objects, and all objects of changed files, as they are now."""
        # A changed file counts as a whole, because a manifest does not show which of its rows are new.
        return self.amount(Change.ADDED) + self.amount(Change.CHANGED)

    @property
    def of_published_days(self) -> bool:
        """Whether the changes are of published days of another pipeline, which have no bytes and no hours.

        The file of such an input is the pipeline and its day.
        """
        return bool(self.changes) and all(
            (item.file or "").endswith(f" {item.date}") and not item.before.bytes and not item.now.bytes
            for item in self.changes
        )

    @property
    def removed(self) -> tuple[InputChange, ...]:
        """Inputs of the earlier manifest that are gone without a replacement."""
        return tuple(item for item in self.changes if item.change is Change.REMOVED)

    @property
    def lost(self) -> tuple[InputChange, ...]:
        """Removed inputs without which a run needs a person's decision: all but those of dropped files."""
        return tuple(item for item in self.removed if item.on_removed != "drop")

    @property
    def dropped(self) -> Amount:
        """What the earlier manifest has of files that the partner has removed and whose rows the pipeline drops."""
        return sum((item.before for item in self.removed if item.on_removed == "drop"), Amount())

    @property
    def changed_files(self) -> list[FileChange]:
        """The changed files over all of their hours, and by hour the pushed events that were overwritten."""
        changed = (item for item in self.changes if item.change is Change.CHANGED)
        return _grouped(changed, _file_or_hour)

    @property
    def lost_rows(self) -> list[FileChange]:
        """What a run would lose of the rows before: `lost` inputs, and changed files with fewer rows.

        Files count over all of their hours, because a partner may correct an event's time, and pushed events by hour.
        """
        shrunk = [item for item in self.changed_files if item.now.rows < item.before.rows]
        return [*_grouped(self.lost, _file_or_hour), *shrunk]

    @property
    def unprocessed(self) -> Amount:
        """What thresholds apply to: late data, and the rows of dropped files."""
        return self.late + self.dropped


def difference(before: InputManifest, now: InputManifest, *, sources: Iterable[str]) -> tuple[SourceDifference, ...]:
    """Return the changes between two manifests of one day, for each of `sources` in order of name.

    An object that was overwritten is a changed input. When a file has lost objects and gained others, its content was
    replaced, and all of them are changed inputs. Objects of other sources are not compared.
    """
    objects_before, objects_now = before.by_source(), now.by_source()
    return tuple(
        SourceDifference(
            source=source,
            before=total_amount(objects_before.get(source, ())),
            now=total_amount(objects_now.get(source, ())),
            changes=input_changes(objects_before.get(source, ()), objects_now.get(source, ()), left_out=now.left_out),
        )
        for source in sorted(sources)
    )


def _grouped(changes: Iterable[InputChange], key: Callable[[InputChange], object]) -> list[FileChange]:
    """Return the total of the changes with the same key, which have one file and one type of change."""
    groups: dict[object, list[InputChange]] = {}
    for item in changes:
        groups.setdefault(key(item), []).append(item)
    return [
        FileChange(
            source=items[0].source,
            file=items[0].file,
            change=items[0].change,
            before=sum((item.before for item in items), Amount()),
            now=sum((item.now for item in items), Amount()),
            hours=tuple((item.date, item.hour) for item in items),
            arrivals=tuple(sorted(item.arrived for item in items if item.arrived)),
        )
        for items in groups.values()
    ]


def _file_or_hour(item: InputChange) -> str | tuple[str, str]:
    return item.file or (item.date, item.hour)


def total_amount(objects: Sequence[InputObject]) -> Amount:
    """Return the number of the objects, with their rows and bytes in total."""
    # A record for each object would take most of the time of a comparison.
    return Amount(objects=len(objects), rows=sum(it.rows for it in objects), bytes=sum(it.bytes for it in objects))


class ObjectChanges(NamedTuple):
    """The objects that differ between two lists of one source, each with its change."""

    gone: list[tuple[InputObject, Change]]
    new: list[tuple[InputObject, Change]]


def object_changes(before: Iterable[InputObject], now: Iterable[InputObject]) -> ObjectChanges:
    """Return which of one source's objects are gone or new: removed, added, or part of a changed input."""
    before, now = tuple(before), tuple(now)
    if before == now:  # unchanged objects of a listing are those of the earlier manifest, which takes no time to see
        return ObjectChanges([], [])
    old, new = {item.identity: item for item in before}, {item.identity: item for item in now}
    removed = [item for identity, item in old.items() if identity not in new]
    added = [item for identity, item in new.items() if identity not in old]
    # An object is named by the hash of its batch or file. So a file with new content has new objects, and these are
    # matched with the old ones by the file. Pushed events have no file: they change only if an object was overwritten.
    overwritten = {item.uri for item in removed} & {item.uri for item in added}
    replaced_files = ({item.file for item in removed} & {item.file for item in added}) - {None}

    def change_of(item: InputObject, otherwise: Change) -> Change:
        return Change.CHANGED if item.uri in overwritten or item.file in replaced_files else otherwise

    return ObjectChanges(
        gone=[(item, change_of(item, Change.REMOVED)) for item in removed],
        new=[(item, change_of(item, Change.ADDED)) for item in added],
    )


def input_changes(
    before: Iterable[InputObject],
    now: Iterable[InputObject],
    *,
    left_out: Mapping[str, Literal["hold", "drop"]] = MappingProxyType({}),
) -> tuple[InputChange, ...]:
    """Return the changes of one source's objects, by partition, file and type of change, in order of hour and file.

    `left_out` is that of the later manifest.
    """
    changed = object_changes(before, now)
    groups = defaultdict[
        tuple[str, str, str, str | None, Change, Literal["hold", "drop"] | None],
        tuple[list[InputObject], list[InputObject]],
    ](lambda: ([], []))
    for side, objects in enumerate(changed):
        for item, change in objects:
            on_removed = left_out.get(item.uri) if change is Change.REMOVED else None
            groups[item.source, item.date, item.hour, item.file, change, on_removed][side].append(item)
    changes = [
        InputChange(
            source=source,
            date=date,
            hour=hour,
            file=file,
            change=change,
            on_removed=on_removed,
            before=total_amount(gone),
            now=total_amount(new),
            arrived=max((item.arrived for item in new), default=None),
        )
        for (source, date, hour, file, change, on_removed), (gone, new) in groups.items()
    ]
    return tuple(sorted(changes, key=lambda item: (item.date, item.hour, item.file or "", item.change)))
