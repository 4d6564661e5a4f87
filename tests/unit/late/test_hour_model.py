"""A model of an hourly pipeline and a daily one that reads it: in any order, no hour is forgotten or told of twice."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from slackwater.errors import SlackwaterError
from slackwater.late.check.window_dates import check_window
from slackwater.late.decision import LateDecision
from slackwater.pipeline.definition import Late
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.period import HOUR, period_of
from slackwater.sources.late_thresholds import ANY_LATE_DATA
from tests.fakes_check import NOW, PIPELINE, make_hourly
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process
from tests.late_world import OUTCOMES, LateWorld
from tests.models import InlinePool, model_settings

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

# The clocks of New York go forward on the 10th: its day has 23 hours. Two hours of the 9th, two of the 10th, one after.
HOURS = ("2013-03-10T03", "2013-03-10T04", "2013-03-10T05", "2013-03-11T03", "2013-03-11T04")
DATES = ("2013-03-09", "2013-03-10", "2013-03-11")

hours, names = st.sampled_from(HOURS), st.sampled_from("bcdef")
outcomes = st.sampled_from(("published", "published", *OUTCOMES))
faults = st.one_of(
    st.builds(Process),
    st.builds(Process, at=st.integers(1, 40), fault=st.sampled_from(FAULTS)),
)


@pytest.fixture(autouse=True)
def messages_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.late.changes.hour_notices.ThreadPoolExecutor", InlinePool)


class LateHours(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = LateWorld()
        self.world.time = NOW
        sources = self.world.project.sources
        sources = {name: item.model_copy(update={"late": ANY_LATE_DATA}) for name, item in sources.items()}
        self.world.project = self.world.project.model_copy(update={"sources": sources})
        late = Late(cool_down_hours=0, max_reruns_per_day=1000)
        make_hourly(self.world, timezone="America/New_York", late=late)
        self.daily = self.world.reader("daily", TableInput(table=PIPELINE, missing="empty"))
        self.daily.set_late(cool_down_hours=0, max_reruns_per_day=1000)
        self.world.project = self.daily.project
        self.pushed = Counter[str]()

    @initialize()
    def publish_the_hours(self) -> None:
        for hour in HOURS:
            self.push(hour, "a")
            self.world.run_day(hour)
        for day in DATES:
            self.daily.run_day(day)

    @rule(hour=hours, name=names)
    def push(self, hour: str, name: str) -> None:
        self.pushed[hour] += 1
        uri = self.world.add("flights", *hour.split("T"), name=f"{name}{self.pushed[hour]}", rows=10)
        self.world.arrive(uri)

    @rule(hour=hours, outcome=outcomes, process=faults)
    def run(self, hour: str, outcome: str, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.run_day(hour, outcome, process)

    @rule(hour=hours)
    def roll_back(self, hour: str) -> None:
        with suppress(SlackwaterError):
            self.world.run_day(hour, rollback=1, reason="r")

    @rule(hour=hours)
    def release(self, hour: str) -> None:
        with suppress(SlackwaterError):
            force = self.world.hold_decisions().release(PIPELINE, hour, reason="r")
            self.world.run_day(hour, force=force)

    @rule(outcome=outcomes, process=faults, one=st.none() | hours)
    def monitor(self, outcome: str, process: Process, one: str | None) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.monitor(dates=[one] if one else None, outcome=outcome, process=process)
        self.messages_are_of_one_day_and_never_repeated()

    @rule(process=faults)
    def receive_messages(self, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.world.receive_messages(process)
        self.messages_are_of_one_day_and_never_repeated()

    @rule(count=st.sampled_from((1, 5, 20)))
    def wait(self, count: int) -> None:
        self.world.time += timedelta(hours=count)

    def messages_are_of_one_day_and_never_repeated(self) -> None:
        zone, versions = ZoneInfo("America/New_York"), list[tuple[str, int]]()
        for document in self.world.documents("hours"):
            days = {period_of(hour["date"], "UTC").start.astimezone(zone).date() for hour in document["hours"]}
            assert days == {date.fromisoformat(document["date"])}
            versions += [(hour["date"], hour["attempt_after"]) for hour in document["hours"]]
        assert len(versions) == len(set(versions))

    def teardown(self) -> None:
        """After two checks without faults, every hour of the window has its data, unless it is on hold."""
        if not self.pushed:
            return
        self.world.time = max(self.world.time, datetime(2013, 3, 14, tzinfo=UTC))
        self.world.executions.running.clear()
        for _ in range(3):
            self.world.monitor()
            self.world.time += HOUR
        window = {period.name for period in check_window(self.world.project.pipelines[PIPELINE], None, self.world.time)}
        held = set(self.world.table.held(PIPELINE))
        report = self.world.monitor()
        assert not [day.date for day in report.days if day.decision in {LateDecision.RERUN, LateDecision.DEFER}]
        for hour in window.intersection(HOURS) - held:
            prefix = "/date={}/hour={}/".format(*hour.split("T"))
            stored = {uri for uri in self.world.store.objects if prefix in uri}
            assert {uri for uri, _ in self.world.warehouse.days[hour]} == stored, hour
            record = self.world.table.day(PIPELINE, hour)
            assert not record.notification_due, hour
            assert record.notification_claim is None
            rows = [(row.uri, row.attempt) for row in self.world.ledger.rows if row.period == hour and row.attempt]
            assert len(rows) == len(set(rows)), hour
        self.messages_are_of_one_day_and_never_repeated()
        told = sum(len(json.loads(sent["document"]).get("hours", ())) for sent in self.world.topic.sent)
        assert told <= sum(self.world.table.day(PIPELINE, hour).attempts for hour in HOURS)
        self.days_follow()

    def days_follow(self) -> None:
        """The daily pipeline has the published version of each of its hours."""
        for _ in range(2):
            self.daily.monitor()
        for day in DATES:
            if day in set(self.daily.table.held("daily")):
                continue
            published = self.daily.table.day("daily", day).published
            manifest = read_manifest(self.world.store, published.run.manifest)
            for item in manifest.objects:
                assert item.etag == self.world.table.day(PIPELINE, item.date).published.publication.content, item.date


TestLateHours = LateHours.TestCase
TestLateHours.settings = model_settings(examples=30, steps=12)
