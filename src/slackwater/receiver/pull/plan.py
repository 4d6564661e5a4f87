"""Plan a pull: compare the partner's listing of the look-back window with the file cache, and write the work list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, TypeAdapter

from slackwater.errors import InputError
from slackwater.receiver.partners.partner import ListedFile, Partner
from slackwater.receiver.pull.file_cache import FileCache, FileDecision, decide
from slackwater.sources.definition import Source
from slackwater.sources.pull_config import PullConfig
from slackwater.storage import ObjectStore

# Most files that one pull fetches, by two limits of Step Functions: each file adds up to 22 events to the execution's
# history (25,000 at most), and 230 bytes to the output of the Map state (256 kB at most).
MAX_ITEMS = 1_000


class WorkItem(BaseModel):
    """One file to fetch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    decision: FileDecision
    listed: ListedFile | None
    """None for a repair of a file that the partner does not list any more."""


_WORK_LIST = TypeAdapter(tuple[WorkItem, ...])


class PullPlan(NamedTuple):
    """The files that a pull has to fetch, and counts of the others."""

    items: Sequence[WorkItem]
    listed: int
    """Files of the window that the partner lists."""
    unchanged: int
    busy: int
    """Files that another pull is fetching."""
    removed: int
    """Files of the window that are stored and that the partner does not list any more; their rows stay."""
    left: int
    """Files beyond `MAX_ITEMS`, which the next pull fetches."""


def lookback_dates(pull: PullConfig, as_of: date | None, now: datetime) -> Iterator[date]:
    """Yield the dates of the look-back window, oldest first, up to `as_of` or else today in the source's timezone."""
    last = as_of or now.astimezone(ZoneInfo(pull.timezone)).date()
    for days_back in reversed(range(pull.lookback_days)):
        yield last - timedelta(days=days_back)


def plan_pull(source: Source, *, as_of: date | None, partner: Partner, cache: FileCache, now: datetime) -> PullPlan:
    """Compare the partner's listing with the file cache and return the first `MAX_ITEMS` files to fetch.

    Repairs come first, whatever their date, then the files of the look-back window, oldest date first. `as_of` is the
    last date of the window; None means today in the source's timezone. Raises `DefinitionError` for a source without
    `pull`, `PartnerError`, `CloudError`.
    """
    pull = source.require_pull()
    pattern, dates = pull.pattern, list(lookback_dates(pull, as_of, now))
    listed = {file.name: file for file in partner.list(pattern, dates)}
    entries = {entry.path: entry for entry in cache.entries(source.source)}
    names = sorted({*listed, *entries})
    # Dicts serve as ordered sets: `window` keeps the dates in order, and a file that matches two dates occurs once.
    window = dict.fromkeys(name for day in dates for name in names if pattern.matches(name, day))
    # Files outside the window can need a repair too, so every entry gets a decision.
    decisions = {name: decide(listed.get(name), entries.get(name), now=now) for name in {**window, **entries}}
    items = [
        WorkItem(path=name, decision=decision, listed=listed.get(name))
        for name, decision in decisions.items()
        if decision is FileDecision.REPAIR or (name in window and decision in {FileDecision.NEW, FileDecision.CHANGED})
    ]
    # Stable sort, repairs first: a half-written file must not wait behind MAX_ITEMS new files.
    items.sort(key=lambda item: item.decision is not FileDecision.REPAIR)
    counts = Counter(decisions[name] for name in window if name in listed)
    stored = {name for name, entry in entries.items() if entry.version is not None}
    return PullPlan(
        items=items[:MAX_ITEMS],
        listed=counts.total(),
        unchanged=counts[FileDecision.UNCHANGED],
        busy=counts[FileDecision.BUSY],
        removed=sum(name in stored and name not in listed for name in window),
        left=max(0, len(items) - MAX_ITEMS),
    )


class PlanSummary(BaseModel):
    """The plan's counts (`PullPlan` explains them) and the URI of its work list, for the state machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: int
    """Items of the work list."""
    listed: int
    unchanged: int
    busy: int
    removed: int
    left: int
    work: str
    """URI of the work list."""


def work_list_uri(bucket: str, source: str, correlation_id: str) -> str:
    """Return the URI of a pull's work list in the exchange bucket."""
    return f"s3://{bucket}/pulls/{source}/{correlation_id}.json"


def write_plan(plan: PullPlan, *, store: ObjectStore, uri: str) -> PlanSummary:
    """Write the work list to `uri` and return the plan's summary."""
    # In S3, because Step Functions passes at most 256 kB from one state to the next.
    store.put(uri, _WORK_LIST.dump_json(tuple(plan.items)))
    return PlanSummary(
        files=len(plan.items),
        listed=plan.listed,
        unchanged=plan.unchanged,
        busy=plan.busy,
        removed=plan.removed,
        left=plan.left,
        work=uri,
    )


def read_item(store: ObjectStore, uri: str, index: int) -> WorkItem:
    """Return one item of the work list at `uri`. Raises `ObjectMissing`, or `InputError` when it has no such item."""
    items = _WORK_LIST.validate_json(store.get(uri))
    if not 0 <= index < len(items):
        raise InputError(f"{uri} has {len(items)} items: there is no item {index}")
    return items[index]
