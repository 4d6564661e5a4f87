"""Who sends messages to the queue of arrivals, and when: pulls, runs and checks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lambdas import check_days, fetch_file, record_run
from slackwater.aws import function
from slackwater.costs.cost import RunCost
from slackwater.errors import CloudError
from slackwater.late.arrival_messages import DayDeferred
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.late.decision import CheckReport, DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.late.monitor import Monitor, later_checks
from slackwater.pipeline.definition import Late
from slackwater.project.project import Project
from slackwater.receiver.commits import FileCommitted
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.receiver.pull.file_cache import EntryChanged
from slackwater.runs.arrivals import DayPublished
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import RunState
from slackwater.sources.definition import Source
from slackwater.sources.partitions import Partition
from tests.fakes_check import PIPELINE, PUBLICATION, World, five_days
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_ledger import ArrivalQueueFake
from tests.fakes_receiver import MemoryEventCounts, a_source
from tests.fakes_runs import LONGEST_RUN, DictStore
from tests.pulling import FIRST, SECOND, Setup, csv_of, row

pytestmark = pytest.mark.unit

NOON, ONE = Partition("2013-03-11", "12"), Partition("2013-03-11", "13")
NOW = datetime(2013, 3, 13, 18, 0, 30, tzinfo=UTC)  # 14:00:30 in New York


@pytest.fixture
def reasons(monkeypatch) -> list[str]:
    """The reasons of the warnings that are logged."""
    reasons = []
    for module in (function, record_run):
        monkeypatch.setattr(module, "warn", lambda _message, *, reason: reasons.append(reason))
    return reasons


def monitor_of(world: World, arrivals: ArrivalQueueFake) -> Monitor:
    """A monitor that sends messages to this queue."""
    ports = {"run_table": world.table, "outbox": None, "event_counts": None}
    resources = resources_of(project=world.project, checker=world.checker, arrivals=arrivals, **ports)
    return replace(check_days.monitor(resources), put_metric=lambda *_, **__: None)


def changed_by_pull(setup: Setup, source: Source | None = None) -> dict[str, tuple[Partition, ...]]:
    """Pull; return by file the partitions of which readers see other rows."""
    return {item.path: setup.fetch(item, source=source).partitions for item in setup.plan(source=source).items}


class TestPull:
    def test_a_stored_file_changes_the_partitions_of_its_rows(self):
        setup = Setup({FIRST: csv_of(row("a", "2013-03-11T13:00:00Z"), row("b"), row("c"))})
        assert changed_by_pull(setup) == {FIRST: (NOON, ONE)}

    def test_a_changed_file_changes_the_partitions_of_its_earlier_rows_too(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files[FIRST] = csv_of(row("a", "2013-03-11T13:00:00Z"))
        assert changed_by_pull(setup) == {FIRST: (NOON, ONE)}

    def test_a_file_with_the_content_of_another_one_changes_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        setup.partner.files[SECOND] = setup.partner.files[FIRST]
        assert changed_by_pull(setup) == {SECOND: ()}

    def test_a_file_that_gets_the_content_of_another_one_changes_the_partitions_of_its_earlier_rows(self):
        setup = Setup({FIRST: csv_of(row("a")), SECOND: csv_of(row("b", "2013-03-11T13:00:00Z"))})
        setup.pull()
        setup.partner.files[SECOND] = setup.partner.files[FIRST]
        assert changed_by_pull(setup) == {SECOND: (ONE,)}

    def test_a_content_that_is_read_with_another_definition_changes_its_partitions(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        setup.pull()
        assert changed_by_pull(setup, a_source(null_values=["", "-"])) == {FIRST: (NOON,)}

    def test_an_unchanged_file_changes_nothing(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items
        setup.fetch(item)
        assert setup.fetch(item).partitions == ()

    def test_a_commit_that_is_repeated_after_another_pull_names_each_partition_once(self):
        setup = Setup({FIRST: csv_of(row("a"))})
        (item,) = setup.plan().items

        class Busy:
            """A cache whose first commit fails, because another pull has changed the content."""

            def __init__(self, cache):
                self.cache, self.failures = cache, 1

            def __getattr__(self, name):
                return getattr(self.cache, name)

            def save(self, *records):
                if len(records) > 1 and getattr(records[0], "content", None) and self.failures:
                    self.failures = 0
                    raise EntryChanged
                return self.cache.save(*records)

        busy = []

        def using(port):
            if port is setup.cache:
                busy.append(Busy(port))
                return busy[0]
            return port

        assert setup.fetch(item, using).partitions == (NOON,)
        assert busy[0].failures == 0

    def test_the_function_sends_a_message_for_each_date_and_the_state_machine_gets_no_partitions(self, monkeypatch):
        arrivals, other_day = ArrivalQueueFake(), Partition("2013-03-12", "00")
        fetched = FetchResult(path=FIRST, state="stored", rows=3, partitions=(NOON, ONE, other_day))
        answer = self.fetch(monkeypatch, fetched, arrivals)
        assert [(item.source, item.date, item.hours) for item in arrivals.messages] == [
            ("things", "2013-03-11", ("12", "13")),
            ("things", "2013-03-12", ("00",)),
        ]
        assert all(isinstance(item, FileCommitted) for item in arrivals.messages)
        assert (arrivals.delays, answer.keys()) == ([0, 0], set(FetchResult.model_fields) - {"partitions", "counts"})

    def test_a_message_that_cannot_be_sent_does_not_fail_the_pull(self, monkeypatch, reasons):
        fetched = FetchResult(path=FIRST, state="stored", partitions=(NOON,))
        assert self.fetch(monkeypatch, fetched, ArrivalQueueFake(CloudError("no queue")))["state"] == "stored"
        assert reasons == ["no queue"]

    def fetch(self, monkeypatch, fetched: FetchResult, arrivals: ArrivalQueueFake):
        """The answer of the function when it has fetched a file with this result."""
        project, store = Project(sources={"things": a_source()}, pipelines={}), DictStore()
        store.put("s3://x/answer", fetched.model_dump_json().encode())
        ports = {"arrivals": arrivals, "project": project, "store": store, "event_counts": MemoryEventCounts()}
        use_resources(monkeypatch, fetch_file, {"job_network": ""}, **ports)
        event = {
            "source": "things",
            "work": "s3://x/work",
            "index": 0,
            "correlation_id": "c",
            "answer": "s3://x/answer",
        }
        return fetch_file.handler(event, None)


class TestRun:
    def publish(self, world: World, *, content: str, times: int = 1):
        """Publish the day with these rows; return how many messages say that it has other rows than before."""
        changed = ArrivalQueueFake()
        run = world.freeze("2013-03-10")
        publication = PUBLICATION.model_copy(update={"content": content})
        world.store.put(publication_uri(run.prefix), publication.model_dump_json().encode())
        recorder = RunRecorder(store=world.store, table=world.table, now=world.now, arrivals=changed)
        for _ in range(times):
            recorder.record_published(run)
        assert world.table.run(PIPELINE, "2013-03-10", run.attempt).state is RunState.PUBLISHED
        assert all((each.pipeline, each.date) == (run.pipeline, run.date) for each in changed.messages)
        return len(changed.messages)

    def test_only_a_publication_of_other_rows_is_reported(self):
        world = World()
        numbers = []
        for number, content in enumerate(("rows", "rows", "other", "other", "")):
            world.add("flights", "2013-03-10", "17", name=f"late {number}")
            numbers.append(self.publish(world, content=content))
        # An older version publishes without a digest of the rows: then nobody knows.
        assert numbers == [1, 0, 1, 0, 1]

    def test_a_repeated_call_reports_again_because_the_first_one_may_not_have(self):
        world = World()
        world.add("flights", "2013-03-10", "17")
        assert self.publish(world, content="rows", times=2) == 2

    def test_the_function_sends_one_message(self, monkeypatch):
        arrivals = ArrivalQueueFake()
        monkeypatch.setattr(record_run, "utc_now", lambda: NOW)
        self.recorder(arrivals).request_checks(LONGEST_RUN)
        (message,) = arrivals.messages
        assert isinstance(message, DayPublished)
        assert (message.pipeline, message.date, message.time) == (LONGEST_RUN.pipeline, LONGEST_RUN.date, NOW)

    def test_a_message_that_cannot_be_sent_does_not_fail_the_run(self, reasons):
        arrivals = ArrivalQueueFake(CloudError("no queue"))
        self.recorder(arrivals).request_checks(LONGEST_RUN)
        assert reasons == ["no queue"]

    def recorder(self, arrivals: ArrivalQueueFake) -> RunRecorder:
        """The recorder of the function."""
        ports = {"store": None, "run_table": None, "arrivals": arrivals}
        return record_run.recorder(resources_of({"intermediate_days": "1"}, **ports))


def deferred(date: str, *, after: timedelta | None) -> DayDecision:
    figures = DecisionFigures(not_before=NOW + after if after else None)
    rule, decision = DecisionRule.COOL_DOWN, LateDecision.DEFER
    return DayDecision(pipeline=PIPELINE, date=date, decision=decision, rule=rule, reasons=("why",), figures=figures)


class TestCheck:
    def test_days_that_are_not_deferred_or_wait_for_a_person_get_none(self):
        other = deferred("2013-03-09", after=timedelta(hours=1)).model_copy(update={"decision": LateDecision.RERUN})
        unlisted = deferred("2013-03-08", after=None).model_copy(update={"figures": None})
        days = [other, unlisted, deferred("2013-03-10", after=None)]
        assert list(later_checks(self.report(*days))) == []

    @pytest.mark.parametrize(
        ("rule", "error_may_pass", "complete", "is_sent"),
        [
            (DecisionRule.RUNNING, False, False, True),
            # Messages about data of a running day wait until the run has ended.
            (DecisionRule.RUNNING, False, True, False),
            (DecisionRule.CHANGING, True, False, True),
            (DecisionRule.UNREADABLE, True, True, True),
            # It is on hold.
            (DecisionRule.UNREADABLE, False, False, False),
            (DecisionRule.VANISHED, False, False, False),
        ],
    )
    def test_a_day_that_could_not_be_decided_gets_a_message(self, rule, *, error_may_pass, complete, is_sent):
        day = DayDecision(
            pipeline=PIPELINE, date="2013-03-10", decision=LateDecision.HOLD, rule=rule, reasons=("r",),
            error_may_pass=error_may_pass,
        )  # fmt: skip
        arrivals = ArrivalQueueFake()
        monitor_of(World(), arrivals).request_checks(self.report(day, complete=complete))
        assert [item.not_before for item in arrivals.messages] == [NOW + timedelta(minutes=5)] * is_sent
        assert arrivals.delays == [300] * is_sent

    def test_data_that_arrives_just_before_a_run_starts_is_checked_after_it(self):
        world, arrivals, started = five_days(), ArrivalQueueFake(), []
        world.add("flights", "2013-03-10", "20", name="late", rows=500)
        # The message about this object has started a check, and before the check begins a run has listed its inputs.
        world.freeze("2013-03-10")
        world.add("flights", "2013-03-10", "21", name="later", rows=500)
        report = world.checker.check(pipeline=PIPELINE, as_of=None, dates=["2013-03-10"])
        monitor_of(world, arrivals).request_checks(report)
        world.executions.running.clear()
        world.time += timedelta(minutes=5)
        checks = ArrivalChecks(
            project=world.project, table=world.table, executions=world.executions, now=world.now,
            start=lambda *, name, payload: started.append(payload["days"]), send_later=lambda _: None,
            update_table=lambda *_: None,
            wake_source=lambda _source, _hours: None,
        )  # fmt: skip
        checks.start_checks({"m": arrivals.messages[0].model_dump_json()})
        assert started == [("2013-03-10",)]

    def report(self, *days: DayDecision, complete: bool = True) -> CheckReport:
        return CheckReport(
            pipeline=PIPELINE, as_of="2013-03-13", checked_at=NOW, seconds=1, days=days, complete=complete
        )

    def test_the_function_delays_a_message_until_the_day_may_run_at_most_15_minutes(self):
        arrivals = ArrivalQueueFake()
        # Also beyond the next scheduled check: a deployment may have no schedule.
        waits = {"2013-03-10": timedelta(minutes=3), "2013-03-11": timedelta(hours=1), "2013-03-12": timedelta(days=2)}
        report = self.report(*(deferred(date, after=wait) for date, wait in waits.items()))
        monitor_of(World(), arrivals).request_checks(report)
        assert all(isinstance(item, DayDeferred) for item in arrivals.messages)
        assert [(item.date, item.not_before - NOW) for item in arrivals.messages] == list(waits.items())
        assert arrivals.delays == [180, 900, 900]

    def test_a_message_that_cannot_be_sent_does_not_fail_the_check(self):
        reasons = []
        monitor = monitor_of(World(), ArrivalQueueFake(CloudError("no queue")))
        monitor = replace(monitor, warn=lambda _message, *, reason: reasons.append(reason))
        report = self.report(deferred("2013-03-10", after=timedelta(hours=1)))
        monitor.request_checks(report)
        assert reasons == ["no queue"]

    @pytest.mark.parametrize(("rows", "rule"), [(1, DecisionRule.BELOW), (500, DecisionRule.TOO_EXPENSIVE)])
    def test_late_data_that_waits_is_checked_when_it_has_waited_for_as_long_as_it_may(self, rows, rule):
        world, day = five_days(), "2013-03-10"
        self.define(world, max_age_hours=6, worth_per_percent=0.001)
        record = world.table.run(PIPELINE, day, 1)
        world.table.save_cost(record.model_copy(update={"cost": RunCost(usd=1.0, complete=True)}))
        uri = world.add("flights", day, "18", name="late", rows=rows)
        (arrived,) = (item.modified for item in world.store.list(uri))
        messages = []
        for minutes in (0.1, 100 / 3, 359.9):
            world.time = arrived + timedelta(minutes=minutes)
            report = world.check("2013-03-13")
            assert {each.date: each.rule for each in report.days}[day] is rule
            messages += later_checks(report)
        # One for each check, all about the same instant: the queue handles them as one.
        assert [(each.date, each.not_before) for each in messages] == [(day, arrived + timedelta(hours=6))] * 3
        assert len({each.id for each in messages}) == 1
        world.time = messages[0].not_before
        assert world.rules("2013-03-13")[day] in {DecisionRule.AGED, DecisionRule.GROWN}

    @pytest.mark.parametrize(("hours", "is_sent"), [(25, True), (26, False), (1e12, False)])
    def test_late_data_that_may_wait_beyond_the_next_daily_check_gets_its_message_there(self, hours, is_sent):
        world = five_days()
        self.define(world, max_age_hours=hours)
        uri = world.add("flights", "2013-03-10", "18", name="late", rows=1)
        (world.time,) = (item.modified for item in world.store.list(uri))
        assert len(list(later_checks(world.check("2013-03-13")))) == is_sent

    def define(self, world: World, **late: float) -> None:
        definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(**late)})
        world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})

    def test_a_day_in_its_cool_down_gets_a_message(self):
        world = five_days()
        for name in ("first", "second"):
            world.time += timedelta(minutes=1)
            world.add("flights", "2013-03-10", "20", name=name, rows=500)
            publication = PUBLICATION.model_copy(update={"replaced": 1})
            if name == "first":
                run = world.freeze("2013-03-10")
                world.store.put(publication_uri(run.prefix), publication.model_dump_json().encode())
                world.recorder.record_published(run)
                ran_at = world.now()
        arrivals = ArrivalQueueFake()
        monitor_of(world, arrivals).request_checks(world.check())
        (message,) = arrivals.messages
        assert (message.date, message.not_before) == ("2013-03-10", ran_at + timedelta(hours=1))
        assert arrivals.delays == [900]
