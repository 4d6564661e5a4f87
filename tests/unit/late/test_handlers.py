from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from lambdas.check_days import handler as check_days
from lambdas.notify_change import handler as notify_change
from slackwater.errors import Throttled
from slackwater.late.changes.notify import NotificationResult
from slackwater.late.check.decision import CheckReport, report_uri
from slackwater.metrics import Metric
from slackwater.runs.cost import RunCost
from slackwater.runs.cost_recorder import RecordedCosts
from tests.fakes_check import NOW, PIPELINE, World, five_days

pytestmark = pytest.mark.unit

EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:m-1"


class Metrics:
    """The metrics that were put, by metric and pipeline or source."""

    def __init__(self):
        self.put = {}

    def __call__(self, metric, value, *, pipeline=None, source=None):
        self.put[metric, pipeline or source] = value


class NoCosts:
    """A recorder of costs for which none is due."""

    def record_due(self, pipeline, *, within):
        return RecordedCosts((), ())


NO_COSTS = NoCosts()


@pytest.fixture
def world():
    return five_days()


@pytest.fixture
def metrics(monkeypatch):
    metrics = Metrics()
    for module in (check_days, notify_change):
        monkeypatch.setattr(module, "put_metric", metrics)
    return metrics


@pytest.fixture
def check(world, metrics, monkeypatch):
    monkeypatch.setattr(check_days, "build_checker", lambda: world.checker)
    monkeypatch.setattr(check_days, "build_costs", lambda: NO_COSTS)

    def check(**more):
        return check_days.handler({"pipeline": PIPELINE, "execution": EXECUTION, "correlation_id": "c"} | more, None)

    return check


def test_a_check_returns_the_uri_of_its_report_and_the_days_to_process(world, check):
    world.add("flights", "2013-03-10", "20", name="late", rows=10)
    answer = check(as_of=None)
    assert answer == {
        "report": report_uri("exchange", PIPELINE, "2013-03-13", EXECUTION),
        "days": [{"date": "2013-03-10", "action": "rerun"}],
    }
    report = CheckReport.model_validate_json(world.store.get(answer["report"]))
    assert (report.as_of, report.correlation_id, len(report.days)) == ("2013-03-13", "c", 8)


def test_a_check_of_the_current_day_puts_counts_and_levels(world, check, metrics):
    world.add("flights", "2013-03-08", "20", name="below", rows=9)
    world.add("flights", "2013-03-09", "20", name="late", rows=30)
    world.add("flights", "2013-03-10", "20", name="late", rows=500)
    world.store.delete(["s3://raw/raw/source=weather/date=2013-03-10/hour=17/a.parquet"])
    del world.table.by_day[PIPELINE, "2013-03-11"]
    check()
    newest = max(item[2] for uri, item in world.store.objects.items() if "source=weather" in uri)
    assert metrics.put == {
        (Metric.DAYS_RERUN, PIPELINE): 1,
        (Metric.LATE_BYTES, PIPELINE): 530,
        (Metric.DAYS_ON_HOLD, PIPELINE): 1,
        (Metric.LATE_BYTES_UNPROCESSED, PIPELINE): 500,
        (Metric.LATE_BYTES_IGNORED, PIPELINE): 9,
        (Metric.DAYS_OVERDUE, PIPELINE): 1,
        (Metric.LATE_DAYS_OLDER, PIPELINE): 0,
        (Metric.HOURS_SINCE_ARRIVAL, "flights"): metrics.put[Metric.HOURS_SINCE_ARRIVAL, "flights"],
        (Metric.HOURS_SINCE_ARRIVAL, "weather"): (NOW - newest) / timedelta(hours=1),
    }


@pytest.mark.parametrize(
    "gone", ["raw/raw/source=weather/date=2013-03-10/", "exchange/manifests/daily_delays/2013-03-10/"]
)
def test_a_day_can_be_on_hold_without_late_data(world, check, metrics, gone):
    world.store.delete([uri for uri in world.store.objects if uri.startswith(f"s3://{gone}")])
    check()
    assert metrics.put[Metric.DAYS_ON_HOLD, PIPELINE] == 1
    assert metrics.put[Metric.LATE_BYTES_UNPROCESSED, PIPELINE] == 0


def test_a_check_of_the_past_puts_no_level(check, metrics):
    check(as_of="2013-03-12")
    # Days on hold are counted from the index, whatever day the check is as of.
    assert set(metrics.put) == {
        (metric, PIPELINE) for metric in (Metric.DAYS_RERUN, Metric.LATE_BYTES, Metric.DAYS_ON_HOLD)
    }


@pytest.mark.parametrize(("silent_hours", "hours"), [(48, 7 * 24 + 14), (500, 500)])
def test_a_source_without_any_arrival_is_silent_for_the_whole_checked_period(monkeypatch, metrics, silent_hours, hours):
    world = World()
    world.time = datetime(2013, 2, 13, 19, tzinfo=UTC)
    sources = {
        name: source.model_copy(update={"silent_hours": silent_hours}) for name, source in world.project.sources.items()
    }
    world.project = world.project.model_copy(update={"sources": sources})
    monkeypatch.setattr(check_days, "build_checker", lambda: world.checker)
    monkeypatch.setattr(check_days, "build_costs", lambda: NO_COSTS)
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
    monkeypatch.setattr(notify_change, "build_notifier", lambda: notifier)
    request = {"pipeline": PIPELINE, "date": "2013-03-10", "comparison": "s3://exchange/c.json", "execution": EXECUTION}
    answer = notify_change.handler(request | {"correlation_id": "c"}, None)
    assert answer == {"notified": result.notified, "reason": result.reason, "message": result.message}
    assert notifier.calls == [request]
    assert metrics.put == counted


def test_an_unknown_outcome_is_counted_for_its_pipeline(monkeypatch, metrics):
    monkeypatch.setenv("RUN_TABLE", "runs")
    monkeypatch.setenv("CHANGE_TOPIC", "arn:aws:sns:us-east-1:000000000000:changes")
    monkeypatch.setattr(notify_change, "client", lambda service, config: None)
    notify_change.build_notifier.cache_clear()
    notify_change.build_notifier().on_outcome_unknown(PIPELINE)
    notify_change.build_notifier.cache_clear()
    assert metrics.put == {(Metric.NOTIFICATION_OUTCOME_UNKNOWN, PIPELINE): 1}


def test_a_check_completes_costs_last_and_puts_the_price_of_each_run(world, check, metrics, monkeypatch):
    class Costs:
        def record_due(self, pipeline, *, within):
            assert within == timedelta(seconds=30)
            assert (Metric.DAYS_RERUN, PIPELINE) in metrics.put
            priced = [RunCost(usd=0.25, complete=True), RunCost(complete=True, unknown="gone")]
            records = [SimpleNamespace(cost=cost) for cost in priced]
            return RecordedCosts(tuple(records), ("one run was throttled",))

    monkeypatch.setattr(check_days, "build_costs", Costs)
    check()
    assert metrics.put[Metric.RUN_COST, PIPELINE] == 0.25


def test_a_check_goes_on_if_costs_cannot_be_recorded(check, metrics, monkeypatch):
    class Costs:
        def record_due(self, pipeline, *, within):
            raise Throttled("could not read the due costs")

    monkeypatch.setattr(check_days, "build_costs", Costs)
    assert check()["report"]
    assert (Metric.RUN_COST, PIPELINE) not in metrics.put


def test_a_check_of_some_days_and_a_long_one_leave_costs_to_the_next_check(check, monkeypatch):
    class Costs:
        def record_due(self, pipeline, *, within):
            raise AssertionError

    monkeypatch.setattr(check_days, "build_costs", Costs)
    assert check(days=["2013-03-10"])["report"]
    check_days.record_costs(Costs(), PIPELINE, elapsed=timedelta(minutes=8))


def test_the_time_that_is_left_bounds_the_recording_of_costs(monkeypatch):
    class Costs(NoCosts):
        def record_due(self, pipeline, *, within):
            asked.append(within)
            return super().record_due(pipeline, within=within)

    asked = []
    check_days.record_costs(Costs(), PIPELINE, elapsed=timedelta(minutes=7, seconds=50))
    assert asked == [timedelta(seconds=10)]
