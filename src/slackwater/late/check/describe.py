"""The sentences about late and missing data, and a new definition, in the reasons of a decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from humanize import naturalsize

from slackwater.formatting import counted, hour_range, percentage
from slackwater.late.check.decision import MAX_TABLE_RERUNS
from slackwater.runs.inputs.difference import Amount, Change, FileChange, InputChange, SourceDifference


class DefinitionChange(NamedTuple):
    """What has changed in the definition of a pipeline since the published run of a day."""

    lines: tuple[str, ...]
    """In words, one for each input."""
    digest: str
    """Of the present definition."""
    reruns: bool
    """Whether the pipeline runs such days again."""
    moves_hours: bool
    """Whether the pipeline had another timezone."""

    def reason(self, *, runs_again: bool) -> str:
        """Return the change as a reason, with what becomes of the day."""
        result = "the run reads with the new one" if runs_again else "the published version keeps the earlier one"
        return f"the definition has changed since the published run ({', '.join(self.lines)}): {result}"


def threshold_label(name: str, value: float) -> str:
    """Return a threshold in the words of a reason: `percent 1`, `rows 1,000`."""
    return f"{name} {value:g}" if name == "percent" else f"{name} {value:,}"


def describe_lost(source: SourceDifference) -> Iterator[str]:
    """Yield the reasons why a run needs a person's decision: vanished objects, and files that the partner removed."""
    if any(item.on_removed is None for item in source.lost):
        yield describe_removed(source)
    if removed := [item for item in source.lost if item.on_removed]:
        yield f"{source.source}: {_describe_files(removed)} that the published run has read"


def describe_removed(source: SourceDifference) -> str:
    """Return what has vanished, for a reason: `weather has lost 2 objects with 13 rows that the published ...`.

    Files that the partner has removed do not count.
    """
    gone = [item for item in source.removed if item.on_removed is None]
    lost = sum((item.before for item in gone), Amount())
    if source.of_published_days:
        dates = ", ".join(sorted(item.date for item in gone))
        return f"{source.source} has lost {counted(lost.rows, 'row')} that the published run has read: {dates}"
    hours = hour_range((item.date, item.hour) for item in gone)
    return (
        f"{source.source} has lost {counted(lost.objects, 'object')} with {counted(lost.rows, 'row')} that the "
        f"published run has read, of {hours}, without a replacement"
    )


def describe_dropped(source: SourceDifference) -> str:
    """Return what a source loses with dropped files, for a reason; empty without any."""
    dropped = [item for item in source.removed if item.on_removed == "drop"]
    percent = percentage(source.dropped.rows, source.before.rows)
    return f"{_describe_files(dropped)} ({percent}), which are dropped" if dropped else ""


def _describe_files(removed: Sequence[InputChange]) -> str:
    """Return which files the partner has removed: `the partner has removed 2 files, such as a.csv, with 13 rows`."""
    files = sorted({item.file or "" for item in removed})
    such_as = f", such as {files[0]}," if len(files) > 1 else f", {files[0]},"
    rows = sum(item.before.rows for item in removed)
    return f"the partner has removed {counted(len(files), 'file')}{such_as} with {counted(rows, 'row')}"


def describe_late_data(source: SourceDifference) -> str:
    """Return the late data of a source, for a reason: `flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB`.

    For changed files, the result has their rows before and now: `flights has 1 changed file, 120 -> 131 rows ...`.
    Dropped files are named in addition.
    """
    dropped = describe_dropped(source)
    if not source.late.objects:
        return f"{source.source}: {dropped}"
    return " and ".join(filter(None, (_describe_late(source), dropped)))


def _describe_late(source: SourceDifference) -> str:
    added, late = source.amount(Change.ADDED), source.late
    files = source.changed_files
    percent = percentage(late.rows, source.before.rows)
    of_days = source.of_published_days
    size = "" if of_days else f", {counted(late.objects, 'object')}, {naturalsize(late.bytes)}"
    if not files:
        return f"{source.source} grew by {counted(added.rows, 'row')} ({percent}){size}"
    before, now = sum(item.before.rows for item in files), sum(item.now.rows for item in files)
    noun = "changed day" if of_days else "changed file"
    changed = f"{counted(len(files), noun)}, {before:,} -> {counted(now, 'row')}"
    if not added.objects:
        return f"{source.source} has {changed} ({percent}){size}"
    total = f"{counted(late.rows, 'row')} in total ({percent}){size}"
    return f"{source.source} grew by {counted(added.rows, 'row')} and has {changed}, {total}"


def file_label(change: FileChange) -> str:
    """Return the name of a changed file, or the hour of pushed events that were overwritten."""
    return change.file or f"data pushed for {hour_range(change.hours)}"


def changed_file_count(source: SourceDifference) -> int:
    """Return how many files of a source were changed or removed."""
    removed = {item.file for item in source.removed if item.file}
    return len(removed | {file_label(item) for item in source.changed_files})


def describe_repeated(pipeline: str, date: str) -> tuple[str, str]:
    """Return why a day that changed tables run again too often is on hold, and the remedy."""
    return (
        f"changed tables have run the day again {MAX_TABLE_RERUNS} times within 24 hours: find out whether its rows "
        "lead back to its inputs, and if not, raise late.cool_down_hours",
        f"`slackwater late release {pipeline} --date {date} --reason TEXT` runs it again",
    )
