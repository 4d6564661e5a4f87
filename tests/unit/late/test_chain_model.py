"""A model of two pipelines, of which one reads published days of the other: whatever happens, in any order."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from slackwater.errors import SlackwaterError
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.record import RunState
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process
from tests.late_world import LateWorld
from tests.unit.late.test_late_model import one_thread

pytestmark = pytest.mark.unit
__all__ = ["one_thread"]

DATES = ("2013-03-11", "2013-03-12")

dates = st.sampled_from(DATES)
pipelines = st.sampled_from(("first", "second"))
outcomes = st.sampled_from(("published", "published", "failed", "failed after the commit"))
faults = st.one_of(st.builds(Process), st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)))


class Chain(RuleBasedStateMachine):
    """The second pipeline reads two published days of the first one, which reads pushed objects."""

    def __init__(self) -> None:
        super().__init__()
        self.first = LateWorld()
        self.second = self.first

    @initialize(on_change=st.sampled_from(("auto", "auto", "hold", "ignore")))
    def publish(self, on_change: Any) -> None:
        self.on_change = on_change
        table = TableInput(table=self.first.pipeline, days=(-1, 0), missing="empty", on_change=on_change)
        self.second = self.first.reader("weekly", table)
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
        self.first.time += timedelta(hours=hours)

    @rule(name=pipelines, date=dates, outcome=outcomes, force=st.booleans(), process=faults)
    def run(self, name: str, date: str, outcome: str, force: bool, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world(name).run_day(date, outcome, process, force=force)

    @rule(date=dates, to=st.integers(1, 3), process=faults)
    def roll_back(self, date: str, to: int, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.first.run_day(date, "published", process, rollback=to, reason="r")

    @rule(name=pipelines, date=dates, is_released=st.booleans())
    def decide(self, name: str, date: str, is_released: bool) -> None:
        holds, pipeline = self.world(name).holds, self.world(name).pipeline
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
        documents = [json.loads(message["document"]) for message in world.topic.sent]
        sent = [(document["date"], document["attempt_after"]) for document in documents]
        assert len(sent) == len(set(sent)), "a message was sent twice"
        runs = {(run.run.date, run.run.attempt): run for run in world.table.runs(world.pipeline)}
        published = {key for key, run in runs.items() if run.state is RunState.PUBLISHED}
        assert published <= world.warehouse.versions.keys()
        for date in DATES:
            day = world.table.day(world.pipeline, date)
            assert not day.notification_due
            if not day.hold:
                assert world.warehouse.days[date] == world.warehouse.versions[date, day.published.run.attempt]
            taken_in = {(row.uri, row.etag) for row in world.ledger.rows if row.attempt and str(row.date) == date}
            versions = [world.manifest_content(runs[key].run.manifest) for key in sorted(published) if key[0] == date]
            inputs = set().union(*(version.keys() for version in versions[1:])) - versions[0].keys()
            assert inputs <= taken_in, (world.pipeline, date)

    def the_second_pipeline_has_the_present_days(self, date: str) -> None:
        """What the run of the second pipeline would read now, from the records of the first one, is what it has."""
        day, present = self.second.table.day("weekly", date), dict[str, tuple[str, int]]()
        for each in DATES[: DATES.index(date) + 1]:
            publication = self.first.table.day(self.first.pipeline, each).published.publication
            present[f"{publication.table}/date={each}"] = publication.content, publication.rows
        read = {uri: (etag, rows) for (uri, etag), rows in self.second.warehouse.days[date].items()}
        has_lost = any(uri not in present or present[uri][1] < rows for uri, (_, rows) in read.items())
        differs = present.keys() != read.keys() or any(present[uri][0] != etag for uri, (etag, _) in read.items())
        if day.hold:
            is_known = day.hold.rule in {"failed", "audit"}
            assert is_known or has_lost or (differs and self.on_change == "hold"), day.hold
        elif differs and self.on_change != "ignore":
            assert day.resolution, (date, read, present)
            assert day.resolution.action == "rejected", (date, read, present)


TestChain = Chain.TestCase
TestChain.settings = settings(
    derandomize=True, max_examples=40, stateful_step_count=15, deadline=None, print_blob=False
)
