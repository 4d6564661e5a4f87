"""A model of two pipelines, of which one reads published days of the other: whatever happens, in any order."""

from __future__ import annotations

from collections import Counter
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
from slackwater.late.entry import DEFINITION
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.record import DayRecord, RunRecord, RunState
from slackwater.state.verdicts import Subject, new_verdict
from tests.fakes_check import NOW
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process
from tests.late_waiting import Lacks, ScheduledRuns
from tests.late_world import LateWorld, run_twice
from tests.models import model_settings

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

DATES = ("2013-03-11", "2013-03-12")
PRESENT = "2013-03-13"
"""The day that neither pipeline has published in the beginning."""

TABLES = (
    {"days": (-1, 0)},
    {"days": (0, 0)},
    {"days": (-2, -1)},
    {"days": (-1, 0), "again": (0, 0)},
    {"days": (0, 0), "again": (-1, 0)},
    {"again": (-1, 0)},
    {},
)
"""The days of the first pipeline that the second one reads, by the name of the table."""

Input = tuple[str, str]
"""The name with which a pipeline reads an object, and its URI."""

dates = st.sampled_from(DATES)
pipelines = st.sampled_from(("first", "second"))
orders = st.lists(st.integers(0, 1), min_size=1, max_size=50)
outcomes = st.sampled_from(("published", "published", "failed", "failed after the commit"))
faults = st.one_of(st.builds(Process), st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)))


class Chain(RuleBasedStateMachine):
    """The second pipeline reads published days of the first one, which reads pushed objects."""

    def __init__(self) -> None:
        super().__init__()
        self.first = LateWorld()
        self.second = self.first
        self.scheduled = ScheduledRuns(self.first, self.lacks)
        self.may_wait = False
        """Whether an execution may wait although its days are published, because a process has ended."""

    @initialize(
        on_change=st.sampled_from(("auto", "auto", "hold", "notify", "ignore")),
        on_definition=st.sampled_from(("keep", "keep", "rerun")),
        on_invalid=st.tuples(*[st.sampled_from(("hold", "hold", "rerun", "ignore"))] * 2),
    )
    def publish(self, on_change: Any, on_definition: str, on_invalid: tuple[str, str]) -> None:
        self.on_change, self.on_definition = on_change, on_definition
        self.table = TableInput(table=self.first.pipeline, days=(-1, 0), missing="wait", on_change=on_change)
        self.second = self.first.reader("weekly", self.table)
        self.scheduled.world, self.first.wake_day = self.second, self.scheduled.wake_day
        self.first.set_late(on_invalid={"weather": on_invalid[0]})
        self.second.set_late(on_definition=on_definition, on_invalid=dict.fromkeys(("days", "again"), on_invalid[1]))
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
            self.time_out()

    def time_out(self) -> None:
        """Waiting runs are evaluated again after 15 minutes."""
        self.scheduled.time_out()
        self.may_wait = False
        self.scheduled.run_days()

    @rule(name=pipelines, date=dates, outcome=outcomes, force=st.booleans(), process=faults)
    def run(self, name: str, date: str, outcome: str, force: bool, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world(name).run_day(date, outcome, process, force=force)

    def lacks(self, date: str) -> Lacks:
        """Return whether days are missing that the second pipeline reads: these alone, and no counts."""
        wanted = {
            day_date.fromisoformat(date) + timedelta(days=number)
            for table in self.second.project.pipelines["weekly"].tables.values()
            for number in range(table.days[0], table.days[1] + 1)
        }
        days = self.first.table.by_day.values()
        published = {day.date for day in days if day.pipeline == self.first.pipeline and day.published}
        return Lacks(unknown=False, incomplete=not {str(day) for day in wanted} <= published)

    @rule(date=st.sampled_from((*DATES, PRESENT, PRESENT)), process=faults)
    def schedule(self, date: str, process: Process) -> None:
        """A scheduled run of the second pipeline waits for the days of the first one."""
        self.scheduled.schedule(date, process)
        self.may_wait |= bool(process.at)
        self.scheduled.run_days()

    @rule(outcome=outcomes, process=faults)
    def run_the_present_day(self, outcome: str, process: Process) -> None:
        """The first pipeline runs the day that nobody has published."""
        with suppress(SlackwaterError, Crashed):
            self.first.run_day(PRESENT, outcome, process)
        self.may_wait |= bool(process.at)
        if not self.may_wait:
            self.scheduled.no_wake_up_is_lost()
        self.scheduled.run_days()

    @rule(process=faults)
    def run_the_present_day_while_a_run_waits_for_it(self, process: Process) -> None:
        self.schedule(PRESENT, Process())
        self.run_the_present_day("published", process)

    @rule(name=pipelines, date=dates, at=st.integers(1, 6), order=orders)
    def take_over_a_stopped_execution(self, name: str, date: str, at: int, order: list[int]) -> None:
        self.world(name).take_over(date, at, order)

    @rule(name=pipelines, date=dates, rows=st.integers(1, 30), at=st.integers(1, 24), order=orders)
    def take_over_a_stopped_monitoring(self, name: str, date: str, rows: int, at: int, order: list[int]) -> None:
        """Two monitorings run after a day has changed. The execution of the first one is stopped."""
        self.push(date, "e", rows)
        if name == "second":
            with suppress(SlackwaterError):
                self.first.run_day(date)
        run_twice(self.world(name).monitor, at, order)

    @rule(date=dates, to=st.integers(1, 3), process=faults)
    def roll_back(self, date: str, to: int, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.first.run_day(date, "published", process, rollback=to, reason="r")

    @rule(tables=st.sampled_from(TABLES), timezone=st.sampled_from(("America/New_York",) * 3 + ("Etc/GMT-6",)))
    def deploy(self, tables: dict[str, tuple[int, int]], timezone: str) -> None:
        """The second pipeline reads more, fewer or other days, the same day twice, or none, or has another timezone."""
        inputs = {name: self.table.model_copy(update={"days": days}) for name, days in tables.items()}
        # A pipeline has an input. Nobody delivers flights.
        sources = () if tables else ("flights",)
        steps = {"rows": StepUse(step="sql", depends_on=(*tables, *sources))}
        self.second.define(tables=inputs, sources=sources, steps=steps, timezone=timezone)
        self.time_out()

    @rule(tables=st.sampled_from(TABLES[3:5]), date=dates, rows=st.integers(1, 30), process=faults)
    def read_a_changed_day_twice(
        self, tables: dict[str, tuple[int, int]], date: str, rows: int, process: Process
    ) -> None:
        """The second pipeline runs, a day that it reads with two names changes, and it runs again."""
        self.deploy(tables, "America/New_York")
        with suppress(SlackwaterError, Crashed):
            self.second.run_day(date)
            self.push(date, "f", rows)
            self.first.run_day(date)
            self.second.run_day(date, "published", process)

    @rule(name=pipelines, date=dates, is_released=st.booleans())
    def decide(self, name: str, date: str, is_released: bool) -> None:
        holds, pipeline = self.world(name).hold_decisions(), self.world(name).pipeline
        with suppress(SlackwaterError):
            if is_released:
                self.world(name).run_day(date, force=holds.release(pipeline, date, reason="r"))
            else:
                holds.keep(pipeline, date, reason="r")

    @rule(date=dates, quality=st.sampled_from(("fail", "fail", "pass")))
    def judge_an_hour(self, date: str, quality: Any) -> None:
        self.give(Subject("source", "weather"), f"{date}T17", quality, None)

    @rule(name=pipelines, date=dates, quality=st.sampled_from(("fail", "fail", "pass")))
    def judge_a_version(self, name: str, date: str, quality: Any) -> None:
        world = self.world(name)
        attempt = world.table.day(world.pipeline, date).published.run.attempt
        self.give(Subject("pipeline", world.pipeline), date, quality, attempt)

    def give(self, subject: Subject, period: str, quality: Any, version: int | None) -> None:
        verdict = new_verdict(
            subject, period, quality, version=version, reason="r", principal="ana", at=self.first.now()
        )  # fmt: skip
        self.first.verdicts.put_verdicts([verdict, verdict])

    @rule(name=pipelines, outcome=outcomes, process=faults)
    def monitor(self, name: str, outcome: str, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world(name).monitor(outcome=outcome, process=process)

    def teardown(self) -> None:
        if self.second is self.first:
            return
        for verdict in list(self.first.verdicts.stored.values()):
            self.give(Subject(verdict.of, verdict.name), verdict.period, "pass", verdict.version)
        # Then no run may wait any more.
        self.first.time += timedelta(hours=49)
        self.scheduled.time_out()
        self.scheduled.each_goes_on_once()
        self.scheduled.run_days()
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
            assert not (day.hold and day.hold.rule == "invalid"), "a verdict stays behind"
            assert not day.notification_due
            assert (date, day.published.run.attempt) in published
            if not day.hold:
                assert world.warehouse.days[date] == world.warehouse.versions[date, day.published.run.attempt]
            rows = [row for row in world.ledger.rows if row.attempt and str(row.date) == date]
            versions = [runs[key] for key in sorted(published) if key[0] == date]
            for before, after in pairwise(versions):
                if not after.rollback:
                    read_by_runs = Counter(row.key[:3] for row in rows if row.attempt == after.run.attempt)
                    assert read_by_runs == self.new_inputs(world, before, after), (world.pipeline, date)

    def new_inputs(self, world: LateWorld, before: RunRecord, after: RunRecord) -> Counter[tuple[str, str, str]]:
        """Return the keys that the ledger must have of a run, without their change: name, URI and digest.

        They are those of new inputs and lost ones of both definitions, and of a new definition.
        """
        old, new = (self.inputs(world, run) for run in (before, after))
        both = [world.definitions[run.definition] for run in (before, after)]
        changed = {key: new.get(key, old.get(key)) for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        shared = [key for key in changed if all(is_read(each, after.run.date, key) for each in both)]
        keys = [(*key, changed[key][0]) for key in shared]
        return Counter(keys + ([(DEFINITION, "", after.definition)] if before.definition != after.definition else []))

    def inputs(self, world: LateWorld, run: RunRecord) -> dict[Input, tuple[str, int]]:
        """Return the digest and the rows of each input that the run has read."""
        return {(item.source, item.uri): (item.etag, item.rows) for item in world.manifest(run.run.manifest).objects}

    def the_second_pipeline_has_the_present_days(self, date: str) -> None:
        """What the run of the second pipeline would read now, from the records of the first one, is what it has."""
        day, present = self.second.table.day("weekly", date), dict[Input, tuple[str, int]]()
        run = self.second.table.run("weekly", date, day.published.run.attempt)
        digest = self.second.project.written_digest("weekly")
        definitions = [self.second.definitions[each] for each in (run.definition, digest)]
        for each in DATES:
            publication = self.first.table.day(self.first.pipeline, each).published.publication
            item = publication.content, publication.rows
            present |= {(name, f"{publication.table}/date={each}"): item for name in ("days", "again")}
        present, read = (
            {key: item for key, item in items.items() if all(is_read(each, date, key) for each in definitions)}
            for items in (present, self.inputs(self.second, run))
        )
        has_lost = any(key not in present or present[key][1] < rows for key, (_, rows) in read.items())
        differs = present.keys() != read.keys() or any(present[key][0] != etag for key, (etag, _) in read.items())
        if day.hold and day.hold.rule == "moved_hours":
            assert run.reads.timezone != definitions[1].timezone, day.hold
        elif day.hold:
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
        self, day: DayRecord, present: Mapping[Input, tuple[str, int]], read: Mapping[Input, tuple[str, int]]
    ) -> None:
        """Each new version of a day that was read is in one message, and nothing runs because of it."""
        messages = [item for item in self.second.documents("changed_days") if item["date"] == day.date]
        named: dict[Input, list[str]] = {}
        for change in (change for message in messages for change in message["changes"]):
            key = change["table"], change["day"].replace(f"{self.first.pipeline} ", f"{self.first.pipeline}/date=")
            named.setdefault(key, []).append(change["version"])
        assert all(one != other for versions in named.values() for one, other in pairwise(versions)), named
        for key in present.keys() | read.keys():
            version, before = (each[key][0] if key in each else "" for each in (present, read))
            is_known = version in named.get(key, []) or day.date in self.second.table_alarms
            assert version == before or is_known, (day.date, key, named)


def is_read(definition: Pipeline, date: str, key: Input) -> bool:
    """Whether the pipeline reads the input on that day: each object, or a day that the table with the name has."""
    name, uri = key
    if name in definition.sources:
        return True
    table = definition.published_tables.get(name)
    days = (day_date.fromisoformat(uri.rpartition("date=")[2]) - day_date.fromisoformat(date)).days
    return table is not None and table.days[0] <= days <= table.days[1]


TestChain = Chain.TestCase
TestChain.settings = model_settings(examples=40, steps=15)
