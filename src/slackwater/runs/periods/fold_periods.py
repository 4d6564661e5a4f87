"""Fold the states of periods: what the messages of the queue of states lead to.

For each source with `counts` whose facts may have changed, in this order:

1. Read the objects that the messages name, and store them as facts, some at a time. To store one twice changes
   nothing.
2. Read the states of the periods, then what the reports cover, then all facts; compute the states.
3. Store each state if the stored one is still that of step 2; otherwise do step 2 again. The facts are part of a
   state's digest, so each of them leads to a new version, which a process that has not read it does not replace.
4. Send messages about what is new, have the runs looked at that wait for these hours, and record both. Have open
   periods published whose windows are full.

A process may end between any two writes. Its messages are then delivered again, and a state whose message was not
recorded is announced again, also if nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from slackwater.errors import SlackwaterError, Unavailable
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.inputs.source_counts import current_origins
from slackwater.runs.periods.changes import PutsChanges, period_changed, save_list
from slackwater.runs.periods.count_ids import distinct_bins
from slackwater.runs.periods.read_parts import PartReader, name_of
from slackwater.sources.definition import Source
from slackwater.state.completeness import CountState, keys_at
from slackwater.state.facts import Coverage, HourFacts, Part, hours_between, joined, regrouped
from slackwater.state.fold import Distinct, Period, PeriodState, fold, is_news, periods_with
from slackwater.state.full_windows import full_times
from slackwater.state.periods import Covered, PeriodTable
from slackwater.storage import StoredObject

_THREADS = 16
# How often a state is computed when other processes are faster.
_ATTEMPTS = 10
# Entries that PutEvents accepts. Each has about 2 KB, and all together may have 256 KB.
_MAX_ENTRIES = 10
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Folded(NamedTuple):
    """The state of a period and the facts that it follows from."""

    period: Period
    state: PeriodState
    facts: Mapping[datetime, HourFacts]
    has_new_windows: bool
    """Whether further windows are full, or the state is an earlier one, about which a process may have told nobody."""


class ListedHour(NamedTuple):
    """The objects of a UTC hour that were listed."""

    unknown: Sequence[str]
    """The names of those that are no facts yet."""
    members: Mapping[str, StoredObject]
    """Those that are members of packed objects, by URI."""


class SourceFold(NamedTuple):
    """What was done for one source."""

    changed: int
    """Periods about which a message was sent."""
    failed: Mapping[datetime, str]
    """Why hours could not be computed."""


@dataclass(frozen=True, kw_only=True)
class PeriodFolder:
    """Computes, stores and announces the states of periods."""

    project: Project
    table: PeriodTable
    files: FileCache
    parts: PartReader
    exchange_bucket: str
    put_changes: PutsChanges
    on_changed: Callable[[str, Sequence[datetime]], None]
    """Called with a source and the UTC hours of its changed periods, after their states are stored. May be called
    again for the same change."""
    on_full: Callable[[str, Sequence[datetime]], None]
    """Called with a source and the UTC hours of the periods of which further windows have all of their events, as
    `on_changed`: also if their ids are not read yet, so that there is no message."""

    def put_parts(self, source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        """Store objects by their UTC hour. Raises `CloudError`."""
        self.table.put_parts(source, parts)

    def list_hours(self, source: str, hours: Collection[datetime]) -> dict[datetime, ListedHour]:
        """List the objects of these UTC hours. Raises `ObjectInvalid`, `CloudError`."""
        wanted = sorted(hours)
        listed, facts = self.parts.list(source, wanted), self.table.all_facts(source, wanted)
        return {hour: _listed(listed[hour], facts[hour]) for hour in wanted}

    def fold(self, source: str, hours: Collection[datetime], *, only_objects: bool = False) -> SourceFold:
        """Compute, store and announce the states of the periods with these UTC hours of a source with `counts`.

        Also those of hours that reports cover since the last call, although they do not name them. With `only_objects`
        nothing but objects has changed: states that exist know what the reports cover. Raises `CloudError` if the table
        cannot be read, or a message not be sent; periods that fail for another reason stop no others.
        """
        definition = self.project.source(source)
        # First the states, then the facts: whoever stores a state later has read no fewer facts than its writer.
        periods = periods_with(definition, hours)
        before = self._states(definition, periods)
        is_covered = only_objects and len(before) == len(periods) and all(map(_knows_coverage, before))
        covered, known = Covered(None, None) if is_covered else self.table.covered(source)
        between = _between(known, covered) if covered else set()
        uncovered = between.difference(hours)
        if uncovered:
            periods = periods_with(definition, {*hours, *uncovered})
            before = self._states(definition, periods)
        coverage = self.table.coverage(source) if uncovered else covered
        folded, failed = self._fold_all(periods, {state.start: state for state in before}, coverage)
        changed = self._announce(folded)
        if full := [hour for each in folded if each.has_new_windows for hour in each.period.hours]:
            self.on_full(source, full)
        if covered and _touched(covered) != _touched(known) and not between.intersection(failed):
            # Last: until then, each call computes these hours. Within an hour, it would say nothing new.
            self.table.put_folded(source, covered)
        return SourceFold(changed, failed)

    def _fold_all(
        self, periods: Sequence[Period], before: Mapping[datetime, PeriodState], coverage: Coverage | None
    ) -> tuple[list[Folded], dict[datetime, str]]:
        """Compute and store the states of periods; return them, and why hours failed."""
        failed = dict[datetime, str]()

        def fold_one(period: Period) -> Folded | None:
            try:
                return self._fold(period, before.get(period.start), coverage)
            except SlackwaterError as error:
                failed.update(dict.fromkeys(period.hours, str(error)))
                return None

        return [each for each in _map(fold_one, periods) if each], failed

    def _states(self, source: Source, periods: Sequence[Period]) -> list[PeriodState]:
        # At half the price. An earlier state is not replaced: then the newest one is read.
        return self.table.states(source.source, [period.start for period in periods], newest=False)

    def _newest(self, period: Period) -> PeriodState | None:
        return next(iter(self.table.states(period.source.source, [period.start])), None)

    def _fold(self, period: Period, before: PeriodState | None, coverage: Coverage | None) -> Folded:
        """Compute and store the state of one period; `before` is its stored state, or an earlier one."""
        source, is_newest = period.source, False
        if coverage is None and before:
            coverage = before.covered
        for _ in range(_ATTEMPTS):
            facts = self._facts(period)
            state = fold(period, facts, coverage, distinct=before.distinct if before else None)
            if state.needs_ids:
                keys = tuple(key for key, _ in state.keys)
                distinct = Distinct(state.parts, self._distinct(period, facts, keys))
                state = fold(period, facts, coverage, distinct=distinct)
            if before and before.facts == state.facts:
                newest = before if is_newest else self._newest(period)
                if newest and newest.version == before.version:
                    return Folded(period, newest, facts, bool(full_times(source, newest)))
            else:
                version = before.version + 1 if before else 1
                is_told = not is_news(before, state) and (before is None or before.announced == before.version)
                announced = version if is_told else before.announced if before else 0
                state = state._replace(version=version, announced=announced)
                if self.table.put_state(state):
                    full = full_times(source, state)
                    return Folded(period, state, facts, bool(full - full_times(source, before) if before else full))
                newest = self._newest(period)
            before, is_newest = newest, True
            coverage = self.table.coverage(source.source)
        raise Unavailable(f"other processes keep changing the state of {source.source} at {period.start:%Y-%m-%dT%H}")

    def _facts(self, period: Period) -> dict[datetime, HourFacts]:
        """Return the facts about the hours of a period that count: of pulled files, what readers see now."""
        source = period.source
        facts: Mapping[datetime, HourFacts] = {}
        places: dict[str, tuple[datetime, Part]] = {}

        def list_objects() -> Iterable[StoredObject]:
            nonlocal facts
            facts = self.table.all_facts(source.source, period.hours)
            places.clear()
            for hour, found in facts.items():
                places.update({self.parts.uri(source.source, hour, part.name): (hour, part) for part in found.parts})
            return [StoredObject(uri, part.bytes, "", part.written) for uri, (_, part) in sorted(places.items())]

        listing = consistent_listing(source, list_objects, files=self.files)
        counted: dict[datetime, list[Part]] = {hour: [] for hour in period.hours}
        for item in listing.objects:
            if not listing.is_removed(item.uri):
                hour, part = places[item.uri]
                counted[hour].append(part)
        keys = keys_at(source, period.start, facts)
        origins = {item.origin for found in facts.values() for item in found.rejected}
        current = current_origins(source.source, origins, files=self.files)
        return {
            hour: HourFacts(
                found.reports,
                tuple(item for item in found.rejected if item.origin in current),
                self._by_keys(source.source, hour, counted[hour], keys),
            )
            for hour, found in facts.items()
        }

    def _by_keys(self, source: str, hour: datetime, parts: Sequence[Part], keys: tuple[str, ...]) -> tuple[Part, ...]:
        """Return the objects of an hour by these keys. Those that were stored by others are read again."""
        others = [part.name for part in parts if regrouped(part.bins, keys) is None]
        if not others:
            return tuple(parts)
        # The index first: there may be thousands of members whose objects were deleted.
        reader = self.parts.hour_reader(source, hour, self.parts.members(source, hour))
        again = {part.name: part for part in _map(lambda name: reader.read(name, keys), others) if part}
        if again:
            # By hour: a function that ends here continues with the next one.
            self.table.put_parts(source, {hour: list(again.values())})
        return tuple(again.get(part.name, part) for part in parts)

    def _distinct(
        self, period: Period, facts: Mapping[datetime, HourFacts], keys: tuple[str, ...]
    ) -> Mapping[str, tuple[int, ...]]:
        column = period.source.id_column
        if column is None:  # `needs_ids` says otherwise
            raise ValueError(period.source.source)
        source = period.source.source
        return joined(
            (distinct_bins(self.parts, source, column, hour, facts[hour].parts, keys=keys) for hour in period.hours),
            keys,
        )

    def _announce(self, folded: Sequence[Folded]) -> int:
        """Send and record the messages about states that are not announced; return their number."""
        due = [each for each in folded if each.state.announced < each.state.version]
        for start in range(0, len(due), _MAX_ENTRIES):
            group = due[start : start + _MAX_ENTRIES]
            lists = _map(self._list, group)
            self.put_changes([period_changed(each.state, uri) for each, uri in zip(group, lists, strict=True)])
            self.on_changed(group[0].period.source.source, [hour for each in group for hour in each.period.hours])
            _map(lambda each: self.table.put_announced(each.state), group)
        return len(due)

    def _list(self, folded: Folded) -> str | None:
        """Store the list of the files of a state that is known."""
        if folded.state.state is CountState.UNKNOWN:
            return None
        return save_list(folded.period, folded.state, folded.facts, reader=self.parts, bucket=self.exchange_bucket)


def _map(function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """Return the results of a function that waits for the cloud. Most calls have one item, and need no threads."""
    if len(items) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))


def _listed(objects: Iterable[StoredObject], facts: HourFacts) -> ListedHour:
    by_name, known = {name_of(item.uri): item for item in objects}, {part.name for part in facts.parts}
    members = {item.uri: item for item in by_name.values() if item.packed}
    return ListedHour([name for name in by_name if name not in known], members)


def _between(known: Coverage | None, covered: Coverage) -> set[datetime]:
    """Return the UTC hours that reports cover, and did not cover before."""
    if known is None:
        return set(hours_between(covered.first, covered.through))
    return {*hours_between(covered.first, known.first), *hours_between(known.through, covered.through)}


def _knows_coverage(state: PeriodState) -> bool:
    """Return whether a state has what the reports covered: one of an earlier version has only their numbers."""
    return state.covered is not None or state.sent is None


def _touched(covered: Coverage | None) -> list[datetime]:
    """Return the hours in which the time begins and ends."""
    return [instant.replace(minute=0, second=0, microsecond=0) for instant in covered or ()]
