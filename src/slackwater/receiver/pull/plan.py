"""A pull's plan: a partner's listing over the look-back window, less what the file cache says is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, TypeAdapter

from slackwater.errors import DefinitionError, InputError
from slackwater.receiver.partners.partner import ListedFile, Partner
from slackwater.receiver.pull.file_cache import FileCache, FileDecision, decide
from slackwater.sources.definition import Source
from slackwater.sources.pull_config import PullConfig
from slackwater.storage import ObjectStore

MAX_ITEMS = 1_000
"""Files of one pull.

Each leaves up to 22 events in its execution's history, which holds 25,000, and 230 bytes among its results, which are
256 kB at most.
"""


class WorkItem(BaseModel):
    """One file to take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    decision: FileDecision
    listed: ListedFile | None
    """None when only a repair is left to do, since the partner has the file no more."""


WORK_LIST = TypeAdapter(tuple[WorkItem, ...])
"""A pull's work list, as it is kept between listing and fetching."""


class PullPlan(NamedTuple):
    """What a pull is to do, and what it need not."""

    items: Sequence[WorkItem]
    listed: int
    """Files of the window that the partner has."""
    unchanged: int
    busy: int
    removed: int
    """Files of the window that were taken and that the partner has no more; their rows stay."""
    left: int
    """Files that wait for the next pull, since this one has as many as it can take."""


def pull_of(source: Source) -> PullConfig:
    """Return how a source's files are pulled. Raises `DefinitionError` when they are not."""
    if source.pull is None:
        raise DefinitionError(f"source {source.source!r} has no `pull`: its data is pushed")
    return source.pull


def lookback_dates(pull: PullConfig, as_of: date | None, now: datetime) -> Iterator[date]:
    """Return the dates of the look-back window, oldest first; its last one is `as_of`, or else today."""
    last = as_of or now.astimezone(ZoneInfo(pull.timezone)).date()
    for back in reversed(range(pull.lookback_days)):
        yield last - timedelta(days=back)


def plan_pull(source: Source, *, as_of: date | None, partner: Partner, cache: FileCache, now: datetime) -> PullPlan:
    """Compare the partner's listing with the file cache. Raises `PartnerError`, `CloudError`.

    Repairs come first, then files by their days, the oldest first: in this order the first `MAX_ITEMS` are planned.
    """
    pull = pull_of(source)
    pattern, days = pull.pattern, list(lookback_dates(pull, as_of, now))
    there = {file.name: file for file in partner.list(pattern, days)}
    known = {entry.path: entry for entry in cache.entries(source.source)}
    names = sorted({*there, *known})
    wanted = [name for day in days for name in names if pattern.matches(name, day)]
    decisions = {name: decide(there.get(name), known.get(name), now=now) for name in dict.fromkeys([*wanted, *known])}
    in_window = set(wanted)
    items = [
        WorkItem(path=name, decision=decision, listed=there.get(name))
        for name, decision in decisions.items()
        if decision is FileDecision.REPAIR
        or (name in in_window and decision in {FileDecision.NEW, FileDecision.CHANGED})
    ]
    items.sort(key=lambda item: item.decision is not FileDecision.REPAIR)
    counts = Counter(decisions[name] for name in in_window if name in there)
    return PullPlan(
        items=items[:MAX_ITEMS],
        listed=sum(name in there for name in in_window),
        unchanged=counts[FileDecision.UNCHANGED],
        busy=counts[FileDecision.BUSY],
        removed=sum(name in known and known[name].version is not None and name not in there for name in in_window),
        left=max(0, len(items) - MAX_ITEMS),
    )


class PlanSummary(BaseModel):
    """What listing answers: counts, and the address of the work list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: int
    listed: int
    unchanged: int
    busy: int
    removed: int
    left: int
    work: str


def work_list_uri(bucket: str, source: str, correlation_id: str) -> str:
    """Return where a pull keeps its work list."""
    return f"s3://{bucket}/pulls/{source}/{correlation_id}.json"


def read_item(store: ObjectStore, address: str, index: int) -> WorkItem:
    """Return one item of the work list at `address`. Raises `ObjectMissing`, `InputError`."""
    items = WORK_LIST.validate_json(store.get(address))
    if index >= len(items):
        raise InputError(f"{address} has {len(items)} items: there is no item {index}")
    return items[index]


def write_plan(plan: PullPlan, *, store: ObjectStore, address: str) -> PlanSummary:
    """Write the work list to `address` and return what may pass through a state machine."""
    store.put(address, WORK_LIST.dump_json(tuple(plan.items)))
    return PlanSummary(
        files=len(plan.items),
        listed=plan.listed,
        unchanged=plan.unchanged,
        busy=plan.busy,
        removed=plan.removed,
        left=plan.left,
        work=address,
    )
