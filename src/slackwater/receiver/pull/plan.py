"""Plan a pull: compare the partner's listing of the look-back window with the file cache, and write the work list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, TypeAdapter

from slackwater.errors import InputError
from slackwater.receiver.connectors.connector import Connector, ListedFile
from slackwater.receiver.pull.count_files import NO_COUNT_FILES, CountFiles
from slackwater.receiver.pull.file_cache import EntryChanged, FileCache, FileEntry, FileState
from slackwater.receiver.pull.removed_files import record_removed, record_returned
from slackwater.sources.definition import Source
from slackwater.sources.file_pattern import FilePattern, WatchedPattern
from slackwater.storage import ObjectStore

# Most files that one pull fetches. Step Functions allows 25,000 events in an execution's history, and a file that a job
# fetches adds up to 68, with all retries.
MAX_ITEMS = 360
# Of these, the largest number of files that earlier attempts have not taken: they cannot keep newer files waiting.
MAX_RETRIES = 76


class FileDecision(StrEnum):
    """What a pull does with a file."""

    NEW = "new"
    """Fetch it: none of its contents is stored."""
    CHANGED = "changed"
    """Fetch it: the stored content may be outdated, or was read with another definition of the source."""
    UNCHANGED = "unchanged"
    """Do nothing: the stored content is the current one."""
    REPAIR = "repair"
    """Fetch it, or only report what its commit has changed: an earlier pull of it was interrupted."""
    BUSY = "busy"
    """Do nothing: another pull is fetching it."""
    WAITING = "waiting"
    """Do nothing yet: earlier attempts have failed, and the delay before the next one has not passed."""


class WorkItem(BaseModel):
    """One file to fetch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    decision: FileDecision
    listed: ListedFile | None
    """None for a file that the partner does not list any more, or that is not in the window."""
    dated_pattern: str = ""
    """The pattern of file names with the file's date; empty for a file that is not in the window."""
    killed_attempts: int = 0
    """Number of attempts in a row that did not succeed, if the process of the last one was killed."""


# Files that match no pattern: how many a plan names, and how many characters of a name.
_NAMED_FILES, _NAME_LENGTH = 3, 80
# DynamoDB writes at most 100 items in one transaction.
_MAX_RECORDS = 100
_FETCHED = frozenset({FileDecision.NEW, FileDecision.CHANGED, FileDecision.REPAIR})
_WORK_LIST = TypeAdapter(tuple[WorkItem, ...])


class PlanCounts(BaseModel):
    """Counts of the files of a pull."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listed: int
    """Files of the window that the partner lists."""
    unchanged: int
    busy: int
    """Files that another pull is fetching."""
    waiting: int
    """Files that could not be fetched before, and whose next attempt is not due yet."""
    removed: int
    """Files of the window that are stored and that the partner does not list any more."""
    left: int
    """Files beyond `MAX_ITEMS`, which the next pull fetches."""
    returned: int = 0
    """Files that were removed, and that the partner lists again."""
    unmatched: int = 0
    """Files of the window that have the beginning of the pattern and a date, but match no pattern of the folder."""
    unmatched_files: tuple[str, ...] = ()
    """The first of their names."""
    oldest_not_taken: datetime | None
    """Since when a listed file has not been taken, at most; None when all are taken."""


class PullPlan(PlanCounts):
    """The files that a pull has to fetch, and counts of the others."""

    items: Sequence[WorkItem]
    doubtful: Sequence[str]
    """The paths of removed files whose removal is not recorded, because the listing lacks more files than it has."""


class PlanSummary(PlanCounts):
    """The plan's counts and the URI of its work list, for the state machine."""

    files: int
    """Items of the work list."""
    doubtful: int
    work: str
    """URI of the work list."""
    reports: int = 0
    """Files with counts that were read."""
    refused_reports: tuple[str, ...] = ()
    """Why others were not, with their names: at most 5."""


def lookback_dates(source: Source, as_of: date | None, now: datetime) -> Iterator[date]:
    """Yield the dates of the look-back window, oldest first, up to `as_of` or else today in the source's timezone.

    Raises `DefinitionError` for a source without `pull`.
    """
    last = as_of or now.astimezone(ZoneInfo(source.pull_timezone)).date()
    for days_back in reversed(range(source.require_pull().lookback_days)):
        yield last - timedelta(days=days_back)


def plan_pull(
    source: Source,
    *,
    as_of: date | None,
    partner: Connector,
    cache: FileCache,
    now: datetime,
    records_removed: bool = False,
    accept_removed: int = 0,
    patterns_of_folder: Sequence[FilePattern] = (),
) -> PullPlan:
    """Compare the partner's listing with the file cache, record new files, and return the files to fetch.

    These are at most `MAX_ITEMS`. The files of the look-back window come first, oldest date first. Files that earlier
    attempts have not taken follow, whatever their date. `as_of` is the last date of the window; None means today in the
    source's timezone. `records_removed` is whether removed files are recorded too (`Project.records_removed`), and
    `accept_removed` how many of them a person has accepted. `patterns_of_folder` are those of all sources with the same
    folder: their files are known. Raises `DefinitionError` for a source without `pull`,
    `PartnerError`, `CloudError`.
    """
    name, definition = source.source, source.reading_digest
    pattern, dates = WatchedPattern(source.require_pull().files), list(lookback_dates(source, as_of, now))
    dated_patterns = {pattern.dated(day): day for day in dates}
    counts_pattern = source.counts.pattern if source.counts else None
    is_report = counts_pattern.of_days(dates).fullmatch if counts_pattern else lambda _: None
    listed = {file.name: file for file in partner.list(pattern, dates) if not is_report(file.name)}
    known = [counts_pattern] if counts_pattern else []
    known_names = [other.of_days(dates) for other in (*known, *patterns_of_folder)]
    unmatched = [other for other in sorted(pattern.others) if not any(n.fullmatch(other) for n in known_names)]
    # The window's files by path, oldest date first, with their dated pattern. A file of several dates occurs once.
    names = sorted(listed)
    window: dict[str, str] = {}
    for dated, day in dated_patterns.items():
        window |= {path: dated for path in names if path not in window and pattern.matches(path, day)}
    entries = {entry.path: entry for entry in cache.entries(name, window)}
    contents = cache.contents(name, (entry.content for entry in entries.values() if entry.content))
    current = {content.id for content in contents if content.committed and content.committed.definition == definition}
    counts, fresh, retries = Counter[FileDecision](), list[WorkItem](), list[WorkItem]()
    for path, dated in window.items():
        entry = entries.get(path)
        is_current = entry is not None and entry.content in current
        decision = decide(listed[path], entry, definition=definition, is_definition_current=is_current, now=now)
        counts[decision] += 1
        if decision in _FETCHED:
            item = work_item(path, decision, entry, listed=listed[path], dated_pattern=dated)
            is_retry = entry is not None and was_attempted(entry, listed[path])
            (retries if is_retry else fresh).append(item)
    # Read again by key: an index may be some seconds old.
    due = [entry.path for entry in cache.due(name, now=now, limit=MAX_ITEMS) if entry.path not in window]
    for entry in cache.entries(name, due):
        decision = decide(None, entry, definition=definition, is_definition_current=True, now=now)
        if decision in _FETCHED:
            retries.append(work_item(entry.path, decision, entry))
    retried = retries[: max(MAX_RETRIES, MAX_ITEMS - len(fresh))]
    items = [*fresh[: MAX_ITEMS - len(retried)], *retried]
    stored = [file.path for dated in dated_patterns for file in cache.files_of_date(name, dated) if file.is_stored]
    returned = record_returned((entry for entry in entries.values() if not entry.is_leased(now)), cache=cache, now=now)
    doubtful: Sequence[str] = ()
    if records_removed:
        doubtful = record_removed(
            name,
            stored,
            listed,
            list_again=lambda: {file.name for file in partner.list(pattern, dates)},
            cache=cache,
            now=now,
            accepted=accept_removed,
        )
    longest = cache.longest_not_taken(name)
    record_new_files([item for item in fresh if item.path not in entries], source=name, cache=cache, now=now)
    return PullPlan(
        items=items,
        listed=len(window),
        unchanged=counts[FileDecision.UNCHANGED],
        busy=counts[FileDecision.BUSY],
        waiting=counts[FileDecision.WAITING],
        removed=sum(path not in listed for path in stored),
        doubtful=doubtful,
        left=len(fresh) + len(retries) - len(items),
        returned=returned,
        unmatched=len(unmatched),
        unmatched_files=tuple(other[:_NAME_LENGTH] for other in unmatched[:_NAMED_FILES]),
        oldest_not_taken=longest.not_taken_since if longest else None,
    )


def was_attempted(entry: FileEntry, listed: ListedFile) -> bool:
    """Whether an attempt to take the file, as it is listed now, has not succeeded."""
    is_missing = entry.is_unfinished or entry.attempts > 0
    return is_missing and entry.state is not FileState.LISTED and entry.attempted in {None, listed}


def record_new_files(items: Sequence[WorkItem], *, source: str, cache: FileCache, now: datetime) -> None:
    """Record files that no pull has listed before, so that none is forgotten when it leaves the window."""
    for start in range(0, len(items), _MAX_RECORDS):
        new = [
            FileEntry(source=source, path=item.path, dated_pattern=item.dated_pattern, due=now, not_taken_since=now)
            for item in items[start : start + _MAX_RECORDS]
        ]
        try:
            cache.save(*new)
        except EntryChanged:
            # Another pull has recorded some of them. It may be fetching one, so each of the others is saved alone.
            for entry in new:
                with suppress(EntryChanged):
                    cache.save(entry)


def work_item(
    path: str,
    decision: FileDecision,
    entry: FileEntry | None,
    *,
    listed: ListedFile | None = None,
    dated_pattern: str = "",
) -> WorkItem:
    """Return the work item of a file; `entry` is its record, if there is one."""
    # A pull releases its lease when it ends, so this one was killed.
    was_killed = entry is not None and entry.lease is not None
    return WorkItem(
        path=path,
        decision=decision,
        listed=listed,
        dated_pattern=dated_pattern,
        killed_attempts=entry.attempts if entry and was_killed else 0,
    )


def work_list_uri(bucket: str, source: str, name: str) -> str:
    """Return the URI of a pull's work list in the exchange bucket. Each listing has a name of its own."""
    return f"s3://{bucket}/pulls/{source}/{name}.json"


def write_plan(plan: PullPlan, *, store: ObjectStore, uri: str, reports: CountFiles = NO_COUNT_FILES) -> PlanSummary:
    """Write the work list to `uri` and return the plan's summary, with what was read of files with counts."""
    # In S3, because Step Functions passes at most 256 kB from one state to the next.
    store.put(uri, _WORK_LIST.dump_json(tuple(plan.items)))
    counts = plan.model_dump(exclude={"items", "doubtful"})
    return PlanSummary(
        **counts,
        files=len(plan.items),
        doubtful=len(plan.doubtful),
        work=uri,
        reports=reports.read,
        refused_reports=reports.refused,
    )


def read_item(store: ObjectStore, uri: str, index: int) -> WorkItem:
    """Return one item of the work list at `uri`. Raises `ObjectMissing`, or `InputError` when it has no such item."""
    items = _WORK_LIST.validate_json(store.get(uri))
    if not 0 <= index < len(items):
        raise InputError(f"{uri} has {len(items)} items: there is no item {index}")
    return items[index]


def decide(
    listed: ListedFile | None,
    entry: FileEntry | None,
    *,
    definition: str,
    is_definition_current: bool,
    now: datetime,
) -> FileDecision:
    """Return what a pull does with a file.

    `listed` is None when the partner no longer lists it, `entry` when no pull has fetched it yet.
    `definition` is the digest of the source's present definition (`Source.reading_digest`), and `is_definition_current`
    says whether readers see the content as this definition reads it.
    """
    if entry is None:
        return FileDecision.NEW
    if entry.is_leased(now):
        return FileDecision.BUSY
    fetch = FileDecision.CHANGED if entry.content else FileDecision.NEW
    was_listed_so = listed is None or listed == entry.attempted
    if entry.is_unfinished or (entry.state is FileState.VANISHED and listed):
        # What the partner has delivered again, or a corrected definition reads, may be right now: it does not wait.
        is_repeated = was_listed_so and entry.attempted_definition in {"", definition}
        if is_repeated and entry.due and now < entry.due:
            return FileDecision.WAITING
        # A pull releases its lease when it ends, so an expired lease belongs to an interrupted pull.
        return FileDecision.REPAIR if entry.lease or entry.is_unreported else fetch
    if listed is None:
        return FileDecision.UNCHANGED
    if entry.state is FileState.GIVEN_UP:
        is_current = was_listed_so
    else:
        is_current = entry.matches_listing(listed) and is_definition_current
    return FileDecision.UNCHANGED if is_current else fetch
