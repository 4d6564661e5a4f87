"""The ledger: one row for each change of the handling of a late input, whatever is repeated or interrupted."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from lambdas import write_ledger
from slackwater.costs.cost import RunCost
from slackwater.errors import DayChanged
from slackwater.late.check import late_rejects
from slackwater.late.comparison import MetricChange, RowCounts
from slackwater.late.decision import CheckReport, LateDecision, PendingDay
from slackwater.late.effects import Effect, effects_of_day, largest_change
from slackwater.late.entry import LateInput, LedgerEntry, late_inputs
from slackwater.late.ledger import Ledger
from slackwater.late.new_entries import RunInputs, completed_entries, cost_shares, new_entries
from slackwater.late.pending import PendingCheck, save_passed_over, save_pending
from slackwater.late.report.message import Message
from slackwater.metrics import Metric
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.inputs.difference import Change, difference
from slackwater.runs.inputs.manifest import InputManifest, InputObject, read_manifest
from slackwater.runs.period import day_of
from slackwater.runs.record import Hold, Resolution, ResolutionAction, Rollback, Run, RunState
from slackwater.sources.rejected_events import hours_metadata, redrives_prefix, rejects_prefix
from tests.fakes_check import PIPELINE, World, five_days
from tests.fakes_comparison import comparison
from tests.fakes_functions import use_resources
from tests.fakes_ledger import ListTable
from tests.fakes_notification import Crashed
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

DAY = "2013-03-10"
AT = datetime(2013, 3, 12, 9, tzinfo=UTC)
ARN = "arn:aws:states:eu-central-1:0:execution:monitor-days:"


class Monitored(World):
    """A pipeline whose monitorings write a ledger."""

    ledger_table: ListTable
    checks = 0
    unreadable: list[str]
    counted: list[tuple[Metric, float]]

    @property
    def ledger(self) -> Ledger:
        return Ledger(
            project=self.project,
            store=self.store,
            runs=self.table,
            table=self.ledger_table,
            executions=self.executions,
            exchange_bucket="exchange",
            now=self.now,
            on_unreadable=lambda uri, _: self.unreadable.append(uri),
            put_metric=lambda metric, value, *, pipeline: self.counted.append((metric, value)),
        )

    def start(self) -> tuple[CheckReport, dict[str, str]]:
        """Check the days, as a monitoring begins; return the report and what its last state passes on."""
        self.checks += 1
        self.time += timedelta(hours=1)
        execution = f"{ARN}m{self.checks}"
        report = self.check()
        uri = self.checker.save(report, execution=execution)
        save_pending(report, store=self.store, exchange_bucket="exchange", execution=execution)
        return report, {"pipeline": PIPELINE, "report": uri, "execution": execution}

    def monitor(self, *, rerun: bool = False) -> int:
        """Check the days, run the late days again if wanted, and write the ledger; return the number of new rows."""
        report, request = self.start()
        for day in report.days:
            if rerun and day.decision == "rerun":
                self.publish(day.date)
        return self.ledger.write(**request)

    def notified(self, date: str, attempt: int) -> None:
        """Record that people were notified of an attempt, as the monitoring does."""
        self.table.save(self.table.day(PIPELINE, date).model_copy(update={"notified_attempt": attempt}))

    @property
    def rows(self) -> list[LedgerEntry]:
        return self.ledger_table.rows

    @property
    def pending(self) -> list[str]:
        return [uri for uri in self.store.objects if uri.startswith("s3://exchange/ledger/")]


def count_reads(world, monkeypatch):
    """Return what is read from now on: URIs of objects, prefixes of listings, and days whose comparisons are read."""
    reads = []
    get, listed, comparisons = world.store.get, world.store.list, world.table.comparisons
    monkeypatch.setattr(world.store, "get", lambda uri: reads.append(uri) or get(uri))
    monkeypatch.setattr(world.store, "list", lambda prefix, **more: reads.append(prefix) or listed(prefix, **more))
    monkeypatch.setattr(world.table, "comparisons", lambda *day: reads.append(day) or comparisons(*day))
    return reads


@pytest.fixture
def world():
    world = Monitored()
    world.ledger_table, world.unreadable, world.counted = ListTable(), [], []
    world.__dict__ |= five_days().__dict__
    return world


def handling(row):
    return row.uri.rpartition("/")[2], row.decision, row.rule, row.attempt


def test_nothing_late_writes_nothing(world):
    assert (world.monitor(), world.rows, world.pending) == (0, [], [])


def test_an_ignored_input_has_one_row_however_often_it_is_checked(world):
    uri = world.add("flights", DAY, "20", name="late", rows=9)
    assert [world.monitor() for _ in range(7)] == [1, 0, 0, 0, 0, 0, 0]
    (row,) = world.rows
    assert handling(row) == ("late.parquet", "ignore", "below", None)
    arrived = world.store.objects[uri][2]
    # The day ends at midnight in New York, in summer time: 4:00 UTC.
    ended = datetime(2013, 3, 11, 4, tzinfo=UTC)
    assert row.lateness_hours == pytest.approx((arrived - ended).total_seconds() / 3600)
    assert (row.rows, row.bytes, row.cost_usd, row.notified, row.execution) == (9, 9, None, False, "m1")
    assert (row.date, row.change, row.month) == (date(2013, 3, 10), "added", "2013-03")


def passed_over(world) -> int:
    """Monitor the window and write the ledger; return the number of new rows."""
    report, request = world.start()
    passed = world.checker.passed_over(report)
    save_passed_over(report, passed, store=world.store, exchange_bucket="exchange", execution=request["execution"])
    world.checker.settle(PIPELINE, passed)
    return world.ledger.write(**request)


def whys(world, date):
    return [(row.rule, row.decision, row.attempt) for row in world.rows if str(row.date) == date]


def test_late_data_of_a_day_before_the_window_has_one_row_until_a_run_takes_it_in(world):
    world.time += timedelta(days=20)
    world.add("flights", DAY, "20", name="late", rows=30)
    assert passed_over(world) == 0  # no message has named it
    world.table.record_ledger_day(PIPELINE, DAY, at=world.time)
    assert [passed_over(world) for _ in range(3)] == [1, 0, 0]
    assert whys(world, DAY) == [("older", "ignore", None)]
    assert world.table.ledger_days(PIPELINE) == []
    assert world.counted == [(Metric.LATE_OBJECTS_OLDER, 1)]
    world.publish(DAY)
    assert world.monitor() == 1  # people are notified of the new version
    assert whys(world, DAY) == [("older", "ignore", None), ("manual", "rerun", 2)]
    assert world.counted[1:] == [(Metric.LATE_BYTES, 30)]


def test_an_input_that_a_run_has_read_and_that_comes_back_has_a_new_row(world):
    world.time += timedelta(days=20)
    late = world.add("flights", DAY, "20", name="late", rows=30)
    world.table.record_ledger_day(PIPELINE, DAY, at=world.time)
    assert passed_over(world) == 1
    world.publish(DAY)  # at the instant of the check
    world.time += timedelta(hours=1)
    world.store.delete([late])
    world.hold_decisions().release(PIPELINE, DAY, reason="it was wrong")
    world.publish(DAY)
    world.time += timedelta(hours=1)
    world.add("flights", DAY, "20", name="late", rows=30)
    world.table.record_ledger_day(PIPELINE, DAY, at=world.time)
    assert passed_over(world) == 3
    runs = [("manual", "rerun", 2), ("manual", "rerun", 3)]
    assert whys(world, DAY) == [("older", "ignore", None), *runs, ("older", "ignore", None)]


def test_late_data_of_a_day_on_hold_before_the_window_has_the_rule_of_the_hold(world):
    world.store.delete(["s3://raw/raw/source=flights/date=2013-03-10/hour=17/a.parquet"])
    world.monitor()
    world.time += timedelta(days=20)
    world.add("weather", DAY, "20", name="late", rows=3)
    world.table.record_ledger_day(PIPELINE, DAY, at=world.time)
    assert passed_over(world) == 1
    assert whys(world, DAY) == [("vanished", "hold", None)] * 2


def test_inputs_of_an_overdue_day_that_was_never_published_have_rows_and_so_has_its_first_run(world):
    late, day = [world.add("flights", "2013-03-13", hour, rows=10) for hour in ("17", "18")], "2013-03-13"
    world.time += timedelta(hours=20)
    assert passed_over(world) == 0  # the deadline has not passed
    world.time += timedelta(hours=20)
    assert [passed_over(world) for _ in range(2)] == [2, 0]
    assert whys(world, day) == [("never_published", "ignore", None)] * 2
    world.store.delete(late[1:])
    world.publish(day)
    assert [world.monitor() for _ in range(2)] == [1, 0]
    assert whys(world, day)[2:] == [("manual", "rerun", 1)]
    assert world.rows[-1].uri == late[0]


def test_a_first_run_has_its_rows_although_its_day_has_left_the_window_since(world):
    day = "2013-03-13"
    world.add("flights", day, "17", rows=10)
    world.time += timedelta(hours=40)
    assert passed_over(world) == 1
    world.publish(day)
    world.time += timedelta(days=20)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    assert whys(world, day) == [("never_published", "ignore", None), ("manual", "rerun", 1)]
    assert world.table.ledger_days(PIPELINE) == []


def test_an_input_of_a_first_run_that_a_slow_check_stores_later_joins_the_rows_of_the_run(world):
    day = "2013-03-13"
    slow, quick = (world.add("flights", day, hour, rows=10) for hour in ("17", "18"))
    world.time += timedelta(hours=40)
    report, request = world.start()
    passed = world.checker.passed_over(report)
    [of_day] = [item for item in passed.days if item.date == day]
    parts = {
        uri: passed.model_copy(update={"days": (of_day.model_copy(update={"inputs": (late,)}),)})
        for uri, late in zip((slow, quick), of_day.inputs, strict=True)
    }
    store = {"store": world.store, "exchange_bucket": "exchange", "execution": request["execution"]}
    save_passed_over(report, parts[quick], **store)
    world.ledger.write(**request)
    world.publish(day)
    assert world.monitor() == 1
    save_passed_over(report, parts[slow], **store)
    assert [world.monitor() for _ in range(3)] == [1, 1, 0]
    taken_in = [(row.uri, row.rule, row.attempt) for row in world.rows if row.attempt]
    assert taken_in == [(quick, "manual", 1), (slow, "manual", 1)]


def test_a_new_pipeline_has_no_rows_of_its_past(world):
    world.add("flights", "2013-03-07", "17")
    world.time += timedelta(days=20)
    world.table.record_ledger_day(PIPELINE, "2013-03-07", at=world.time)
    assert (passed_over(world), world.table.ledger_days(PIPELINE)) == (0, [])


def test_an_older_day_that_was_never_published_is_looked_at_until_it_is(world):
    day = "2013-03-13"
    world.add("flights", day, "17")
    world.time += timedelta(days=20)
    world.table.record_ledger_day(PIPELINE, day, at=world.time)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    world.publish(day)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    assert whys(world, day) == [("never_published", "ignore", None), ("manual", "rerun", 1)]
    assert world.table.ledger_days(PIPELINE) == []


def test_late_data_of_a_day_whose_manifest_is_gone_has_rows_and_so_has_the_run_that_reads_it(world):
    run = world.table.day(PIPELINE, DAY).published.run
    world.time += timedelta(hours=1)
    late = world.add("flights", DAY, "20", name="late", rows=30)
    for uri, (body, metadata, _) in world.store.objects.items():
        world.store.objects[uri] = body, metadata, world.time if uri == late else world.time - timedelta(days=2)
    world.store.delete([run.manifest])
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    assert whys(world, DAY) == [("manifest_gone", "hold", None)]
    world.publish(DAY, force=True)
    assert world.monitor() == 1
    assert whys(world, DAY)[1:] == [("manual", "rerun", 2)]


def test_late_data_of_a_day_that_was_rolled_back_is_on_hold(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.publish(DAY)
    world.monitor()
    record = world.table.day(PIPELINE, DAY)
    world.table.save(record.model_copy(update={"hold": Hold(rule="rolled_back", reason="r", since=AT)}))
    world.add("flights", DAY, "21", name="later", rows=3)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    assert whys(world, DAY)[1:] == [("rolled_back", "hold", None)]


def test_what_a_rollback_of_a_day_before_the_window_leaves_out_is_on_hold(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.publish(DAY)
    world.monitor()
    record, first = world.table.day(PIPELINE, DAY), world.table.run(PIPELINE, DAY, 1)
    # As after a rollback, the published run has read what the first one has.
    before = record.published.model_copy(update={"run": first.run.model_copy(update={"attempt": 3})})
    hold = Hold(rule="rolled_back", reason="r", since=AT)
    rollback = Rollback(to=1, tag="t", reason="r", frozen_at=first.frozen_at)
    world.table.save(
        record.model_copy(update={"hold": hold, "published": before, "attempts": 3, "notified_attempt": 3}),
        first.model_copy(update={"run": before.run, "rollback": rollback}),
    )
    world.time += timedelta(days=20)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    assert whys(world, DAY)[1:] == [("rolled_back", "hold", None)]


def test_events_that_were_rejected_after_the_end_of_their_day_have_a_row_for_each_day(world, monkeypatch):
    metadata = hours_metadata({"2013-03-10T03": 1, "2013-03-10T20": 2, "2013-03-12T20": 5, "2013-03-01T00": 7})
    uri = f"{rejects_prefix('raw', 'flights', '2013-03-12')}b.jsonl"
    world.store.put(uri, b"x" * 150, metadata=metadata)
    body, stored, _ = world.store.objects[uri]
    world.store.objects[uri] = body, stored, AT
    reads = count_reads(world, monkeypatch)
    assert [passed_over(world) for _ in range(2)] == [2, 0]
    assert uri not in reads
    rows = [(str(row.date), row.rows, row.bytes, row.rule, row.change, row.attempt) for row in world.rows]
    # 3:00 UTC is the evening before in New York; 2013-03-12 goes on, and the pipeline begins on 2013-03-08.
    assert rows == [
        ("2013-03-09", 1, 10, "event_rejected", "rejected", None),
        ("2013-03-10", 2, 20, "event_rejected", "rejected", None),
    ]
    assert world.rows[0].lateness_hours == pytest.approx(52)
    assert "slackwater sideline show flights" in world.rows[0].reason


def put(world, uri, hours, at):
    """Store an object of rejected or accepted events."""
    world.store.put(uri, b"x", metadata=hours_metadata(hours))
    world.store.objects[uri] = (*world.store.objects[uri][:2], at)


REJECTS = f"{rejects_prefix('raw', 'flights', '2013-03-12')}b.jsonl"
REDRIVEN = redrives_prefix("raw", "flights", "2013-03-12", "b")


def test_events_that_were_accepted_when_they_were_sent_again_have_rows_to_subtract(world):
    # Of the 11th, the events were rejected before its end: they have no row, whenever they are accepted.
    rejected = datetime(2013, 3, 12, 2, tzinfo=UTC)
    put(world, REJECTS, {"2013-03-10T20": 5, "2013-03-11T20": 3}, rejected)
    world.time += timedelta(hours=1)
    assert [passed_over(world) for _ in range(2)] == [1, 0]
    world.store.put(f"{REDRIVEN}0000.json", b"{}")
    put(world, f"{REDRIVEN}0000.stored", {"2013-03-10T20": 3, "2013-03-11T20": 1}, world.time + timedelta(days=20))
    put(world, f"{REDRIVEN}0001.stored", {"2013-03-10T20": 1}, world.time + timedelta(days=20, minutes=1))
    put(world, f"{REDRIVEN}0002.stored", {}, world.time + timedelta(days=20, minutes=1))
    world.time += timedelta(days=21)
    assert [passed_over(world) for _ in range(2)] == [2, 0]
    rows = [(str(row.date), row.rows, row.rule, row.decision, row.attempt) for row in world.rows]
    assert sorted(rows) == [
        (DAY, 1, "event_accepted", "ignore", None),
        (DAY, 3, "event_accepted", "ignore", None),
        (DAY, 5, "event_rejected", "ignore", None),
    ]


def test_a_day_that_is_published_between_the_rejection_and_the_redrive_has_both_rows(world, monkeypatch):
    first_published = world.table.first_published
    put(world, REJECTS, {"2013-03-10T20": 5}, datetime(2013, 3, 12, 2, tzinfo=UTC))
    world.time += timedelta(hours=1)
    monkeypatch.setattr(world.table, "first_published", lambda _: "2013-03-11")
    assert passed_over(world) == 0
    monkeypatch.setattr(world.table, "first_published", first_published)
    put(world, f"{REDRIVEN}0000.stored", {"2013-03-10T20": 4}, world.time + timedelta(days=1))
    world.time += timedelta(days=2)
    assert [passed_over(world) for _ in range(2)] == [2, 0]
    assert [(row.rows, row.rule) for row in world.rows] == [(4, "event_accepted"), (5, "event_rejected")]


@pytest.mark.parametrize("first_check", ["before", "after"])
def test_no_more_events_are_accepted_than_were_rejected_in_any_number_of_hours(world, first_check):
    start = datetime(2013, 3, 8, 6, tzinfo=UTC)
    hours = {(start + timedelta(hours=number)).isoformat()[:13]: 1 for number in range(95)}
    put(world, REJECTS, hours, datetime(2013, 3, 12, 6, tzinfo=UTC))
    world.time += timedelta(hours=5)
    if first_check == "before":
        passed_over(world)
    # The metadata of what was rejected has the last 75 hours only.
    put(world, f"{REDRIVEN}0000.stored", dict(list(hours.items())[:30]), world.time + timedelta(hours=1))
    world.time += timedelta(days=1)
    passed_over(world)
    rows = Counter[tuple[str, str]]()
    for row in world.rows:
        rows[str(row.date), str(row.rule)] += row.rows
    accepted = {day: count for (day, rule), count in rows.items() if rule == "event_accepted"}
    # Of the 30 hours, 10 are known as rejected, from 2:00 UTC on, which is the evening before in New York.
    assert accepted == {"2013-03-08": 3, "2013-03-09": 7}
    assert all(count <= rows[day, "event_rejected"] for day, count in accepted.items())


def test_a_check_goes_on_with_rejected_events_where_the_one_before_has_stopped(world, monkeypatch):
    monkeypatch.setattr(late_rejects, "MOST_OBJECTS", 2)
    for number in range(5):
        uri = f"{rejects_prefix('raw', 'flights', '2013-03-12')}{number}.jsonl"
        world.store.put(uri, b"x", metadata=hours_metadata({"2013-03-10T20": 1}))
        world.store.objects[uri] = (*world.store.objects[uri][:2], AT + timedelta(minutes=number))
    assert sum(passed_over(world) for _ in range(5)) == 5


def test_rejected_events_of_one_second_do_not_stop_the_checks(world, monkeypatch):
    monkeypatch.setattr(late_rejects, "MOST_OBJECTS", 2)
    for number in range(6):
        uri = f"{rejects_prefix('raw', 'flights', '2013-03-12')}{number}.jsonl"
        world.store.put(uri, b"x", metadata=hours_metadata({"2013-03-10T20": 1}))
        # Five objects in one second, and a later one.
        world.store.objects[uri] = (*world.store.objects[uri][:2], AT + timedelta(minutes=number // 5))
    assert sum(passed_over(world) for _ in range(4)) == 6


def test_a_re_run_and_late_bytes_count_once_however_often_they_are_checked_and_written(world):
    world.add("flights", DAY, "20", name="below", rows=9)
    world.monitor()
    assert world.counted == []
    world.add("flights", DAY, "21", name="more", rows=30)
    # Two checks decide on the re-run before it has published.
    (_, one), (_, other) = world.start(), world.start()
    world.publish(DAY)
    for request in (one, other, one):
        world.ledger.write(**request)
    assert world.counted == [(Metric.DAYS_RERUN, 1), (Metric.LATE_BYTES, 39)]
    # A person runs the next one.
    world.add("flights", DAY, "22", name="by hand", rows=50)
    world.publish(DAY)
    world.monitor()
    assert world.counted[2:] == [(Metric.LATE_BYTES, 50)]


def test_inputs_that_add_up_to_a_re_run_get_a_second_row_with_the_attempt(world):
    world.add("flights", DAY, "20", name="one", rows=9)
    world.monitor()
    world.add("flights", DAY, "21", name="two", rows=1)
    assert world.monitor(rerun=True) == 2
    assert sorted(map(handling, world.rows)) == [
        ("one.parquet", "ignore", "below", None),
        ("one.parquet", "rerun", "grown", 2),
        ("two.parquet", "rerun", "grown", 2),
    ]
    assert {row.execution for row in world.rows if row.attempt} == {"m2"}
    assert world.monitor() == 0


def test_a_failed_re_run_is_a_decision_without_an_attempt(world):
    world.add("flights", DAY, "20", name="late", rows=50)
    assert [world.monitor(), world.monitor(), world.monitor(rerun=True)] == [1, 0, 1]
    assert [handling(row)[1:] for row in world.rows] == [("rerun", "grown", None), ("rerun", "grown", 2)]


def test_a_removed_input_is_a_row_of_the_held_day(world):
    uri = world.add("flights", DAY, "20", name="late", rows=50)
    world.monitor(rerun=True)
    world.store.delete([uri])
    assert world.monitor() == 1
    assert handling(world.rows[-1]) == ("late.parquet", "hold", "vanished", None)
    assert (world.rows[-1].change, world.rows[-1].lateness_hours) == ("removed", None)


def test_an_input_that_returns_after_its_removal_is_late_again(world):
    uri = world.add("weather", DAY, "20", name="late", rows=3)
    world.monitor(rerun=True)
    world.store.delete([uri])
    inputs = world.inputs.manifest(PIPELINE, day_of(date.fromisoformat(DAY), "America/New_York"))
    released = Resolution(
        action=ResolutionAction.RELEASED, reason="r", principal="p", at=world.time, inputs=inputs.digest, attempt=2
    )
    world.table.save(world.table.day(PIPELINE, DAY).model_copy(update={"resolution": released}))
    world.publish(DAY)
    world.monitor()
    world.add("weather", DAY, "20", name="late", rows=3)
    assert world.monitor() == 1
    assert [(row.change, row.rule, row.attempt) for row in world.rows] == [
        ("added", "grown", 2),
        ("removed", "manual", 3),
        ("added", "grown", None),
    ]


def test_a_run_by_hand_is_in_the_ledger_without_a_check(world):
    world.add("flights", DAY, "20", name="late", rows=3)
    run = world.publish(DAY)
    assert world.monitor() == 1
    assert handling(world.rows[0]) == ("late.parquet", "rerun", "manual", run.attempt)
    assert world.rows[0].execution is None


@pytest.mark.parametrize("crash", ["before", "after"])
def test_a_crash_around_the_commit_neither_loses_nor_doubles_a_row(world, crash):
    world.add("flights", DAY, "20", name="late", rows=50)
    world.ledger_table.crash = crash
    with pytest.raises(Crashed):
        world.monitor(rerun=True)
    world.ledger_table.crash = ""
    assert len(world.pending) == 1
    world.monitor()
    assert [handling(row) for row in world.rows] == [("late.parquet", "rerun", "grown", 2)]
    assert (world.rows[0].execution, world.pending) == ("m1", [])


def test_a_decision_that_was_not_written_is_written_by_the_next_monitoring_in_order(world):
    world.add("flights", DAY, "20", name="late", rows=9)
    world.start()
    world.add("flights", DAY, "21", name="more", rows=9)
    assert world.monitor(rerun=True) == 3
    assert sorted(map(handling, world.rows)) == [
        ("late.parquet", "ignore", "below", None),
        ("late.parquet", "rerun", "grown", 2),
        ("more.parquet", "rerun", "grown", 2),
    ]


def test_a_repeated_call_and_a_commit_of_another_writer_change_nothing(world):
    world.add("flights", DAY, "20", name="late", rows=9)
    _, request = world.start()
    world.ledger_table.conflicts = 3
    assert [world.ledger.write(**request), world.ledger.write(**request)] == [1, 0]


def test_manifests_are_read_once_per_call_and_comparisons_once_per_commit(world, monkeypatch):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.monitor(rerun=True)
    world.add("flights", DAY, "21", name="more", rows=30)
    report, request = world.start()
    assert [day.date for day in report.days if day.decision == "rerun"] == [DAY]
    world.publish(DAY)
    world.ledger_table.conflicts = 3
    reads = count_reads(world, monkeypatch)
    # The row of attempt 2 lacks its effect, and that of attempt 3 is missing.
    assert world.ledger.write(**request) == 1
    manifests = [run.run.manifest for run in world.table.runs(PIPELINE, DAY)]
    assert [reads.count(uri) for uri in manifests] == [0, 1, 1]
    assert reads.count((PIPELINE, DAY)) == 4
    assert reads.count(f"s3://exchange/comparisons/{PIPELINE}/{DAY}/") == 4


def test_a_run_with_the_inputs_of_the_version_before_reads_no_manifest(world, monkeypatch):
    run = world.publish(DAY, force=True)
    _, request = world.start()
    reads = count_reads(world, monkeypatch)
    assert world.ledger.write(**request) == 0
    assert run.manifest not in reads


def test_a_table_that_keeps_changing_is_an_error_and_keeps_what_is_pending(world):
    world.add("flights", DAY, "20", name="late", rows=9)
    _, request = world.start()
    world.ledger_table.conflicts = 1000
    with pytest.raises(DayChanged, match="ledger kept changing"):
        world.ledger.write(**request)
    assert len(world.pending) == 1


def test_the_decisions_of_another_running_monitoring_are_left_to_it(world):
    world.add("flights", DAY, "20", name="late", rows=9)
    _, first = world.start()
    world.executions.running.add(first["execution"])
    world.executions.known.add(first["execution"])
    _, second = world.start()
    world.store.delete([uri for uri in world.pending if "/m2" in uri])
    assert world.ledger.write(**second) == 0
    assert world.ledger.write(**first) == 1
    assert world.rows[0].execution == "m1"


def test_a_run_of_another_running_monitoring_has_its_decision_whoever_writes_first(world):
    world.add("flights", DAY, "20", name="late", rows=50)
    _, first = world.start()
    world.executions.running.add(first["execution"])
    world.executions.known.add(first["execution"])
    world.publish(DAY)
    _, second = world.start()
    assert world.ledger.write(**second) == 1
    assert (handling(world.rows[0]), world.rows[0].execution) == (("late.parquet", "rerun", "grown", 2), "m1")
    assert world.ledger.write(**first) == 0


@pytest.mark.parametrize("is_late", [True, False])
def test_a_day_before_the_window_that_only_a_failed_monitoring_has_notified_of_has_its_rows(world, is_late):
    world.time += timedelta(days=30)
    if is_late:
        world.add("flights", DAY, "20", name="late", rows=3)
    run = world.publish(DAY, force=True)
    report, _ = world.start()
    assert report.notifications_due == (DAY,)
    world.notified(DAY, run.attempt)
    # That monitoring fails here: the next one has no reason to look at the day.
    assert (world.monitor(), world.pending) == (int(is_late), [])
    assert [row.attempt for row in world.rows] == [run.attempt] * is_late


def test_a_day_that_is_repaired_without_late_data_and_leaves_the_window_has_what_its_run_took_in(world):
    world.table.save(world.table.day(PIPELINE, DAY).model_copy(update={"outcome_unknown": True, "attempts": 2}))
    report, _ = world.start()
    (day,) = [day for day in report.days if day.date == DAY]
    assert (day.rule, day.late_inputs) == ("outcome_unknown", ())
    world.add("flights", DAY, "20", name="late", rows=3)
    run = world.publish(DAY)
    world.notified(DAY, run.attempt)
    world.time += timedelta(days=30)
    assert world.monitor() == 1
    assert [handling(row) for row in world.rows] == [("late.parquet", "rerun", "manual", run.attempt)]


def test_the_rows_of_each_re_run_add_up_to_the_difference_of_its_manifests(world):
    for attempt in range(3):
        for hour in range(10, 14 + attempt):
            world.add("flights", DAY, str(hour), name=f"a{attempt}", rows=7 + hour)
            world.add("weather", DAY, str(hour), name=f"w{attempt}", rows=attempt + 1)
        world.monitor(rerun=attempt != 1)
    published = [run for run in world.table.runs(PIPELINE, DAY) if run.state is RunState.PUBLISHED]
    for before, after in pairwise(published):
        earlier, later = (read_manifest(world.store, run.run.manifest) for run in (before, after))
        expected = sum(item.rows for item in later.objects) - sum(item.rows for item in earlier.objects)
        assert sum(row.rows for row in world.rows if row.attempt == after.run.attempt) == expected
    assert len(published) == 3


def test_the_cost_of_a_run_is_divided_by_rows(world):
    world.add("flights", DAY, "20", name="a", rows=30)
    world.add("flights", DAY, "20", name="b", rows=10)
    report, request = world.start()
    assert [day.date for day in report.days if day.decision == "rerun"] == [DAY]
    run: Run = world.publish(DAY)
    record = world.table.run(PIPELINE, DAY, run.attempt)
    world.table.save(record.model_copy(update={"cost": RunCost(usd=0.04)}))
    world.ledger.write(**request)
    assert {row.uri[-9:]: row.cost_usd for row in world.rows} == {"a.parquet": 0.03, "b.parquet": 0.01}


def test_a_cost_that_becomes_known_later_is_filled_in_once(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.monitor(rerun=True)
    assert [row.cost_usd for row in world.rows] == [None]
    record = world.table.run(PIPELINE, DAY, 2)
    world.table.save(record.model_copy(update={"cost": RunCost(usd=0.04)}))
    before = world.rows[0]
    assert world.monitor() == 0
    assert world.rows == [before._replace(cost_usd=0.04)]
    version = world.ledger_table.version
    assert (world.monitor(), world.ledger_table.version) == (0, version)


def compare(store, before, after, *, differing=1, message_id=None):
    folder = f"s3://exchange/comparisons/{PIPELINE}/{DAY}/{before}-{after}"
    rows = RowCounts(before=29, after=29, added=0, removed=0, changed=differing)
    store.put(f"{folder}/comparison.json", comparison(rows=rows).model_dump_json().encode())
    store.put(f"{folder}/pair.json", b"{}")
    message = Message(subject="s", body="b", message_id=message_id)
    store.put(f"{folder}/message.json", message.model_dump_json().encode())


def test_the_cost_of_a_run_contains_that_of_comparing_its_version(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.monitor(rerun=True)
    record = world.table.run(PIPELINE, DAY, 2)
    world.table.save(record.model_copy(update={"cost": RunCost(usd=0.04)}))
    # The comparison has failed, and that of the next monitoring has no cost yet.
    assert (world.monitor(), [row.cost_usd for row in world.rows]) == (0, [0.04])
    run = {"pipeline": PIPELINE, "date": DAY, "before": 1, "after": 2, "started_at": world.time}
    world.table.save_comparison(ComparisonRun(**run, execution="arn:c1", cost=RunCost(usd=0.01)))
    pending = ComparisonRun(**run, execution="arn:c2")
    world.table.save_comparison(pending)
    compare(world.store, 1, 2, differing=7, message_id="sent")
    assert (world.monitor(), [row.cost_usd for row in world.rows]) == (0, [None])
    world.table.save_cost(pending.model_copy(update={"cost": RunCost(usd=0.03)}))
    assert (world.monitor(), [row.cost_usd for row in world.rows]) == (0, [0.08])
    version = world.ledger_table.version
    assert (world.monitor(), world.ledger_table.version) == (0, version)


def test_an_effect_and_a_message_that_come_later_are_filled_in_once(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.add("flights", DAY, "21", name="more", rows=30)
    world.monitor(rerun=True)
    assert {(row.rows_differing, row.notified) for row in world.rows} == {(None, False)}
    compare(world.store, 1, 2, differing=7)
    assert world.monitor() == 0
    assert {(row.rows_differing, row.metric, row.notified) for row in world.rows} == {(7, "flights", False)}
    compare(world.store, 1, 2, differing=7, message_id="sent")
    assert world.monitor() == 0
    assert [(row.rows_differing, row.notified, row.attempt) for row in world.rows] == [(7, True, 2)] * 2
    version = world.ledger_table.version
    assert (world.monitor(), world.ledger_table.version) == (0, version)


def test_a_row_keeps_its_effect_when_the_comparison_is_gone(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.monitor(rerun=True)
    compare(world.store, 1, 2, differing=7, message_id="sent")
    world.monitor()
    world.store.delete([uri for uri in world.store.objects if "/comparisons/" in uri])
    before = list(world.rows)
    assert (world.monitor(), world.rows) == (0, before)


@pytest.mark.parametrize("damaged", [b"{}", b"{", b"\xff"])
def test_a_pending_check_that_cannot_be_read_stays_and_stops_no_other(world, damaged):
    world.add("flights", DAY, "20", name="late", rows=9)
    world.start()
    [uri] = world.pending
    complete, _, _ = world.store.objects[uri]
    world.store.put(uri, damaged)
    world.add("flights", DAY, "21", name="more", rows=9)
    assert (world.monitor(), world.pending, world.unreadable) == (2, [uri], [uri])
    world.store.put(uri, complete)
    world.monitor()
    assert (world.pending, len(world.unreadable)) == ([], 1)
    assert {row.execution for row in world.rows} == {"m1", "m2"}


def test_a_manifest_that_cannot_be_read_is_like_a_missing_one_and_stops_no_other_day(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    manifest = world.publish(DAY).manifest
    world.add("flights", "2013-03-11", "20", name="other", rows=30)
    _, request = world.start()
    world.publish("2013-03-11")
    world.store.put(manifest, b"{}")
    assert (world.ledger.write(**request), set(world.unreadable)) == (1, {manifest})
    assert [handling(row) for row in world.rows] == [("other.parquet", "rerun", "grown", 2)]
    assert world.pending == []


def test_a_message_that_cannot_be_read_counts_as_not_sent(world):
    world.add("flights", DAY, "20", name="late", rows=30)
    world.monitor(rerun=True)
    compare(world.store, 1, 2, differing=7)
    message = f"s3://exchange/comparisons/{PIPELINE}/{DAY}/1-2/message.json"
    world.store.put(message, b"{}")
    assert world.monitor() == 0
    assert {(row.rows_differing, row.notified) for row in world.rows} == {(7, False)}
    assert world.unreadable == [message]


def test_the_effect_of_a_version_is_relative_to_the_latest_version_that_it_was_compared_with():
    store = DictStore()
    compare(store, 2, 12, differing=9, message_id="sent")
    compare(store, 11, 12, differing=3)
    compare(store, 1, 2, differing=8)
    store.put(f"s3://exchange/comparisons/{PIPELINE}/{DAY}/12-13/comparison.json", b"{}")
    day = {"exchange_bucket": "exchange", "pipeline": PIPELINE, "date": DAY}
    effects = effects_of_day(store, **day, attempts=(3, 12, 13), on_unreadable=lambda uri, _: pytest.fail(uri))
    assert effects[3] == effects[13] == Effect()
    assert (effects[12].rows_differing, effects[12].notified) == (3, True)


def test_the_function_writes_the_ledger_of_its_monitoring(world, monkeypatch):
    world.add("flights", DAY, "20", name="late", rows=9)
    _, request = world.start()
    use_resources(monkeypatch, write_ledger, ledger=world.ledger)
    assert write_ledger.handler(request | {"correlation_id": "c"}, None) == {"rows": 1}


def an_object(uri, *, etag="1", file=None, rows=5, source="s"):
    return InputObject(
        uri=uri, source=source, date=DAY, hour="10", etag=etag, bytes=1, rows=rows, file=file,
        arrived=datetime(2013, 3, 12, tzinfo=UTC),
    )  # fmt: skip


def a_manifest(*objects):
    return InputManifest(pipeline="p", date=DAY, frozen_at=datetime(2013, 3, 12, tzinfo=UTC), objects=objects)


def test_late_inputs_agree_with_the_difference_of_the_manifests():
    before = a_manifest(an_object("a"), an_object("b", file="f"), an_object("c"), an_object("d"))
    now = a_manifest(an_object("a"), an_object("b2", file="f", rows=8), an_object("d", etag="2"), an_object("e"))
    inputs = late_inputs(before, now, sources=["s"])
    assert [(item.uri, item.change) for item in inputs] == [
        ("b2", Change.CHANGED),
        ("c", Change.REMOVED),
        ("d", Change.CHANGED),
        ("e", Change.ADDED),
    ]
    (source,) = difference(before, now, sources=["s"])
    assert sum(item.rows for item in inputs if item.change is not Change.REMOVED) == source.late.rows
    assert late_inputs(before, before, sources=["s"]) == ()


def test_inputs_without_rows_share_a_cost_equally_and_an_unknown_cost_stays_unknown():
    inputs = late_inputs(a_manifest(), a_manifest(an_object("a", rows=0), an_object("b", rows=0)), sources=["s"])
    assert cost_shares(inputs, 1.0) == [0.5, 0.5]
    assert cost_shares(inputs, None) == [None, None]


def test_the_largest_change_is_relative_to_the_earlier_total():
    def metric(name, before, after):
        return MetricChange(metric=name, total="sum", before=before, after=after)

    metrics = [metric("a", 100, 110), metric("b", -10, -15)]
    assert largest_change(metrics) == ("b", pytest.approx(-50))
    assert largest_change([*metrics, metric("c", 0, 9), metric("d", None, 1)]) == ("c", None)
    assert largest_change([metric("a", 1, 1)]) == (None, None)


def test_two_inputs_over_one_published_day_are_two_rows_with_the_whole_cost():
    item = {"uri": "upstream/date=2013-03-10", "etag": "digest", "change": Change.ADDED, "file": None, "bytes": 0}
    inputs = tuple(LateInput(source=source, rows=10, arrived=AT, **item) for source in ("daily", "weekly"))
    taken = RunInputs(date=DAY, attempt=2, started_at=AT, inputs=inputs, cost_usd=4.0, table_rows=5, effect=Effect())
    arguments = {"pipeline": PIPELINE, "timezone": "UTC", "checks": (), "running": (), "read_by_runs": [taken]}
    rows = new_entries((), **arguments)
    assert [(row.source, row.rows, row.cost_usd) for row in rows] == [("daily", 10, 2.0), ("weekly", 10, 2.0)]
    assert new_entries(rows, **arguments) == []


def test_two_inputs_over_one_published_day_are_two_rows_of_a_check_that_runs_nothing():
    item = {"uri": "upstream/date=2013-03-10", "etag": "digest", "change": Change.ADDED, "file": None, "bytes": 0}
    inputs = tuple(LateInput(source=source, rows=10, arrived=AT, **item) for source in ("daily", "weekly"))
    day = PendingDay(date=DAY, decision=LateDecision.HOLD, rule="r", reason="", attempt=1, inputs=inputs)
    check = PendingCheck(pipeline=PIPELINE, execution=f"{ARN}m1", checked_at=AT, days=(day,))
    arguments = {"pipeline": PIPELINE, "timezone": "UTC", "checks": (check,), "running": (), "read_by_runs": ()}
    rows = new_entries((), **arguments)
    assert [row.source for row in rows] == ["daily", "weekly"]
    assert new_entries(rows, **arguments) == []


def test_a_run_whose_only_row_has_the_key_of_an_older_version_keeps_its_cost():
    """Older versions wrote one row for two inputs over one published day."""
    item = {"uri": "upstream/date=2013-03-10", "etag": "digest", "change": Change.ADDED, "file": None, "bytes": 0}
    inputs = tuple(LateInput(source=source, rows=10, arrived=AT, **item) for source in ("daily", "weekly"))
    taken = RunInputs(date=DAY, attempt=2, started_at=AT, inputs=inputs, cost_usd=4.0, table_rows=5, effect=Effect())
    arguments = {"pipeline": PIPELINE, "timezone": "UTC", "checks": (), "running": ()}
    (known, _) = new_entries((), read_by_runs=[taken], **arguments)
    known = known._replace(cost_usd=4.0)
    added = new_entries([known], read_by_runs=[taken], **arguments)
    completed = completed_entries([known, *added], cost_usd=4.0, effect=Effect())
    assert (sum(row.cost_usd for row in completed), sum(row.cost_usd for row in [known, *added])) == (4.0, 4.0)
