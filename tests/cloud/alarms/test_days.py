"""Alarms about runs, days and the monitor fire when their cause happens, as a client of CloudWatch sees it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.aws.dynamodb.cost_items import run_item
from slackwater.aws.dynamodb.items import item_key
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.runs.record import DayRecord, NotificationClaim
from tests.cloud.alarms.aws_commands import commands_of, executions
from tests.cloud.alarms.drill import (
    DAY,
    PAGE,
    PIPELINE,
    WARNING,
    causes,
    changed_alarm,
    check,
    invoke,
    observed,
    reset_alarm,
    until,
    until_ok,
)
from tests.cloud.conftest import start
from tests.fakes_comparison import comparison, version

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


def test_events_are_counted_by_outcome(pushed):
    assert pushed == {"EventsAccepted": 4, "EventsDuplicate": 3, "EventsRejected": 1}


@causes("run-failed", "execution-failed")
def test_a_failed_run_pages_for_its_pipeline_and_the_message_names_the_runbook(cloud, failed, state, messages, runbook):
    assert failed == 1
    for alarm in ("run-failed", "execution-failed"):
        assert until(lambda of=alarm: state(f"{of}-{PIPELINE}") == "ALARM")
    [message] = until(lambda: messages.of(PAGE, f"pipeline-{PIPELINE}"))
    assert re.search(rf":slackwater-(run|execution)-failed-{PIPELINE} transitioned to ALARM", message["NewStateReason"])
    assert "docs/runbooks/run-failed.md" in message["AlarmDescription"]
    _, listed, described = runbook("execution-failed")
    assert executions(listed)[0]["status"] == "FAILED"
    assert DAY in json.loads(described)["input"]
    assert json.loads(described)["cause"]


def test_a_published_run_is_counted(published_today):
    assert published_today == 1


@causes("day-overdue")
def test_a_day_that_is_not_published_by_its_deadline_pages_no_second_time(
    cloud, published_today, metric, *, state, messages, runbook
):
    check(cloud)
    assert until(lambda: metric("DaysOverdue", "Maximum", pipeline=PIPELINE)) >= 1
    assert until(lambda: state(f"day-overdue-{PIPELINE}") == "ALARM")
    # A later report of a check of one day, which lists no overdue days.
    check(cloud, name=f"arrival-{'0' * 32}", days=[DAY])
    _, report = runbook("day-overdue", EXCHANGE_BUCKET=cloud.outputs()["ExchangeBucket"])
    overdue = json.loads(report)["overdue"]
    assert overdue
    assert DAY not in overdue
    assert len(messages.of(PAGE, f"pipeline-{PIPELINE}")) == 1


@pytest.fixture
def limited(cloud, published_today):
    """Record the published run of `DAY`, with its price, for the pipeline with a budget. Returns the pipeline.

    A real run of it would take three Spark jobs.
    """
    pipeline, database = "staged_delays", cloud.client("dynamodb")
    table = DynamoRunTable(database, cloud.outputs()["RunTable"])
    check(cloud)
    published = table.day(PIPELINE, DAY).published
    record = table.run(PIPELINE, DAY, attempt := published.run.attempt)
    assert record.cost.complete
    run = record.run.model_copy(update={"pipeline": pipeline})
    published = published.model_copy(update={"run": run})
    day = DayRecord(pipeline=pipeline, date=DAY, attempts=attempt, published=published, notified_attempt=attempt)
    table.save(day, record.model_copy(update={"run": run}))
    yield pipeline
    for item in (f"day#{DAY}", run_item(DAY, attempt)):
        database.delete_item(TableName=cloud.outputs()["RunTable"], Key=item_key(pipeline, item))


@causes("budget-spent")
def test_an_alarm_fires_while_a_late_day_costs_more_than_the_budget(cloud, limited, push, metric, *, state, messages):
    push(*[observed(origin, hour=19) for origin in ("EWR", "JFK", "LGA")])
    alarm = f"budget-spent-{limited}"
    late, cost, run, verify = [
        line.replace("PIPELINE", limited).split()[1:] for line in commands_of("budget-spent", "slackwater")
    ]
    assert run[0] == "run"  # test_whole_drill.py runs it for a pipeline whose day needs one Spark job
    cloud.json(*verify)  # as the daily check does
    rules = {day["date"]: day["rule"] for day in cloud.json(*late)["deferred"]}
    assert rules[DAY] == "over_budget"
    assert until(lambda: metric("BudgetPercent", "Maximum", pipeline=limited)) > 100
    assert until(lambda: state(alarm) == "ALARM")
    assert until(lambda: messages.of(WARNING, alarm))
    assert DAY in cloud.slackwater(*cost).out
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    prefix = f"raw/source=weather/date={DAY}/hour=19/"
    [stored] = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    s3.delete_object(Bucket=bucket, Key=stored["Key"])
    # The highest value of a minute counts; this waits for some seconds instead.
    with changed_alarm(cloud, alarm, Period=1, EvaluationPeriods=3):
        assert until_ok(state, alarm, lambda: cloud.json(*verify))


@causes("day-on-hold", "late-bytes-unprocessed")
def test_alarms_fire_for_unprocessed_late_bytes(cloud, published_today, push, metric, *, state, messages):
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    prefix = f"raw/source=weather/date={DAY}/hour=15/"
    [stored] = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    before = metric("DaysOnHold", pipeline=PIPELINE)
    s3.delete_object(Bucket=bucket, Key=stored["Key"])
    push(observed("EWR", hour=17))
    check(cloud)
    # Other tests may leave days of the pipeline on hold, which count too.
    on_hold = [day["date"] for day in cloud.json("late", PIPELINE)["days"]]
    assert DAY in on_hold
    assert until(lambda: metric("DaysOnHold", pipeline=PIPELINE) - before) == len(on_hold)
    assert until(lambda: metric("LateBytesUnprocessed", "Maximum", pipeline=PIPELINE)) > 0
    assert until(lambda: state(f"day-on-hold-{PIPELINE}") == "ALARM")
    assert until(lambda: state(f"late-bytes-unprocessed-{PIPELINE}") == "ALARM")
    assert messages.of(WARNING, f"day-on-hold-{PIPELINE}")
    assert messages.of(PAGE, f"day-on-hold-{PIPELINE}") == []


@causes("late-days-older")
def test_an_alarm_fires_while_a_day_before_the_window_has_late_data(cloud, metric, state):
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])
    day, now = "2013-01-05", datetime.now(UTC)
    table.record_late_day(PIPELINE, day, at=now, keys=["an object"])
    try:
        check(cloud)
        assert until(lambda: metric("LateDaysOlder", "Maximum", pipeline=PIPELINE)) >= 1
        assert until(lambda: state(f"late-days-older-{PIPELINE}") == "ALARM")
    finally:
        table.remove_late_day(PIPELINE, day, read_at=now)


@causes(
    "monitor-missing",
    artificial="this deployment starts no monitor and lacks the alarm; the properties of the deployed one: "
    "test_monitoring.py of tests/infra",
)
@pytest.mark.parametrize(("pipeline", "expected"), [(PIPELINE, "OK"), ("never_checked", "ALARM")])
def test_an_alarm_fires_for_a_pipeline_without_checks(cloud, state, runbook, pipeline, expected):
    cloudwatch, name = cloud.client("cloudwatch"), f"monitor-missing-{pipeline}"
    check(cloud)
    cloudwatch.put_metric_alarm(
        AlarmName=f"slackwater-{name}",
        Namespace="Slackwater/slackwater",
        MetricName="DaysOverdue",
        Dimensions=[{"Name": "pipeline", "Value": pipeline}],
        Statistic="SampleCount",
        Period=3600,
        EvaluationPeriods=26,
        Threshold=1,
        ComparisonOperator="LessThanThreshold",
        TreatMissingData="breaching",
    )
    assert until(lambda: state(name) == expected)
    [described] = runbook("monitor-missing", PIPELINE=pipeline)
    assert [alarm["StateValue"] for alarm in json.loads(described)["MetricAlarms"]] == [expected]
    cloudwatch.delete_alarms(AlarmNames=[f"slackwater-{name}"])


@causes("monitor-failed")
def test_a_failed_monitor_pages_and_the_message_names_the_runbook(cloud, metric, state, messages, runbook):
    machine = cloud.outputs()["MonitorMachineArn"]
    ended = {"namespace": "AWS/States", "StateMachineArn": machine}
    before = metric("ExecutionsFailed", **ended)
    reset_alarm(cloud, "monitor-failed")
    assert until(lambda: state("monitor") == "OK")
    start(cloud, machine, {"pipeline": "no_such_pipeline"})
    assert until(lambda: metric("ExecutionsFailed", **ended) - before) == 1
    assert until(lambda: state("monitor-failed") == "ALARM")
    message = until(lambda: messages.of(PAGE, "monitor"))[-1]
    assert "alarm:slackwater-monitor-failed transitioned to ALARM" in message["NewStateReason"]
    assert "docs/runbooks/monitor-failed.md" in message["AlarmDescription"]
    _, listed, described = runbook("monitor-failed")
    assert executions(listed)[0]["status"] == "FAILED"
    assert "no_such_pipeline" in json.loads(described)["input"]
    assert "no_such_pipeline" in json.loads(described)["cause"]


@causes("machine-failed")
def test_an_alarm_fires_when_another_state_machine_fails(cloud, state, messages, runbook):
    machine = cloud.outputs()["MonitorMachineArn"].replace("monitor-days", "backfill")
    reset_alarm(cloud, "machine-failed-backfill")
    start(cloud, machine, {})
    assert until(lambda: state("machine-failed-backfill") == "ALARM")
    assert until(lambda: messages.of(WARNING, "machine-failed-backfill"))
    _, listed, described, alarms = runbook("machine-failed", MACHINE="backfill")
    assert executions(listed)[0]["status"] == "FAILED"
    assert json.loads(described)["cause"]
    states = {alarm["AlarmName"]: alarm["StateValue"] for alarm in json.loads(alarms)["MetricAlarms"]}
    assert states["slackwater-machine-failed-backfill"] == "ALARM"


@causes("cost-per-day")
def test_an_alarm_fires_when_the_runs_of_a_day_cost_more_than_the_limit(cloud, published_today, metric, state, runbook):
    check(cloud)
    assert until(lambda: metric("RunCost", pipeline=PIPELINE)) >= 0.001
    assert until(lambda: state(f"cost-per-day-{PIPELINE}") == "ALARM")
    [described] = runbook("cost-per-day")
    assert [alarm["StateValue"] for alarm in json.loads(described)["MetricAlarms"]] == ["ALARM"]


@causes("spark-queued")
def test_an_alarm_fires_when_a_job_has_waited_in_the_queue(cloud, published_today, metric, *, state, runbook):
    """The job of the day has waited for as long as others occupied the application, which is less than an hour."""
    with changed_alarm(cloud, f"spark-queued-{PIPELINE}", Threshold=0.001, Period=86_400):
        check(cloud)
        assert until(lambda: metric("JobQueueMinutes", "Maximum", pipeline=PIPELINE)) > 0.001
        assert until(lambda: state(f"spark-queued-{PIPELINE}") == "ALARM")
    [waiting] = runbook("spark-queued", APPLICATION_ID=cloud.outputs()["ApplicationId"])
    assert json.loads(waiting)["jobRuns"] == []


@causes("notification-outcome-unknown")
def test_an_alarm_fires_when_the_outcome_of_a_notification_is_unknown(
    cloud, published_today, metric, *, state, runbook
):
    outputs, before = cloud.outputs(), metric("NotificationOutcomeUnknown", pipeline=PIPELINE)
    table = DynamoRunTable(cloud.client("dynamodb"), outputs["RunTable"])
    attempt = table.day(PIPELINE, DAY).published.run.attempt
    cut_off = NotificationClaim(
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:cut-off",
        attempt=attempt,
        since=datetime.now(UTC) - timedelta(hours=1),
    )
    table.save(
        table.day(PIPELINE, DAY).model_copy(update={"notified_attempt": attempt - 1, "notification_claim": cut_off})
    )
    document = comparison(date=DAY, before=version(attempt - 1), after=version(attempt)).model_dump_json()
    key = f"comparisons/{PIPELINE}/{DAY}/{attempt - 1}-{attempt}/comparison.json"
    cloud.client("s3").put_object(Bucket=outputs["ExchangeBucket"], Key=key, Body=document.encode())
    result = invoke(
        cloud,
        "notify-change",
        pipeline=PIPELINE,
        date=DAY,
        comparison=f"s3://{outputs['ExchangeBucket']}/{key}",
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:by-a-test",
        correlation_id="by-a-test",
    )
    assert not result["notified"]
    assert until(lambda: metric("NotificationOutcomeUnknown", pipeline=PIPELINE) - before) == 1
    assert until(lambda: state(f"notification-outcome-unknown-{PIPELINE}") == "ALARM")
    notifications, _ = runbook("notification-outcome-unknown")
    assert DAY in notifications
