"""A model of two pipelines, of which one reads published days of the other: whatever happens, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import date as day_date
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from slackwater.errors import SlackwaterError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.record import DayRecord, RunRecord, RunState
from tests.fakes_check import NOW
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process
from tests.late_world import LateWorld
from tests.models import model_settings

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

DATES = ("2013-03-11", "2013-03-12")

DAYS = ((-1, 0), (0, 0), (-2, -1))
"""Of the table that the second pipeline reads."""

dates = st.sampled_from(DATES)
pipelines = st.sampled_from(("first", "second"))
outcomes = st.sampled_from(("published", "published", "failed", "failed after the commit"))
faults = st.one_of(st.builds(Process), st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)))


class Chain(RuleBasedStateMachine):
    """The second pipeline reads published days of the first one, which reads pushed objects."""

    def __init__(self) -> None:
        super().__init__()
        self.first = LateWorld()
        self.second = self.first

    @initialize(
        on_change=st.sampled_from(("auto", "auto", "hold", "notify", "ignore")),
        on_definition=st.sampled_from(("keep", "keep", "rerun")),
    )
    def publish(self, on_change: Any, on_definition: str) -> None:
        self.on_change, self.on_definition = on_change, on_definition
        self.table = TableInput(table=self.first.pipeline, days=(-1, 0), missing="empty", on_change=on_change)
        self.second = self.first.reader("weekly", self.table)
        self.second.set_late(on_definition=on_definition)
        for date in DATES:
            self.push(date, "a", 100)
            self.first.run_day(date)
            self.second.run_day(date)

    def world(self, name: str) -> LateWorld:
        return self.first if name == "first" else self.second

    @rule(date=dates, name=st.sampled_from("bcd"), rows=st.integers(1, 30))
    def push(self, date: str, name: str, rows: int) -> None:
        self.first.add("weather", date, "17", name=name, rows=rows)

    @rule(date=dates, number=st.integers(0, 9))
    def remove(self, date: str, number: int) -> None:
        prefix = f"s3://raw/raw/source=weather/date={date}/"
        present = sorted(uri for uri in self.first.store.objects if uri.startswith(prefix))
        self.first.store.delete(present[number % len(present)] for _ in present[:1])

    @rule(hours=st.sampled_from((0.2, 2, 20)))
    def wait(self, hours: float) -> None:
        # The days stay in the window: `test_late_model` has days before it.
        if self.first.time + timedelta(hours=hours) < NOW + timedelta(days=2):
            self.first.time += timedelta(hours=hours)

    @rule(name=pipelines, date=dates, outcome=outcomes, force=st.booleans(), process=faults)
    def run(self, name: str, date: str, outcome: str, force: bool, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world(name).run_day(date, outcome, process, force=force)

    @rule(name=pipelines, date=dates, at=st.integers(1, 6), order=st.lists(st.integers(0, 1), min_size=1, max_size=50))
    def take_over_a_stopped_execution(self, name: str, date: str, at: int, order: list[int]) -> None:
        self.world(name).take_over(date, at, order)

    @rule(date=dates, to=st.integers(1, 3), process=faults)
    def roll_back(self, date: str, to: int, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.first.run_day(date, "published", process, rollback=to, reason="r")

    @rule(days=st.sampled_from(DAYS))
    def deploy(self, days: tuple[int, int]) -> None:
        """The second pipeline reads more, fewer or other days."""
        self.second.define(tables={"days": self.table.model_copy(update={"days": days})})

    @rule(name=pipelines, date=dates, is_released=st.booleans())
    def decide(self, name: str, date: str, is_released: bool) -> None:
        holds, pipeline = self.world(name).hold_decisions(), self.world(name).pipeline
        with suppress(SlackwaterError):
            if is_released:
                self.world(name).run_day(date, force=holds.release(pipeline, date, reason="r"))
            else:
                holds.reject(pipeline, date, reason="r")

    @rule(name=pipelines, outcome=outcomes, process=faults)
    def monitor(self, name: str, outcome: str, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world(name).monitor(outcome=outcome, process=process)

    def teardown(self) -> None:
        if self.second is self.first:
            return
        self.first.time += timedelta(hours=25)
        for _ in range(12):
            before = self.state()
            self.first.monitor()
            self.second.monitor()
            self.first.time += timedelta(hours=2)
            if self.state() == before:
                break
        else:
            raise AssertionError("the checks do not come to rest")
        for world in (self.first, self.second):
            self.each_version_is_published_and_notified_once(world)
        for date in DATES:
            self.the_second_pipeline_has_the_present_days(date)

    def state(self) -> tuple[Any, ...]:
        days = [day.model_copy(update={"version": 0}) for day in self.first.table.by_day.values()]
        worlds = self.first, self.second
        return days, [(dict(world.warehouse.days), len(world.topic.sent), len(world.ledger.rows)) for world in worlds]

    def each_version_is_published_and_notified_once(self, world: LateWorld) -> None:
        sent = [(document["date"], document["attempt_after"]) for document in world.documents("attempt_after")]
        assert len(sent) == len(set(sent)), "a message was sent twice"
        runs = {(run.run.date, run.run.attempt): run for run in world.table.runs(world.pipeline)}
        published = {key for key, run in runs.items() if run.state is RunState.PUBLISHED}
        assert published <= world.warehouse.versions.keys()
        for date in DATES:
            day = world.table.day(world.pipeline, date)
            assert not day.notification_due
            assert (date, day.published.run.attempt) in published
            if not day.hold:
                assert world.warehouse.days[date] == world.warehouse.versions[date, day.published.run.attempt]
            rows = [row for row in world.ledger.rows if row.attempt and str(row.date) == date]
            versions = [runs[key] for key in sorted(published) if key[0] == date]
            for before, after in pairwise(versions):
                if not after.rollback:
                    taken_in = {(row.uri, row.etag) for row in rows if row.attempt == after.run.attempt}
                    assert taken_in == self.new_inputs(world, before, after), (world.pipeline, date)

    def new_inputs(self, world: LateWorld, before: RunRecord, after: RunRecord) -> set[tuple[str, str]]:
        """Return what the ledger must have of a run: new inputs and lost ones of both definitions, and a new one."""
        old, new = (set(world.manifest_content(run.run.manifest)) for run in (before, after))
        both = [world.definitions[run.definition] for run in (before, after)]
        replaced = {uri for uri, _ in old} & {uri for uri, _ in new}
        changed = (new - old) | {item for item in old - new if item[0] not in replaced}
        shared = {item for item in changed if all(is_read(each, after.run.date, item[0]) for each in both)}
        return shared | ({("", after.definition)} if before.definition != after.definition else set())

    def the_second_pipeline_has_the_present_days(self, date: str) -> None:
        """What the run of the second pipeline would read now, from the records of the first one, is what it has."""
        day, present = self.second.table.day("weekly", date), dict[str, tuple[str, int]]()
        run = self.second.table.run("weekly", date, day.published.run.attempt)
        digest = self.second.project.written_digest("weekly")
        definitions = [self.second.definitions[each] for each in (run.definition, digest)]
        for each in DATES:
            publication = self.first.table.day(self.first.pipeline, each).published.publication
            present[f"{publication.table}/date={each}"] = publication.content, publication.rows
        read = {uri: (etag, rows) for (uri, etag), rows in self.second.warehouse.days[date].items()}
        present, read = (
            {uri: item for uri, item in items.items() if all(is_read(each, date, uri) for each in definitions)}
            for items in (present, read)
        )
        has_lost = any(uri not in present or present[uri][1] < rows for uri, (_, rows) in read.items())
        differs = present.keys() != read.keys() or any(present[uri][0] != etag for uri, (etag, _) in read.items())
        if day.hold:
            causes = {"auto": has_lost, "hold": has_lost or differs, "notify": False, "ignore": False}
            assert day.hold.rule in {"failed", "audit"} or causes[self.on_change], day.hold
        elif self.on_change == "notify":
            self.people_know_the_changed_days(day, present, read)
        elif differs and self.on_change != "ignore":
            assert day.resolution, (date, read, present)
            assert day.resolution.action == "rejected", (date, read, present)
        if not day.hold and self.on_definition == "rerun" and run.definition != digest:
            assert day.resolution, (date, "has an earlier definition")
            assert day.resolution.action == "rejected", (date, "has an earlier definition")

    def people_know_the_changed_days(
        self, day: DayRecord, present: Mapping[str, tuple[str, int]], read: Mapping[str, tuple[str, int]]
    ) -> None:
        """Each new version of a day that was read is in one message, and nothing runs because of it."""
        messages = [item for item in self.second.documents("changed_days") if item["date"] == day.date]
        named: dict[str, list[str]] = {}
        for change in (change for message in messages for change in message["changes"]):
            named.setdefault(change["day"].replace(f"{self.first.pipeline} ", "date="), []).append(change["version"])
        assert all(one != other for versions in named.values() for one, other in pairwise(versions)), named
        for uri in present.keys() | read.keys():
            version, before = (each[uri][0] if uri in each else "" for each in (present, read))
            is_known = version in named.get(uri.rpartition("/")[2], []) or day.date in self.second.table_alarms
            assert version == before or is_known, (day.date, uri, named)


def is_read(definition: Pipeline, date: str, uri: str) -> bool:
    """Whether the pipeline reads the input on that day: each object, and the days that its table names."""
    if not definition.tables:
        return True
    first, last = definition.published_tables["days"].days
    return first <= (day_date.fromisoformat(uri.rpartition("date=")[2]) - day_date.fromisoformat(date)).days <= last


TestChain = Chain.TestCase
TestChain.settings = model_settings(examples=40, steps=15)
