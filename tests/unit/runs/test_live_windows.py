"""The open period is published again when further windows of its sources have all of their events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.periods.live_windows import LiveWindows
from slackwater.runs.record import ActiveRun, PublishedRun
from slackwater.state.facts import HOUR
from slackwater.state.reports import new_report
from tests.fakes_check import PUBLICATION
from tests.fakes_notification import a_run
from tests.fakes_receiver import a_source
from tests.fakes_runs import DictRunTable
from tests.state_world import CALLS, Fault, World
from tests.unit.runs.test_fold_periods import START, push, report

pytestmark = pytest.mark.unit

DATE = "2026-01-01"
WINDOW = timedelta(minutes=10)


class LiveWorld(World):
    """The source `things`, and a pipeline whose open day is published."""

    def __init__(self, *, sources: tuple[str, ...] = ("things",), windows: str = "10m", **changes: Any) -> None:
        fields = {"at": "timestamp", "id": {"type": "string", "required": True}, "region": "string"}
        by = {"by": "region", "values": ["EU"]} if changes.pop("by_region", False) else {}
        ids = {"event_id": "id"} if changes.pop("ids", False) else {}
        source = a_source(counts={"window": "10m", **by}, fields=fields, **ids)
        super().__init__(source, now=START + 2 * HOUR)
        definition = {
            "pipeline": "p",
            "sources": list(sources),
            "steps": {"end": {"step": "sql", "depends_on": list(sources)}},
            "publish": {"step": "end", "key": ["date"]},
            "live": {"windows": windows},
            **changes,
        }
        others = {name: source.model_copy(update={"source": name}) for name in sources}
        self.project = Project(sources=others, pipelines={"p": Pipeline.model_validate(definition)})
        self.days, self.at, self.is_lost = DictRunTable(), START + timedelta(minutes=25), False
        self.started: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self.on_full = self._deliver

    @property
    def live(self) -> LiveWindows:
        return LiveWindows(
            project=self.project,
            table=self.days,
            states=self.table,
            start=self._start,
            machines="arn:slackwater-",
            now=lambda: self.at,
        )

    def _start(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> bool:
        if name in self.started:
            return False
        self.started[name] = (machine, payload)
        return True

    def _deliver(self, source: str, hours: Any) -> None:
        if not self.is_lost:
            self.live.source_counted(source, hours)

    def new_starts(self) -> int:
        """Handle all messages; return how many runs they start."""
        before = len(self.started)
        self.handle_all()
        return len(self.started) - before


def test_each_window_that_becomes_complete_starts_one_run():
    world = LiveWorld()
    push(world, (0, "a"), (7, "b"))
    assert world.new_starts() == 0
    report(world, {0: 3}, through=10)
    assert world.new_starts() == 0
    push(world, (8, "c"))
    assert world.new_starts() == 1
    [(name, (machine, payload))] = world.started.items()
    assert (machine, name.startswith("live-p-"), len(name) <= 80) == ("arn:slackwater-pipeline-p", True, True)
    assert payload == {"live": True, "date": DATE, "correlation_id": name}
    push(world, (12, "d"))
    assert world.new_starts() == 0
    report(world, {0: 3, 10: 1}, through=20, as_of=91)
    assert world.new_starts() == 1


def test_windows_that_are_complete_out_of_order_start_a_run_each():
    world = LiveWorld()
    push(world, (12, "b"))
    report(world, {0: 1, 10: 1}, through=20)
    assert world.new_starts() == 1
    push(world, (2, "a"))
    assert world.new_starts() == 1


def test_windows_that_become_complete_together_start_one_run():
    world = LiveWorld()
    push(world, (2, "a"), (12, "b"), (23, "c"))
    report(world, {0: 1, 10: 1, 20: 1}, through=30)
    assert world.new_starts() == 1


def test_messages_that_come_twice_or_at_once_start_one_run():
    world = LiveWorld()
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    messages = list(world.queue)
    assert world.new_starts() == 1
    world.queue = messages
    assert world.new_starts() == 0
    assert [world.live.source_counted("things", [START]) for _ in range(2)] == [[], []]


def test_a_window_that_becomes_short_again_starts_nothing_until_it_is_complete_with_another_one():
    world = LiveWorld()
    push(world, (2, "a"), (12, "b"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 1
    report(world, {0: 1, 10: 1}, through=20, as_of=91)
    assert world.new_starts() == 1
    report(world, {0: 1, 10: 2}, through=20, as_of=92)
    assert world.new_starts() == 0
    push(world, (13, "c"))
    # The scheduled run publishes it.
    assert world.new_starts() == 0
    push(world, (23, "d"))
    report(world, {0: 1, 10: 2, 20: 1}, through=30, as_of=93)
    assert world.new_starts() == 1


def test_events_of_several_objects_count_before_their_ids_are_read():
    """Their states stay unknown until the hour has ended, so no message says that a window is complete."""
    world = LiveWorld(ids=True)
    push(world, (2, "a"))
    push(world, (3, "b"))
    report(world, {0: 2}, through=10)
    assert world.new_starts() == 1
    assert (world.changes, world.table.stored["things", START].windows[0].state) == ([], "unknown")
    # What the reports of a source cover is stored for the first report of an hour only.
    push(world, (12, "c"))
    report(world, {0: 2, 10: 2}, through=20, as_of=91)
    assert world.new_starts() == 0
    push(world, (13, "d"))
    assert world.new_starts() == 1


def test_a_window_that_is_not_reported_to_its_end_starts_nothing():
    world = LiveWorld()
    push(world, (2, "a"))
    report(world, {0: 1}, through=9)
    assert world.new_starts() == 0


def test_a_window_of_the_pipeline_is_complete_with_all_windows_of_its_sources():
    world = LiveWorld(windows="30m")
    push(world, (2, "a"), (12, "b"), (23, "c"))
    report(world, {0: 1, 10: 1}, through=20)
    assert world.new_starts() == 0
    report(world, {0: 1, 10: 1, 20: 1}, through=30, as_of=91)
    assert world.new_starts() == 1


def test_a_window_is_complete_when_it_is_for_all_sources():
    world = LiveWorld(sources=("others", "things"))
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0
    state = world.table.stored["things", START]
    world.table.stored["others", START] = state._replace(source="others")
    assert len(world.live.source_counted("others", [START])) == 1


def test_a_window_is_complete_when_it_is_for_all_values():
    world = LiveWorld(by_region=True)
    push(world, (2, "a", "EU"))
    at, sent = START + WINDOW, {START: {"region=EU": 1, "region=": 1}}
    world.table.put_report(new_report(world.source, as_of=at, through=at, counts=sent, principal="push:acme"))
    world.send_hours({START})
    assert world.new_starts() == 0
    push(world, (3, "b", "US"))
    assert world.new_starts() == 1


def test_a_request_that_is_lost_is_made_up_for_by_the_next_window():
    world = LiveWorld()
    world.is_lost = True
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0
    world.is_lost = False
    push(world, (12, "b"))
    report(world, {0: 1, 10: 1}, through=20, as_of=91)
    assert world.new_starts() == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("ids", [False, True])
def test_a_process_that_ends_anywhere_starts_the_run_when_its_message_comes_again(ids, method, after):
    world = LiveWorld(ids=ids)
    push(world, (2, "a"))
    push(world, (3, "b"))
    report(world, {0: 2}, through=10)
    messages, world.queue = world.queue, []
    world.handle(messages, Fault("killed", method, 1, after))
    world.handle_all()
    assert len(world.started) == 1


def test_the_end_of_a_run_starts_the_one_for_windows_that_have_become_complete_meanwhile():
    world = LiveWorld()
    record = world.days.day("p", DATE)
    run = a_run()
    world.days.save(record.model_copy(update={"active": ActiveRun(execution="e", run=run, since=world.at)}))
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0
    record = world.days.day("p", DATE)
    world.days.save(record.model_copy(update={"active": None}))
    assert world.live.run_ended("p", "2025-12-31") is None
    assert world.live.run_ended("removed", DATE) is None
    [name] = [world.live.run_ended("p", DATE)]
    assert list(world.started) == [name]
    assert world.live.run_ended("p", DATE) is None


def test_a_published_day_starts_nothing():
    world = LiveWorld()
    published = PublishedRun(run=a_run(), publication=PUBLICATION, at=world.at)
    world.days.save(world.days.day("p", DATE).model_copy(update={"published": published}))
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0


def test_only_windows_of_the_open_period_start_runs():
    world = LiveWorld()
    world.at = datetime(2026, 1, 2, tzinfo=UTC)
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0
    world.at = START + timedelta(minutes=25)
    assert world.live.source_counted("things", [START - 24 * HOUR]) == []
    assert len(world.live.source_counted("things", [START - 24 * HOUR, START])) == 1


def test_a_pipeline_at_regular_times_is_not_started_by_windows():
    world = LiveWorld(live={"every": "5m"})
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 0
    assert world.live.run_ended("p", DATE) is None


@pytest.mark.parametrize(
    ("windows", "first", "last", "starts"), [("1h", 30, 60, 0), ("1h", 0, 60, 1), ("30m", 30, 60, 1), ("30m", 0, 30, 0)]
)
def test_a_day_that_begins_within_an_hour_has_windows_of_utc(windows, first, last, starts):
    """It begins at 18:30. Reported are the minutes from `first` to `last`."""
    world, hour = LiveWorld(timezone="Asia/Kolkata", windows=windows), datetime(2026, 1, 1, 18, tzinfo=UTC)
    world.at, through = hour + timedelta(minutes=50), hour + timedelta(minutes=last)
    minutes = range(first, last, 10)
    push(world, *((minute, str(minute)) for minute in minutes), hour=hour)
    sent = {hour + timedelta(minutes=minute): 1 for minute in minutes}
    world.table.put_report(new_report(world.source, as_of=through, through=through, counts=sent, principal="push:acme"))
    world.send_hours({hour})
    world.handle_all()
    assert [payload["date"] for _, payload in world.started.values()] == ["2026-01-02"] * starts


def test_an_hourly_pipeline_starts_runs_of_its_hour():
    world = LiveWorld(
        period="hour",
        publish={"step": "end", "key": ["date", "hour"]},
        schedule={"process": "5 * * * *"},
    )
    push(world, (2, "a"))
    report(world, {0: 1}, through=10)
    assert world.new_starts() == 1
    assert next(iter(world.started.values()))[1]["date"] == "2026-01-01T12"
