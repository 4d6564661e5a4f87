"""A model of late data: whatever arrives, vanishes, runs, crashes and is decided, in any order, ends as documented."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from slackwater.errors import SlackwaterError
from slackwater.late.check.decision import LateDecision
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.record import RunState
from tests.fakes_check import PIPELINE
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process, Turns
from tests.late_world import OUTCOMES, RUN_USD, LateWorld

pytestmark = pytest.mark.unit

DATES = ("2013-03-11", "2013-03-12", "2013-03-13")
"""Two finished days, and the current one."""
SIZES = (3, 9, 30, 400)
"""Rows of an object: the thresholds of flights are 1 percent and 10 rows, and any rows of weather are late."""

LIMITS = ({}, {}, {"max_reruns_per_day": 1}, {"budget_per_day": 1.5 * RUN_USD}, {"worth_per_percent": RUN_USD / 20})

dates, sizes, names = st.sampled_from((*DATES[:1] * 4, *DATES)), st.sampled_from(SIZES), st.sampled_from("bcdefg")
outcomes = st.sampled_from(("published", "published", *OUTCOMES))
faults = st.one_of(
    st.builds(Process),
    st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)),
    # The notification of a monitoring that runs one day again.
    st.builds(Process, at=st.integers(12, 20), fault=st.sampled_from(FAULTS)),
)

works = st.tuples(
    st.sampled_from(("monitor", "monitor", "monitor", "run", "release", "reject", "roll back")),
    st.sampled_from(("published", "published", *OUTCOMES)),
    faults,
)


class InlinePool:
    """A pool that calls its functions at once, so that the order of the writes is always the same."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([function(*arguments) for arguments in zip(*items, strict=True)])


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    for module in ("late.check.checker", "runs.inputs.listing"):
        monkeypatch.setattr(f"slackwater.{module}.ThreadPoolExecutor", InlinePool)


class LateData(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LateWorld()
        self.removed: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.withdrawn: set[str | None] = set()
        """Objects of files that the partner does not list any more."""
        self.ever_withdrawn: set[str] = set()
        """Paths of files that the partner has not listed for some time."""
        self.files: dict[str, str] = {}
        """Paths of fetched files, by object."""
        self.recorded: set[tuple[str, int]] = set()
        """The versions that were ever the published one."""
        self.started: dict[str, tuple] = {}
        """The executions that are running a day."""
        self.is_interrupted = False
        """Whether a monitoring had a fault."""
        self.decided: set[tuple[str, int]] = set()
        """The published versions, by date and attempt, about which a person has made a decision."""
        self.released: set[tuple[str, frozenset[str]]] = set()
        """The inputs with which a person has released a day."""

    @initialize(on_removed=st.sampled_from(("keep", "hold", "drop")), limits=st.sampled_from(LIMITS))
    def publish_the_finished_days(self, on_removed: str, limits: dict[str, float]) -> None:
        self.on_removed, self.limits = on_removed, limits
        self.world.set_late(on_removed={"flights": on_removed}, **limits)
        for date in DATES[:2]:
            self.fetch(date, "a", 1000)
            self.push(date, "a", 1000)
            self.pull(date, "a", 1000)
            self.world.run_day(date)
        self.observe()

    # What the sources do

    @rule(date=dates, name=names, rows=sizes)
    def push(self, date: str, name: str, rows: int) -> None:
        self.world.add("weather", date, "17", name=f"{name}-{rows}", rows=rows)

    @rule(date=dates, name=names, rows=sizes)
    def pull(self, date: str, name: str, rows: int) -> None:
        """A file arrives, or replaces the one of the same name: its objects are named by their content."""
        prefix, store = f"s3://raw/raw/source=flights/date={date}/hour=18/{name}-", self.world.store
        store.delete([uri for uri in store.objects if uri.startswith(prefix)])
        store.put(f"{prefix}{rows}.parquet", b"x" * rows, metadata={"rows": str(rows), "file": f"{name}.csv"})

    @rule(date=dates, name=st.sampled_from("aabc"), rows=sizes)
    def fetch(self, date: str, name: str, rows: int) -> None:
        """A pull fetches a file, or its new content."""
        self.withdrawn.discard(self.world.fetched.get(f"{name}-{date}.csv"))
        path = f"{name}-{date}.csv"
        self.files[self.world.fetch("flights", date, path, rows)] = path

    @rule(date=dates, name=st.sampled_from("abc"), is_removed=st.sampled_from((True, True, False)))
    def withdraw(self, date: str, name: str, is_removed: bool) -> None:
        """A pull records that the partner does not list a file any more, or lists it again."""
        path = f"{name}-{date}.csv"
        if uri := self.world.fetched.get(path):
            self.world.withdraw("flights", path, is_removed=is_removed)
            (self.withdrawn.add if is_removed else self.withdrawn.discard)(uri)
            self.ever_withdrawn.add(path)

    @rule(date=dates, rows=sizes)
    def fetch_and_withdraw(self, date: str, rows: int) -> None:
        self.fetch(date, "a", rows)
        self.withdraw(date, "a", True)

    @rule(date=dates, number=st.integers(0, 9))
    def remove(self, date: str, number: int) -> None:
        if present := sorted(self.raw(date)):
            uri = present[number % len(present)]
            body, metadata, _ = self.world.store.objects.pop(uri)
            self.removed[uri] = body, metadata

    @rule(date=dates, number=st.integers(0, 9))
    def remove_and_run(self, date: str, number: int) -> None:
        self.remove(date, number)
        self.run(date, "published", False, Process())

    @precondition(lambda self: self.removed)
    @rule()
    def restore(self) -> None:
        uri, (body, metadata) = self.removed.popitem()
        if uri in self.files and uri not in self.world.fetched.values():
            return  # The file has got another content.
        # A file has one content: the objects of an earlier one do not return next to those of a later one.
        if "source=flights" in uri:
            content = uri.rpartition("-")[0]
            self.world.store.delete([other for other in self.world.store.objects if other.startswith(f"{content}-")])
        self.world.store.put(uri, body, metadata=metadata)

    @rule(hours=st.sampled_from((0.2, 0.5, 0.7, 2, 2, 5, 20, 20, 170)))
    def wait(self, hours: float) -> None:
        self.world.time += timedelta(hours=hours)

    # What people and schedules do

    @rule(date=dates, outcome=outcomes, force=st.booleans(), process=faults)
    def run(self, date: str, outcome: str, force: bool, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.run_day(date, outcome, process, force=force)
        self.observe()

    @rule(date=dates)
    def start(self, date: str) -> None:
        """An execution freezes its inputs, and is still running."""
        if date in self.started:
            return
        execution = self.world.execution("pipeline")
        with suppress(SlackwaterError):
            run, _ = self.world.freeze_day(date, execution.__enter__(), Process())
            if run:
                self.started[date] = execution, run
                return
        execution.__exit__(None, None, None)

    @rule(date=dates, outcome=outcomes, process=faults)
    def end(self, date: str, outcome: str, process: Process) -> None:
        if date in self.started:
            execution, run = self.started.pop(date)
            with suppress(SlackwaterError, Crashed):
                self.world.finish(run, outcome, process)
            execution.__exit__(None, None, None)
            self.observe()

    @rule(date=dates, number=st.integers(0, 3), outcome=st.sampled_from(("published", OUTCOMES[-1])), process=faults)
    def roll_back(self, date: str, number: int, outcome: str, process: Process) -> None:
        versions = sorted(attempt for each, attempt in self.recorded if each == date)[:-1]
        with suppress(SlackwaterError, Crashed):
            to = versions[number % len(versions)] if versions else 1
            self.world.run_day(date, outcome, process, rollback=to, reason="r")
        self.observe()

    @rule(date=dates, run=st.booleans())
    def release(self, date: str, run: bool) -> None:
        with suppress(SlackwaterError):
            force = self.world.holds.release(PIPELINE, date, reason="r")
            self.decide(date)
            self.released.add((date, frozenset(self.raw(date))))
            # Without the run, the next check starts it.
            if run or force:
                self.world.run_day(date, force=force)
        self.observe()

    @rule(date=dates)
    def reject(self, date: str) -> None:
        with suppress(SlackwaterError):
            self.world.holds.reject(PIPELINE, date, reason="r")
            self.decide(date)

    def decide(self, date: str) -> None:
        published = self.world.table.day(PIPELINE, date).published
        self.decided.add((date, published.run.attempt if published else 0))
        if made := self.world.table.day(PIPELINE, date).resolution:
            self.decided.add((date, made.attempt))

    @rule(outcome=outcomes, process=faults, one=st.none() | dates, arrives=st.none() | st.tuples(dates, names, sizes))
    def monitor(self, outcome: str, process: Process, one: str | None, arrives: tuple[str, str, int] | None) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.monitor(
                dates=[one] if one else None, outcome=outcome, process=process,
                meanwhile=lambda: self.push(*arrives) if arrives else None,
            )  # fmt: skip
        self.is_interrupted |= 0 < process.at <= process.writes
        self.observe()

    @rule(date=dates, name=names, rows=sizes, process=faults)
    def push_and_monitor(self, date: str, name: str, rows: int, process: Process) -> None:
        self.push(date, name, rows)
        self.monitor("published", process, None, None)

    @rule(date=dates, name=names, rows=sizes, process=faults)
    def pull_and_monitor(self, date: str, name: str, rows: int, process: Process) -> None:
        self.pull(date, name, rows)
        self.monitor("published", process, None, None)

    @rule(date=dates, works=st.tuples(works, works), order=st.lists(st.integers(0, 1), min_size=1, max_size=50))
    def do_two_things_at_once(self, date: str, works: Any, order: list[int]) -> None:
        turns = Turns(order)
        for number, (*_, process) in enumerate(works):
            process.turns, process.number = turns, number
        turns.run(*(partial(self.work, date, *work) for work in works))
        self.is_interrupted |= any(0 < process.at <= process.writes for *_, process in works)
        self.observe()

    def work(self, date: str, kind: str, outcome: str, process: Process) -> None:
        world = self.world
        if kind == "monitor":
            world.monitor(outcome=outcome, process=process)
        elif kind == "run":
            world.run_day(date, outcome, process, force=True)
        elif kind == "roll back":
            world.run_day(date, "published", process, rollback=1, reason="r")
        elif kind == "release":
            try:
                force = world.hold_decisions(process).release(PIPELINE, date, reason="r")
            finally:
                # A process that ends may have recorded the decision before.
                self.decide(date)
                made = world.table.day(PIPELINE, date).resolution
                if made and made.action == "released":
                    self.released.add((date, frozenset(self.raw(date))))
            world.run_day(date, outcome, process, force=force)
        else:
            try:
                world.hold_decisions(process).reject(PIPELINE, date, reason="r")
            finally:
                self.decide(date)

    # What is true then

    def observe(self) -> None:
        days = self.world.table.by_day.values()
        self.recorded |= {(day.date, day.published.run.attempt) for day in days if day.published}

    def teardown(self) -> None:
        world = self.world
        for execution, _ in self.started.values():
            execution.__exit__(None, None, None)
        assert not world.executions.running
        world.time += timedelta(hours=25)
        for _ in range(12):
            before = self.state()
            is_deferred = any(day.decision is LateDecision.DEFER for day in world.monitor().days)
            world.time += timedelta(hours=12 if is_deferred else 2)
            if self.state() == before and not is_deferred:
                break
        else:
            raise AssertionError("the checks do not come to rest")
        self.observe()
        first = (world.time.date() - timedelta(days=7)).isoformat()
        self.each_day_has_its_inputs(first)
        self.no_version_is_lost()
        self.nothing_is_lost_without_a_decision()
        self.people_know_each_version()
        self.the_ledger_has_each_late_input(first)
        self.the_ledger_has_each_effect()
        self.the_limits_hold()

    def state(self) -> tuple:
        world = self.world
        days = [day.model_copy(update={"version": 0}) for day in world.table.by_day.values()]
        return days, dict(world.warehouse.days), len(world.topic.sent), len(world.ledger.rows), len(world.alarms)

    def raw(self, date: str) -> dict[str, int]:
        """The present inputs of a day: their rows, by URI."""
        left_out = () if self.on_removed == "keep" else self.withdrawn
        return {
            uri: int(item[1]["rows"])
            for uri, item in self.world.store.objects.items()
            if uri.startswith("s3://raw/") and f"date={date}/" in uri and uri not in left_out
        }

    def each_day_has_its_inputs(self, first: str) -> None:
        for date in DATES:
            day = self.world.table.day(PIPELINE, date)
            if day.published is None or date < first:
                continue
            published = self.world.warehouse.days[date]
            if day.hold:
                recorded = self.world.manifest_content(day.published.run.manifest)
                is_lost = bool(
                    self.lost({uri: rows for (uri, _), rows in recorded.items()}, self.raw(date), self.dropped())
                )
                assert is_lost or day.hold.rule in {"audit", "failed", "rolled_back"}, day.hold
                continue
            assert published == self.world.warehouse.versions[date, day.published.run.attempt], date
            content, present = {uri: rows for (uri, _), rows in published.items()}, self.raw(date)
            if content != present and not self.is_ignored(content, present):
                made = day.resolution
                assert made, (date, content, present)
                assert (made.action, made.attempt) == ("rejected", day.published.run.attempt), date

    def no_version_is_lost(self) -> None:
        world = self.world
        records = {(run.run.date, run.run.attempt): run for run in world.table.runs(PIPELINE)}
        published = {key for key, run in records.items() if run.state is RunState.PUBLISHED}
        assert self.recorded <= published
        for key in published:
            run = records[key]
            assert world.manifest_content(run.run.manifest) == world.warehouse.versions[key]
            assert run.publication.rows == len(world.warehouse.versions[key])
        for day in world.table.by_day.values():
            assert {attempt for date, attempt in records if date == day.date} == set(range(1, day.attempts + 1))
            running = {
                attempt for (date, attempt), run in records.items() if (date, run.state) == (day.date, "running")
            }
            assert running <= ({day.active.run.attempt} if day.active else set())
            assert day.active is None or not world.executions.is_running(day.active.execution)

    def nothing_is_lost_without_a_decision(self) -> None:
        """Only a person publishes a day with fewer inputs, or other rows than those of a rollback."""
        for date in DATES:
            runs = [run for run in self.world.table.runs(PIPELINE, date) if run.state is RunState.PUBLISHED]
            for before, after in pairwise(runs):
                if after.rollback:
                    continue
                old, new = (
                    {uri: rows for (uri, _), rows in self.world.manifest_content(run.run.manifest).items()}
                    for run in (before, after)
                )
                is_drop = self.on_removed == "drop"
                dropped = {uri for uri, file in self.files.items() if is_drop and file in self.ever_withdrawn}
                assert not self.lost(old, new, dropped) or (date, frozenset(new)) in self.released, (
                    date,
                    after.run.attempt,
                )
                assert not before.rollback or (date, before.run.attempt) in self.decided, (date, after.run.attempt)

    def people_know_each_version(self) -> None:
        world = self.world
        documents = [json.loads(message["document"]) for message in world.topic.sent]
        sent = [(document["date"], document["attempt_after"]) for document in documents]
        assert len(sent) == len(set(sent)), "a message was sent twice"
        for day in world.table.by_day.values():
            if day.published is None:
                continue
            seen = [attempt for date, attempt in [*sent, *world.alarms] if date == day.date]
            runs = world.table.runs(PIPELINE, day.date)
            first = min(run.run.attempt for run in runs if run.state is RunState.PUBLISHED)
            assert not day.notification_due
            known, versions = max(seen, default=first), world.warehouse.versions
            assert versions[day.date, known] == versions[day.date, day.published.run.attempt], day.date

    def the_ledger_has_each_late_input(self, first: str) -> None:
        world = self.world
        expected: Counter[tuple] = Counter()
        for date in DATES:
            runs = [run for run in world.table.runs(PIPELINE, date) if run.state is RunState.PUBLISHED]
            for before, after in pairwise(runs):
                # A rollback reads no inputs.
                if not after.rollback:
                    changes = self.changes(before.run.manifest, after.run.manifest)
                    expected.update((date, after.run.attempt, *change) for change in changes)
            read = world.manifest_content(runs[-1].run.manifest) if runs else {}
            missing = self.raw(date).keys() - {uri for uri, _ in read}
            day = world.table.day(PIPELINE, date)
            # No check lists the inputs of a day that was rolled back.
            if runs and date >= first and not (day.hold and day.hold.rule == "rolled_back"):
                assert missing <= {row.uri for row in world.ledger.rows if row.attempt is None}, date
        rows = world.ledger.rows
        taken_in = Counter((str(row.date), row.attempt, row.uri, row.etag, row.change) for row in rows if row.attempt)
        assert taken_in == expected
        handlings: dict[tuple, list[tuple]] = {}
        for row in sorted(rows, key=lambda row: row.decided_at):
            handlings.setdefault((row.date, row.key), []).append((row.decision, row.rule, row.attempt))
        assert all(one != other for each in handlings.values() for one, other in pairwise(each))

    def the_ledger_has_each_effect(self) -> None:
        """A run has the effect of its version, if it was ever compared, and whether people got a message about it."""
        world, compared = self.world, set()
        for uri in world.store.objects:
            if uri.startswith("s3://exchange/comparisons/") and uri.endswith("/comparison.json"):
                date, pair = uri.split("/")[-3:-1]
                before, after = map(int, pair.split("-"))
                compared.add((date, before, after))
        documents = [json.loads(message["document"]) for message in world.topic.sent]
        sent = {(document["date"], document["attempt_after"]) for document in documents}
        for row in world.ledger.rows:
            date, attempt = str(row.date), row.attempt
            if attempt is None:
                assert (row.rows_differing, row.notified) == (None, False)
                continue
            befores = [before for each, before, after in compared if (each, after) == (date, attempt)]
            versions = world.warehouse.versions
            differing = len(versions[date, max(befores)].keys() ^ versions[date, attempt].keys()) if befores else None
            assert row.rows_differing == differing, row
            assert row.notified <= ((date, attempt) in sent), row
            # After an interruption, the id of a message that was sent may be unknown.
            assert row.notified == ((date, attempt) in sent) or self.is_interrupted, row

    def lost(self, before: Mapping[str, int], now: Mapping[str, int], dropped: Container[str | None]) -> list[str]:
        """Return the objects that are gone, unless they are dropped or their file has other ones with as many rows."""

        def rows_of_file(uri: str) -> int:
            file = self.file(uri)
            return sum(rows for each, rows in now.items() if "source=flights" in uri and self.file(each) == file)

        gone = before.keys() - now.keys()
        return [uri for uri in gone if uri not in dropped and rows_of_file(uri) < before[uri]]

    def dropped(self) -> set[str]:
        """Return the objects of files that the partner has removed, also of former contents, if they are dropped."""
        withdrawn = {self.files[uri] for uri in self.withdrawn if uri in self.world.store.objects}
        return {uri for uri, file in self.files.items() if self.on_removed == "drop" and file in withdrawn}

    def file(self, uri: str) -> str:
        return self.files.get(uri) or uri.rpartition("-")[0]

    def is_ignored(self, content: Mapping[str, int], present: Mapping[str, int]) -> bool:
        """Whether nothing is lost, and late and dropped rows are below the thresholds or not worth a run."""
        dropped = self.dropped()
        changed = {uri: content[uri] for uri in content.keys() - present.keys() if uri in dropped}
        changed |= {uri: present[uri] for uri in present.keys() - content.keys()}

        def rows(source: str, objects: Mapping[str, int]) -> int:
            return sum(rows for uri, rows in objects.items() if f"source={source}/" in uri)

        late = {source: rows(source, changed) for source in ("flights", "weather") if rows(source, changed)}
        before = {source: rows(source, content) for source in late}
        is_below = "weather" not in late and late.get("flights", 0) < min(10, before.get("flights", 1000) / 100)
        worth = self.limits.get("worth_per_percent", 0)
        is_worthless = all(before[source] and 100 * late[source] / before[source] * worth < RUN_USD for source in late)
        return not self.lost(content, present, dropped) and (is_below or bool(worth and is_worthless))

    def the_limits_hold(self) -> None:
        if self.limits.keys() & {"max_reruns_per_day", "budget_per_day"}:
            started = Counter(calendar_day for calendar_day, *_ in self.world.late_reruns)
            assert max(started.values(), default=0) <= 1, started

    def changes(self, before: str, after: str) -> list[tuple[str, str, str]]:
        """The late inputs between two manifests, by URI and etag, and how each has changed."""
        old, new = (
            {(item.uri, item.etag): item.file for item in InputManifest.model_validate_json(text).objects}
            for text in (self.world.store.get(uri) for uri in (before, after))
        )
        gone, come = old.keys() - new.keys(), new.keys() - old.keys()
        changed = {old[key] for key in gone} & {new[key] for key in come} - {None}
        return [(*key, "changed" if new[key] in changed else "added") for key in come] + [
            (*key, "removed") for key in gone if old[key] not in changed
        ]


TestLateData = LateData.TestCase
TestLateData.settings = settings(
    derandomize=True, max_examples=120, stateful_step_count=25, deadline=None, print_blob=False
)
