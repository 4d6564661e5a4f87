"""A model of states: whatever is sent, restated, replaced, doubled and interrupted, DuckDB counts the same windows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from slackwater.runs.period import day_of, partition_of
from slackwater.runs.periods.changes import PeriodChanged
from slackwater.runs.periods.read_parts import place_of
from slackwater.sources.counts import value_of
from slackwater.state.completeness import CountState, total_counts
from slackwater.state.facts import HOUR, RejectedEvents, file_origin
from slackwater.state.fold import PeriodState
from slackwater.state.reports import new_report, window_at
from slackwater.state.rollup import rolled_up
from slackwater.storage import split_uri
from tests.fakes_receiver import MemoryFileCache, a_source, content_id, store_file
from tests.models import model_settings
from tests.state_counting import judged
from tests.state_world import CALLS, Fault, Row, World, hours_between

pytestmark = pytest.mark.unit

FIRST = datetime(2026, 3, 8, 4, tzinfo=UTC)
"""The clocks of New York change at 07:00: the local days of 7 and 8 March have 24 and 23 hours."""
HOURS = [FIRST + number * HOUR for number in range(4)]
FUTURE = datetime(3000, 1, 1, tzinfo=UTC)
MINUTES = [0, 4, 5, 29, 30, 31, 59]
ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")
COUNTS = [
    {"window": "5m"},
    {"window": "5m", "complete_percent": 60},
    {"window": "10m"},
    {"window": "1h"},
    {"window": "day"},
]
VALUES = [{}, {}, {"by": "region", "values": ["EU", "Süd"]}, {"by": "region", "values": ["EU"], "complete_percent": 60}]
REACHED = {CountState.COMPLETE, CountState.SURPLUS}
WORST_FIRST = [CountState.SHORT, CountState.UNKNOWN, CountState.SURPLUS, CountState.COMPLETE]

hours = st.sampled_from([*HOURS, *HOURS[:1] * 4, FUTURE])
rows = st.lists(
    st.tuples(
        st.sampled_from(MINUTES),
        st.sampled_from(["a", "b", "c", "d", None]),
        st.sampled_from(["EU", "EU", "Süd", "Mars", "other", None]),
    ),
    min_size=1,
    max_size=6,
    # The receiver stores no id twice in one object.
    unique_by=lambda row: row[1] or object(),
)
faults = st.one_of(
    st.builds(
        Fault,
        st.sampled_from(["none", "killed", "fails", "overtaken"]),
        st.sampled_from(CALLS),
        st.integers(1, 3),
        st.booleans(),
    ),
    # Another process computes the same hour meanwhile.
    st.builds(Fault, st.just("overtaken"), st.sampled_from(["put_state", "all_facts", "states"]), st.just(1)),
    # A read that is not consistent returns earlier states.
    st.builds(Fault, st.just("behind"), st.just("states"), st.just(1)),
)


def key_of(region: str | None, keys: tuple[str, ...]) -> str:
    """The key that counts an event of this region."""
    return f"region={region}" if f"region={region}" in keys else keys[-1]


class States(RuleBasedStateMachine):
    """A source in some hours."""

    world: World
    is_told: bool
    """Whether there is a message about all that happens. Otherwise a daily check follows, which hides lost updates."""

    @initialize(
        counts=st.sampled_from(COUNTS),
        values=st.sampled_from(VALUES),
        has_ids=st.booleans(),
        zone=st.sampled_from(ZONES[:2]),
        is_told=st.sampled_from([True, True, False]),
    )
    def define(self, counts: dict[str, Any], values: dict[str, Any], has_ids: bool, zone: str, is_told: bool) -> None:
        ids = {"event_id": "id"} if has_ids else {}
        fields = {"id": {"type": "string", "required": True}, "region": "string", "at": "timestamp"}
        timestamp = {"field": "at", "timezone": zone}
        source = a_source(counts={**counts, **values}, timestamp=timestamp, fields=fields, **ids)
        self.world, self.is_told = World(source, now=FIRST + timedelta(days=2)), is_told

    # What the receiver does

    @rule(hour=hours, rows=rows, is_lost=st.sampled_from([False, False, False, True]), old=st.booleans())
    def push(self, hour: datetime, rows: list[Row], is_lost: bool, old: bool) -> None:
        """A batch. The event of its object may be lost."""
        is_lost &= not self.is_told
        uri = self.world.write(hour, rows, f"{self.world.number:032x}-{len(rows)}", None, old=old)
        if not is_lost:
            self.world.send_event_of(uri)

    @rule(path=st.sampled_from(["one.csv", "two.csv"]), hour=hours, rows=rows, is_handled=st.booleans())
    def pull(self, path: str, hour: datetime, rows: list[Row], is_handled: bool) -> None:
        """A file, or its new content. The event of its object may be handled before the commit."""
        world, content, partition = self.world, str(self.world.number), partition_of(hour)
        later = MemoryFileCache()
        later.saved_contents, later.saved_entries = {**world.cache.saved_contents}, {**world.cache.saved_entries}
        [uri] = store_file(later, "things", path, content, [partition])
        place = place_of(split_uri(uri)[1])
        assert place is not None
        world.write(hour, rows, place[2], content_id(content))
        world.send_event_of(uri)
        if is_handled:
            world.handle_all()
        store_file(world.cache, "things", path, content, [partition])
        hours_of_files = {item.hour for item in world.objects if item.content}
        world.send_hours(hours_of_files | {at for content, _, times in world.rejected if content for at in times})

    @precondition(lambda self: self.world.cache.saved_contents and not self.is_told)
    @rule(data=st.data(), number=st.sampled_from([1, -1]))
    def remove(self, data: st.DataObject, number: int) -> None:
        """The partner removes a file of a content, or it is back: only the daily check notices."""
        content = data.draw(st.sampled_from(sorted(self.world.cache.saved_contents.items())))[1]
        if 0 <= content.removed + number <= content.files:
            self.world.cache.save(content.with_removed(number))

    def rejected(self, key: str, bins: list[int]) -> dict[str, tuple[int, ...]]:
        """The histogram of rejected events of one key."""
        return {each: tuple(bins) if each == key else (0,) * 12 for each in self.world.source.count_keys}

    @rule(
        data=st.data(),
        hour=st.sampled_from(HOURS),
        minutes=st.lists(st.sampled_from(MINUTES), max_size=3),
        unplaced=st.integers(0, 2),
    )
    def reject(self, data: st.DataObject, hour: datetime, minutes: list[int], unplaced: int) -> None:
        """Rejected events of a batch: those without a timestamp count in no window."""
        world = self.world
        world.number += 1
        bins = [sum(minute // 5 == number for minute in minutes) for number in range(12)]
        key = data.draw(st.sampled_from(world.source.count_keys))
        world.table.put_rejected(
            "things", {hour: RejectedEvents(f"batch{world.number}", self.rejected(key, bins), unplaced)}
        )
        world.rejected.append((None, key, [hour + timedelta(minutes=minute) for minute in minutes]))
        world.send_hours([hour])

    @precondition(lambda self: self.world.cache.saved_contents)
    @rule(data=st.data(), hour=st.sampled_from(HOURS))
    def reject_row(self, data: st.DataObject, hour: datetime) -> None:
        """A rejected row of a file, whose content readers see or not."""
        world = self.world
        content = data.draw(st.sampled_from(sorted(world.cache.saved_contents.items())))[1]
        origin = file_origin(content.id, content.current.digest) if content.current else ""
        key = data.draw(st.sampled_from(world.source.count_keys))
        if origin and ("things", hour, origin) not in world.table.rejected:
            world.table.put_rejected("things", {hour: RejectedEvents(origin, self.rejected(key, [1, *[0] * 11]), 0)})
            world.rejected.append((content.id, key, [hour]))
            world.send_hours([hour])

    @rule(data=st.data(), as_of=st.integers(0, 30), through=st.integers(-2, 30), names=st.integers(0, 4))
    def report(self, data: st.DataObject, as_of: int, through: int, names: int) -> None:
        """Counts, newer or older than those before: right, too few, too many, or only a time."""
        world, counts = self.world, dict[datetime, dict[str, int]]()
        starts = {window_at(hour + timedelta(minutes=minute), world.source) for hour in HOURS for minute in MINUTES}
        for start in data.draw(st.lists(st.sampled_from(sorted(starts)), max_size=names, unique=True)):
            keys = world.source.count_keys
            for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True)) if len(keys) > 1 else keys:
                real = sum(
                    start <= at < world.end_of(start) and key == key_of(region, keys)
                    for item in world.objects
                    for at, _, region in item.rows
                )
                number = max(0, real + data.draw(st.sampled_from([0, 0, 0, -1, 1, 2])))
                counts.setdefault(start, {})[key] = number
        self.put_report(counts, as_of, FIRST + timedelta(hours=through))

    def report_none(self, start: datetime, as_of: int) -> None:
        """A report that its first window has no events, which makes the silence before known."""
        self.put_report({start: dict.fromkeys(self.world.source.count_keys, 0)}, as_of, start + timedelta(minutes=5))

    def put_report(self, counts: dict[datetime, dict[str, int]], as_of: int, through: datetime) -> None:
        as_of_time = FIRST + timedelta(days=1, minutes=as_of)
        made = new_report(self.world.source, as_of=as_of_time, through=through, counts=counts, principal="push:acme")
        self.world.table.put_report(made)
        self.world.reports.append(made)
        self.world.send_hours({start.replace(minute=0) for start in counts})

    # What the function does

    @precondition(lambda self: self.world.queue)
    @rule(data=st.data(), fault=faults)
    def deliver_one(self, data: st.DataObject, fault: Fault) -> None:
        """SQS delivers one message; the others wait."""
        message = data.draw(st.sampled_from(self.world.queue))
        self.world.queue.remove(message)
        self.world.handle([message], fault)

    @precondition(lambda self: self.world.queue)
    @rule(data=st.data(), fault=faults, is_doubled=st.booleans())
    def deliver(self, data: st.DataObject, fault: Fault, is_doubled: bool) -> None:
        """SQS delivers some messages, in any order, and perhaps again later."""
        world = self.world
        chosen = data.draw(st.lists(st.sampled_from(range(len(world.queue))), min_size=1, max_size=6, unique=True))
        messages = [world.queue[index] for index in chosen]
        world.queue = [body for index, body in enumerate(world.queue) if index not in chosen]
        world.handle(messages, fault)
        if is_doubled:
            world.queue += messages

    @precondition(lambda self: not self.is_by_day)
    @rule(
        data=st.data(),
        rows=rows,
        as_of=st.integers(0, 30),
        method=st.sampled_from(["all_facts", "put_state"]),
        number=st.integers(1, 2),
    )
    def fail_one_of_two(self, data: st.DataObject, rows: list[Row], as_of: int, method: str, number: int) -> None:
        """A batch with an event of an hour, and a report of the next hour, which makes the silence before known.

        One of its two periods fails, and what is delivered again comes message by message.
        """
        world, hour = self.world, data.draw(st.sampled_from(HOURS[:-1]))
        self.push(hour, rows, is_lost=False, old=False)
        self.report_none(hour, as_of)
        # Only of an hour that has a state, a message about an object does not read what the reports cover.
        world.handle_all()
        self.push(hour, rows, is_lost=False, old=False)
        self.report_none(hour + HOUR, as_of + 1)
        messages, world.queue = world.queue, []
        world.handle(messages, Fault("fails", method, number))
        again, world.queue = world.queue, []
        for message in again:
            world.handle([message])

    # What is true in the end

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if not self.is_told:
            self.world.send_hours([*HOURS, FUTURE], listing=True)
        self.world.handle_all()
        assert not self.world.queue
        for start in self.periods():
            self.check_windows(start)
        if not self.is_by_day:
            for zone in ZONES:
                for local in (date(2026, 3, 7), date(2026, 3, 8)):
                    self.check_day(local, zone)
        self.check_changes()

    @property
    def is_by_day(self) -> bool:
        return self.world.source.counts is not None and self.world.source.counts.window == "day"

    def periods(self) -> set[datetime]:
        """The starts of the periods that anything was sent about."""
        world = self.world
        touched = {item.hour for item in world.objects} | {
            at.replace(minute=0) for *_, times in world.rejected for at in times
        }
        touched |= {start.replace(minute=0) for report in world.reports for start in report.counts}
        return {window_at(hour, world.source) if self.is_by_day else hour for hour in touched}

    def check_windows(self, start: datetime) -> None:
        world = self.world
        end = world.end_of(start) if self.is_by_day else start + HOUR
        state = world.table.stored["things", start]
        raw, distinct = (world.counted(start, end, is_distinct=is_distinct) for is_distinct in (False, True))
        objects = [item.hour for item in world.counted_objects(start, end)]
        reached = [window for window in raw.windows if window[-1] in REACHED]
        if not world.source.id_column or len(objects) == len(set(objects)):
            possible = [raw]
        elif raw.is_known and reached:
            possible = [distinct]
        else:
            # Ids were read for an earlier report, or they were not.
            hidden = [(*row[:-1], CountState.UNKNOWN) if row in reached else row for row in raw.windows]
            keys = {key: CountState.UNKNOWN if reached and each in REACHED else each for key, each in raw.keys.items()}
            possible = [raw._replace(windows=hidden, keys=keys), distinct]
        *stored, is_reported = zip(*state.windows, strict=True)
        assert (dict(state.keys), [*zip(*stored, strict=True)]) in [each[:2] for each in possible]
        # Also while ids that may occur twice hide the state.
        assert [*is_reported] == [row[-1] is not CountState.UNKNOWN for row in raw.windows]
        assert state.state is min(dict(state.keys).values(), key=WORST_FIRST.index)
        assert state.announced == state.version

    def check_day(self, local: date, zone: str) -> None:
        """Local days of 23 and 24 hours, and half hours, are sums of windows: each hour counts by itself."""
        day, source = day_of(local, zone), self.world.source
        states = self.world.table.stored.values()
        periods = rolled_up(source, states, day.start, day.end)
        inside = [
            window for state in states for window in state.windows if day.start < window.end and window.start < day.end
        ]
        assert sum(period.stored for period in periods) == sum(window.stored for window in inside)
        found = set()
        for hour in hours_between(day.start, day.end):
            for key in source.count_keys:
                windows = [each for each in inside if each.start.replace(minute=0) == hour and each.key == key]
                is_known = windows and all(window.state is not CountState.UNKNOWN for window in windows)
                sent, present = (
                    sum(window.sent or 0 for window in windows),
                    sum(each.stored + each.rejected for each in windows),
                )
                found.add(judged(source, sent, present) if is_known else CountState.UNKNOWN)
        assert total_counts(source, periods).state is min(found, key=WORST_FIRST.index)

    def check_changes(self) -> None:
        """The newest message about a period is its state, with exactly its files; runs that wait were looked at."""
        newest: dict[datetime, PeriodChanged] = {}
        for change in self.world.changes:
            before = newest.get(change.start)
            assert before is None or before.version != change.version or before == change
            if before is None or change.version >= before.version:
                newest[change.start] = change
        for (_, start), state in self.world.table.stored.items():
            self.check_change(newest.get(start), state)

    def check_change(self, change: PeriodChanged | None, state: PeriodState) -> None:
        states = [state.state, *(window.state for window in state.windows)]
        if change is None:
            assert set(states) == {CountState.UNKNOWN}
            return
        assert [change.state, *(window.state for window in change.windows)] == states
        values = [(each.value, each.state, each.missing, each.surplus) for each in change.values]
        if state.state is not CountState.UNKNOWN and self.world.source.counts and self.world.source.counts.by:
            assert values == [(value_of(each.key), each.state, each.missing, each.surplus) for each in state.values]
        assert state.start in self.world.woken
        if state.state is not CountState.UNKNOWN:
            assert (change.sent, change.stored, change.rejected) == (state.sent, state.stored, state.rejected)
            listed = json.loads(self.world.store.get(change.files or ""))["files"]
            names = {f"{item.name}.parquet" for item in self.world.counted_objects(state.start, state.end)}
            assert {item["uri"].rpartition("/")[2] for item in listed} == names


TestStates = States.TestCase
TestStates.settings = model_settings(examples=60, steps=25)
