import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from lambdas import check_days, notify_change
from slackwater.aws import function_resources
from slackwater.costs.cost import RunCost
from slackwater.errors import Throttled
from slackwater.late.changes import notify
from slackwater.late.changes.hour_notices import ComparedHour, HourResults
from slackwater.late.changes.notify import NotificationResult, Notifier
from slackwater.late.changes.outbox import Outbox
from slackwater.late.decision import CheckReport, report_uri
from slackwater.metrics import Metric
from slackwater.pipeline.definition import Late
from slackwater.receiver.event_counts import EventCount
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.cost_recorder import RecordedCosts
from slackwater.runs.pipeline_records import ArrivalHistory, CountedRerun, RerunUsage
from slackwater.sources.counts import Counts
from slackwater.sources.partitions import Partition
from slackwater.state.messages import read_message
from tests.fakes_check import NOW, PIPELINE, PUBLICATION, World
from tests.fakes_functions import NoCosts, resources_of, use_resources
from tests.fakes_notification import TopicFake, a_comparison
from tests.fakes_receiver import MemoryEventCounts

pytestmark = pytest.mark.unit

EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:m-1"


class Metrics:
    """The metrics that were put, by metric and pipeline or source."""

    def __init__(self):
        self.put = {}

    def __call__(self, metric, value, *, pipeline=None, source=None):
        self.put[metric, pipeline or source] = value


def outbox_of(world, topic):
    return Outbox(
        executions=world.executions, topic=topic, now=world.now,
        put_metric=lambda *_, **__: None, warn=lambda *_, **__: None,
    )  # fmt: skip


@pytest.fixture
def metrics(monkeypatch):
    metrics = Metrics()
    for module in (function_resources, check_days, notify_change):
        monkeypatch.setattr(module, "put_metric", metrics)
    return metrics


@pytest.fixture
def event_counts():
    return MemoryEventCounts()


@pytest.fixture
def resources(event_counts):
    """The resources of a check."""
    return resources_of(event_counts=event_counts)


@pytest.fixture
def topic():
    return TopicFake()


@pytest.fixture
def check(world, topic, metrics, resources, monkeypatch):
    monkeypatch.setattr(check_days, "function_resources", lambda: resources)

    def check(**more):
        ports = {"project": world.project, "checker": world.checker, "run_table": world.table}
        vars(resources).update(ports, state_machines=world.executions, outbox=outbox_of(world, topic))
        return check_days.handler({"pipeline": PIPELINE, "execution": EXECUTION, "correlation_id": "c"} | more, None)

    return check


def test_a_check_returns_the_uri_of_its_report_and_the_days_to_process(world, check):
    world.add("flights", "2013-03-10", "20", name="late", rows=10)
    answer = check(as_of=None)
    assert answer == {
        "report": report_uri("exchange", PIPELINE, "2013-03-13", EXECUTION),
        "days": [{"date": "2013-03-10", "action": "rerun"}],
        "split": False,
        "hourly": False,
        "timezone": "America/New_York",
    }
    report = CheckReport.model_validate_json(world.store.get(answer["report"]))
    assert (report.as_of, report.correlation_id, len(report.days)) == ("2013-03-13", "c", 8)


def test_a_check_notifies_people_of_a_new_definition_and_a_refused_message_stops_nothing(world, check, metrics, topic):
    check()
    definition = world.project.pipelines[PIPELINE].model_copy(update={"timezone": "UTC"})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    topic.refuses = Throttled("slow down")
    check()
    assert (Metric.NOTIFICATIONS_SENT, PIPELINE) not in metrics.put
    assert metrics.put[Metric.CHECK_PARTS_FAILED, PIPELINE] == 1
    topic.refuses = None
    check()
    check()
    assert (len(topic.sent), metrics.put[Metric.NOTIFICATIONS_SENT, PIPELINE]) == (1, 1)


def test_a_check_of_the_window_lets_the_tables_of_its_sources_follow_and_one_of_some_days_does_not(check, resources):
    updated = {}
    vars(resources)["update_raw_table"] = lambda source, partitions: updated.update({source: sorted(partitions)})
    check(days=["2013-03-10"])
    assert updated == {}
    check()
    assert updated.keys() == {"flights", "weather"}
    # The window of seven days and the current one, from midnight in New York to midnight, in daylight saving time.
    first, last = Partition("2013-03-06", "05"), Partition("2013-03-14", "03")
    assert (updated["flights"][0], updated["flights"][-1], len(updated["flights"])) == (first, last, 8 * 24 - 1)


def test_a_check_of_the_window_has_the_states_of_sources_with_counts_computed_again(world, check, resources):
    sent = []
    vars(resources)["state_messages"] = sent.extend
    counted = world.project.sources["flights"].model_copy(update={"counts": Counts(window="1h")})
    world.project = world.project.model_copy(update={"sources": {**world.project.sources, "flights": counted}})
    check(days=["2013-03-10"])
    assert sent == []
    check()
    messages = [read_message(body) for body, _ in sent]
    assert {(message.source, message.listing) for message in messages} == {("flights", True)}
    assert [len(message.hours) for message in messages] == [19, *[24] * 7, 4]


def test_a_check_of_the_current_day_puts_levels(world, check, metrics):
    world.add("flights", "2013-03-08", "20", name="below", rows=9)
    world.add("flights", "2013-03-09", "20", name="late", rows=30)
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.store.delete(["s3://raw/raw/source=weather/date=2013-03-10/hour=17/a.parquet"])
    del world.table.by_day[PIPELINE, "2013-03-11"]
    check()
    newest = max(item[2] for uri, item in world.store.objects.items() if "source=weather" in uri)
    silent_hours = world.project.source("weather").silent_hours
    assert metrics.put == {
        (Metric.DAYS_ON_HOLD, PIPELINE): 1,
        (Metric.LATE_BYTES_UNPROCESSED, PIPELINE): 500,
        (Metric.LATE_BYTES_IGNORED, PIPELINE): 9,
        (Metric.DAYS_OVERDUE, PIPELINE): 1,
        (Metric.LATE_DAYS_OLDER, PIPELINE): 0,
        (Metric.HOURS_SINCE_ARRIVAL, "flights"): metrics.put[Metric.HOURS_SINCE_ARRIVAL, "flights"],
        (Metric.HOURS_SINCE_ARRIVAL, "weather"): (NOW - newest) / timedelta(hours=1),
        # Known for less than two weeks: `silent_hours` is usual.
        (Metric.SILENCE_PERCENT, "flights"): metrics.put[Metric.SILENCE_PERCENT, "flights"],
        (Metric.SILENCE_PERCENT, "weather"): pytest.approx(100 * (NOW - newest) / timedelta(hours=silent_hours)),
        (Metric.REJECTED_PERCENT_ABOVE_NORMAL, "flights"): 0,
        (Metric.REJECTED_PERCENT_ABOVE_NORMAL, "weather"): 0,
    }


def test_a_check_of_today_compares_the_reject_rate_of_each_source_with_its_normal_one(check, metrics, event_counts):
    for days, rejected in ((0, 300), (2, 10), (3, 10)):
        event_counts.add("weather", EventCount(1000, rejected), at=NOW - timedelta(days=days))
    for event in ({"as_of": "2013-03-12"}, {"days": ["2013-03-10"]}):
        check(**event)
        assert not [metric for metric, _ in metrics.put if metric is Metric.REJECTED_PERCENT_ABOVE_NORMAL]
    check()
    assert metrics.put[Metric.REJECTED_PERCENT_ABOVE_NORMAL, "weather"] == pytest.approx(29)
    assert metrics.put[Metric.REJECTED_PERCENT_ABOVE_NORMAL, "flights"] == 0


def test_a_check_goes_on_if_the_counts_of_events_cannot_be_read(check, metrics, event_counts):
    event_counts.broken = True
    assert check()["days"] == []
    assert metrics.put[Metric.CHECK_PARTS_FAILED, PIPELINE] == 1
    assert not [metric for metric, _ in metrics.put if metric is Metric.REJECTED_PERCENT_ABOVE_NORMAL]
    assert (Metric.SILENCE_PERCENT, "weather") in metrics.put


def test_a_check_compares_the_silence_of_a_source_with_its_history(world, check, metrics):
    mornings = [NOW - timedelta(days=back, hours=4) for back in range(2, 28)]
    history = ArrivalHistory(pipeline=PIPELINE).with_arrivals({"flights": mornings, "gone": mornings}, now=NOW)
    world.table.save_arrival_history(history)
    check()
    hours = metrics.put[Metric.HOURS_SINCE_ARRIVAL, "flights"]
    # Usually, it has been silent for up to 6 hours: since 9:00 in New York, at 13:00, 14:00 and 15:00. Since the clocks
    # have changed, that is an hour earlier in UTC.
    assert metrics.put[Metric.SILENCE_PERCENT, "flights"] == pytest.approx(100 * hours / 6)
    stored = world.table.arrival_history(PIPELINE)
    assert set(stored.sources) == {"flights", "weather"}
    assert set(history.hours("flights")) <= set(stored.hours("flights"))


def test_a_check_goes_on_if_the_history_of_arrivals_cannot_be_written(world, check, metrics, monkeypatch):
    def refuse(history):
        raise Throttled("could not record the arrivals")

    monkeypatch.setattr(world.table, "save_arrival_history", refuse)
    check()
    assert (Metric.SILENCE_PERCENT, "weather") in metrics.put


@pytest.mark.parametrize("days", [None, ["2013-03-10", "2013-03-11"]])
def test_a_check_of_today_puts_how_much_of_its_budget_a_pipeline_needs(world, check, metrics, days):
    definition = world.project.pipelines[PIPELINE]
    check(days=days)
    assert (Metric.BUDGET_PERCENT, PIPELINE) not in metrics.put
    late = Late(budget_per_day=4)
    changed = {PIPELINE: definition.model_copy(update={"late": late})}
    world.project = world.project.model_copy(update={"pipelines": changed})
    counted = CountedRerun(date="2013-03-09", attempt=2, at=NOW, usd=3)
    world.table.save_rerun_usage(RerunUsage(pipeline=PIPELINE, date="2013-03-13", reruns=(counted,)))
    check(days=days)
    assert metrics.put[Metric.BUDGET_PERCENT, PIPELINE] == 75
    metrics.put.clear()
    check(as_of="2013-03-12")
    assert (Metric.BUDGET_PERCENT, PIPELINE) not in metrics.put


@pytest.mark.parametrize(
    "gone", ["raw/raw/source=weather/date=2013-03-10/", "exchange/manifests/daily_delays/2013-03-10/"]
)
def test_a_day_can_be_on_hold_without_late_data(world, check, metrics, gone):
    world.store.delete([uri for uri in world.store.objects if uri.startswith(f"s3://{gone}")])
    check()
    assert metrics.put[Metric.DAYS_ON_HOLD, PIPELINE] == 1
    assert metrics.put[Metric.LATE_BYTES_UNPROCESSED, PIPELINE] == 0


def test_late_data_that_a_limit_defers_is_unprocessed_and_a_cool_down_is_no_reason_for_an_alarm(world, check, metrics):
    definition = world.project.pipelines[PIPELINE]
    for number, cool_down_hours in enumerate((1, 0)):
        late = Late(max_reruns_per_day=1, cool_down_hours=cool_down_hours)
        changed = {PIPELINE: definition.model_copy(update={"late": late})}
        world.project = world.project.model_copy(update={"pipelines": changed})
        if number == 0:
            world.add("flights", "2013-03-10", "20", name="first", rows=500)
            run = world.freeze("2013-03-10")
            publication = PUBLICATION.model_copy(update={"replaced": 1})
            world.store.put(publication_uri(run.prefix), publication.model_dump_json().encode())
            world.recorder.record_published(run)
            world.add("flights", "2013-03-10", "20", name="second", rows=300)
            world.add("flights", "2013-03-11", "20", name="late", rows=40)
        # What the first check has counted does not stop the second one.
        assert [day["date"] for day in check()["days"] if day["action"] == "rerun"] == ["2013-03-11"]
        assert metrics.put[Metric.LATE_BYTES_UNPROCESSED, PIPELINE] == (0 if cool_down_hours else 300)


def test_a_check_of_the_past_puts_no_level(check, metrics):
    check(as_of="2013-03-12")
    # Days on hold are counted from the index, whatever day the check is as of.
    assert set(metrics.put) == {(Metric.DAYS_ON_HOLD, PIPELINE)}


@pytest.mark.parametrize(("silent_hours", "hours"), [(48, 7 * 24 + 14), (500, 500)])
def test_a_source_without_any_arrival_is_silent_for_the_whole_checked_period(monkeypatch, metrics, silent_hours, hours):
    world = World()
    world.time = datetime(2013, 2, 13, 19, tzinfo=UTC)
    sources = {
        name: source.model_copy(update={"silent_hours": silent_hours}) for name, source in world.project.sources.items()
    }
    world.project = world.project.model_copy(update={"sources": sources})
    use_resources(
        monkeypatch, check_days, project=world.project, checker=world.checker, run_table=world.table,
        state_machines=world.executions, event_counts=MemoryEventCounts(), outbox=outbox_of(world, TopicFake()),
    )  # fmt: skip
    check_days.handler({"pipeline": PIPELINE, "execution": EXECUTION, "correlation_id": "c"}, None)
    assert metrics.put[Metric.HOURS_SINCE_ARRIVAL, "weather"] == hours


class FakeNotifier:
    def __init__(self, result):
        self.result, self.calls = result, []

    def notify(self, **arguments):
        self.calls.append(arguments)
        return self.result


@pytest.mark.parametrize(
    ("result", "counted"),
    [
        (NotificationResult(notified=True, message="s3://exchange/m.json"), {(Metric.NOTIFICATIONS_SENT, PIPELINE): 1}),
        (NotificationResult(notified=False, reason="already notified"), {}),
    ],
)
def test_a_notification_returns_its_result(monkeypatch, metrics, result, counted):
    notifier = FakeNotifier(result)
    use_resources(monkeypatch, notify_change, notifier=notifier)
    request = {"pipeline": PIPELINE, "date": "2013-03-10", "comparison": "s3://exchange/c.json", "execution": EXECUTION}
    answer = notify_change.handler(request | {"correlation_id": "c"}, None)
    assert answer == {"notified": result.notified, "reason": result.reason, "message": result.message}
    assert notifier.calls == [request]
    assert metrics.put == counted


@pytest.mark.parametrize("messages", [0, 2])
def test_the_results_of_hours_are_returned_and_their_messages_are_counted(monkeypatch, metrics, messages):
    hours, called = ("2013-03-10T15", "2013-03-10T16"), []
    results = {hour: NotificationResult(notified=bool(messages), message=f"s3://exchange/{hour}") for hour in hours}

    class FakeHours:
        def __init__(self, *, notifier):
            assert notifier == "notifier"

        def notify(self, **request):
            called.append(request)
            return HourResults(results, messages)

    use_resources(monkeypatch, notify_change, notifier="notifier")
    monkeypatch.setattr(notify_change, "HourNotifier", FakeHours)
    compared = [{"date": hour, "comparison": f"s3://exchange/{hour}/c.json"} for hour in hours]
    request = {"pipeline": PIPELINE, "timezone": "Asia/Kolkata", "execution": EXECUTION}
    answer = notify_change.handler({**request, "hours": compared, "correlation_id": "c"}, None)
    assert answer == {"hours": [{"date": hour, **results[hour].model_dump()} for hour in hours]}
    assert called == [{**request, "hours": tuple(ComparedHour(**hour) for hour in compared)}]
    assert metrics.put == ({(Metric.NOTIFICATIONS_SENT, PIPELINE): 2} if messages else {})


def test_an_unknown_outcome_is_counted_for_its_pipeline(metrics):
    resources = resources_of({"change_topic": "arn"}, state_machines=None)
    resources.outbox.report_unknown_outcome(PIPELINE, "2013-03-10")
    assert metrics.put == {(Metric.NOTIFICATION_OUTCOME_UNKNOWN, PIPELINE): 1}


def known_costs(costs, comparison):
    notifier = Notifier(store=None, table=None, outbox=outbox_of(World(), TopicFake()), costs=costs)
    return notifier.known_costs(comparison)


def test_a_message_does_not_wait_for_costs():
    class Costs:
        def attempt_costs(self, pipeline, date, *, before, after):
            if before == 2:
                raise Throttled("slow down")
            return AttemptCosts(RunCost(usd=float(after)), None)

    assert known_costs(Costs(), a_comparison(before=1, after=2)) == (RunCost(usd=2.0), None)
    assert known_costs(Costs(), a_comparison(before=2, after=3)) is None


def test_a_message_waits_for_costs_for_a_limited_time(monkeypatch):
    released = threading.Event()

    class Costs:
        def attempt_costs(self, pipeline, date, *, before, after):
            assert released.wait(10)
            return AttemptCosts(RunCost(usd=1.0), None)

    monkeypatch.setattr(notify, "_COSTS_SECONDS", 0.05)
    started = time.perf_counter()
    try:
        assert known_costs(Costs(), a_comparison(before=1, after=2)) is None
        assert time.perf_counter() - started < 5
    finally:
        released.set()


def test_a_check_completes_costs_last(check, metrics, resources):
    class Costs:
        def record_due(self, pipeline, *, within):
            assert within == timedelta(seconds=30)
            assert (Metric.LATE_BYTES_UNPROCESSED, PIPELINE) in metrics.put
            return RecordedCosts((), ("one run was throttled",))

    resources.costs = Costs()
    check()
    assert metrics.put[Metric.CHECK_PARTS_FAILED, PIPELINE] == 1


def test_a_check_goes_on_if_costs_cannot_be_recorded(check, metrics, resources):
    class Costs:
        def record_due(self, pipeline, *, within):
            raise Throttled("could not read the due costs")

    resources.costs = Costs()
    assert check()["report"]
    assert metrics.put[Metric.CHECK_PARTS_FAILED, PIPELINE] == 1


def test_a_check_of_some_days_and_a_long_one_leave_costs_to_the_next_check(check, resources):
    class Costs:
        def record_due(self, pipeline, *, within):
            raise AssertionError

    resources.costs = Costs()
    assert check(days=["2013-03-10"])["report"]
    check_days.monitor(resources).record_costs(PIPELINE, elapsed=timedelta(minutes=8))


def test_the_time_that_is_left_bounds_the_recording_of_costs(check, resources):
    class Costs(NoCosts):
        def record_due(self, pipeline, *, within):
            asked.append(within)
            return super().record_due(pipeline, within=within)

    resources.costs, asked = Costs(), []
    check(days=["2013-03-10"])
    check_days.monitor(resources).record_costs(PIPELINE, elapsed=timedelta(minutes=7, seconds=50))
    assert asked == [timedelta(seconds=10)]
