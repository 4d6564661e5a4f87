"""Each alarm fires when its cause happens, as a client of CloudWatch sees it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.runs.record import NotificationClaim
from tests.cloud.conftest import ended, start
from tests.cloud.roles import create_queue
from tests.fakes_comparison import comparison, version

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

PIPELINE = "daily_delays"
# In the window of today's check, and past its deadline, like the day after it.
DAY = (datetime.now(ZoneInfo("America/New_York")) - timedelta(days=3)).date().isoformat()


def until(read, seconds=60):
    """Call `read` until its result is true. Return the last result. The local cloud evaluates alarms once a second."""
    deadline = time.monotonic() + seconds
    while not (result := read()) and time.monotonic() < deadline:
        time.sleep(0.25)
    return result


@pytest.fixture(scope="module")
def metric(cloud):
    """Return a function that reads one statistic of all values of a metric from CloudWatch."""
    cloudwatch = cloud.client("cloudwatch")

    def metric(name, statistic="Sum", namespace="Slackwater", **dimensions):
        now = datetime.now(UTC)
        datapoints = cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            StartTime=now - timedelta(days=1),
            EndTime=now + timedelta(minutes=1),
            Period=86400,
            Statistics=[statistic],
        )["Datapoints"]
        values = [point[statistic] for point in datapoints]
        return {"Sum": sum, "Maximum": max, "Minimum": min}[statistic](values) if values else 0

    return metric


@pytest.fixture(scope="module")
def state(cloud):
    cloudwatch = cloud.client("cloudwatch")

    def state(alarm):
        [description] = cloudwatch.describe_alarms(AlarmNames=[f"slackwater-{alarm}"])["MetricAlarms"]
        return description["StateValue"]

    return state


@pytest.fixture(scope="module")
def fired(cloud):
    """Return a function that returns the descriptions of the alarms that have fired, by the messages of their topic."""
    sqs, url, arn = queue(cloud, "fired")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["AlarmTopicArn"], Protocol="sqs", Endpoint=arn)
    messages: list[dict[str, Any]] = []

    def fired():
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            messages.append(json.loads(json.loads(message["Body"])["Message"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return {item["AlarmName"]: item["AlarmDescription"] for item in messages if item["NewStateValue"] == "ALARM"}

    return fired


def queue(cloud, name):
    sqs = cloud.client("sqs")
    return sqs, *create_queue(sqs, name)


def reset_alarm(cloud, alarm):
    """Set an alarm to OK, so that it can fire again."""
    cloud.client("cloudwatch").set_alarm_state(AlarmName=f"slackwater-{alarm}", StateValue="OK", StateReason="a test")


def invoke(cloud, function, **event):
    response = cloud.client("lambda").invoke(FunctionName=f"slackwater-{function}", Payload=json.dumps(event))
    body = json.loads(response["Payload"].read())
    assert "FunctionError" not in response, body
    return body


def check(cloud):
    """Check the days as of today, as the monitor does daily."""
    execution = "arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:by-a-test"
    return invoke(cloud, "check-days", pipeline=PIPELINE, execution=execution, correlation_id="by-a-test")


@pytest.fixture(scope="module")
def push(cloud):
    url = cloud.outputs()["ApiUrl"].rstrip("/")
    headers = {
        "authorization": f"Bearer {cloud.environment['SLACKWATER_TOKEN']}",
        "content-type": "application/x-ndjson",
    }

    def push(*events):
        body = "\n".join(json.dumps(event) for event in events)
        response = httpx.post(f"{url}/v1/sources/weather/events", content=body, headers=headers, timeout=60)
        assert response.status_code == 202, response.text

    return push


def observed(origin, hour=15):
    return {"origin": origin, "time_hour": f"{DAY}T{hour}:00:00Z", "temp": 50.0}


@pytest.fixture(scope="module")
def pushed(metric, push):
    """Push three events, the same three again, then one new and one invalid event. Return the change of each metric."""
    names = ("EventsAccepted", "EventsDuplicate", "EventsRejected")
    before = {name: metric(name) for name in names}
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR", hour=16), {"origin": "LGA"})

    def changes():
        return {name: metric(name) - value for name, value in before.items()}

    until(lambda: changes()["EventsRejected"])
    return changes()


@pytest.fixture(scope="module")
def failed(cloud, metric, fired, pushed):
    """Run the day and cancel its Spark job. Return the change of the metric."""
    before = metric("RunsFailed", pipeline=PIPELINE)
    reset_alarm(cloud, f"run-failed-{PIPELINE}")
    execution = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY})
    [job] = until(lambda: [job for job in cloud.jobs() if job["name"].startswith(f"{PIPELINE} {DAY}")])
    cloud.client("emr-serverless").cancel_job_run(applicationId=job["applicationId"], jobRunId=job["id"])
    states = cloud.client("stepfunctions")
    until(lambda: states.describe_execution(executionArn=execution)["status"] == "FAILED")
    return until(lambda: metric("RunsFailed", pipeline=PIPELINE) - before)


@pytest.fixture(scope="module")
def published(cloud, metric, failed):
    """Run the day again until it is published. Return the change of the metric."""
    before = metric("RunsPublished", pipeline=PIPELINE)
    ended(cloud, start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY}))
    return until(lambda: metric("RunsPublished", pipeline=PIPELINE) - before)


def test_events_are_counted_by_outcome(pushed):
    assert pushed == {"EventsAccepted": 4, "EventsDuplicate": 3, "EventsRejected": 1}


def test_the_alarm_of_a_failed_run_fires_and_its_message_names_the_remedy(failed, state, fired):
    assert failed == 1
    assert until(lambda: state(f"run-failed-{PIPELINE}") == "ALARM")
    assert until(lambda: f"slackwater-run-failed-{PIPELINE}" in fired())
    assert f"slackwater runs {PIPELINE}" in fired()[f"slackwater-run-failed-{PIPELINE}"]


def test_a_published_run_is_counted(published):
    assert published == 1


def test_an_alarm_fires_for_a_day_that_is_not_published_by_its_deadline(cloud, published, metric, state):
    check(cloud)
    assert until(lambda: metric("DaysOverdue", "Maximum", pipeline=PIPELINE)) >= 1
    assert until(lambda: state(f"day-overdue-{PIPELINE}") == "ALARM")


def test_an_alarm_fires_for_a_silent_partner_only(cloud, published, metric, state):
    check(cloud)
    assert until(lambda: metric("HoursSinceArrival", "Minimum", source="flights")) >= 48
    assert until(lambda: state("partner-silent-flights") == "ALARM")
    assert until(lambda: state("partner-silent-weather") == "OK")
    assert metric("HoursSinceArrival", "Minimum", source="weather") < 24


def test_alarms_fire_for_unprocessed_late_bytes(cloud, published, push, metric, state):
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


@pytest.fixture
def broken(cloud, partner):
    """A file of today that the pull cannot read, and that was first tried 30 hours ago. Returns its path."""
    path = f"flights-{datetime.now(ZoneInfo('America/New_York')).date()}-broken.csv"
    partner.put(path, b"")
    assert "1 of " in cloud.json("pull", "flights", code=1)["error"]["message"]
    cache = DynamoFileCache(cloud.client("dynamodb"), cloud.outputs()["FileTable"])
    [entry] = cache.entries("flights", [path])
    cache.save(entry.model_copy(update={"not_taken_since": datetime.now(UTC) - timedelta(hours=30)}))
    yield path
    (partner.folder / path).unlink()


def test_an_alarm_fires_for_a_file_that_is_not_taken_for_a_day_until_a_person_gives_it_up(cloud, broken, metric, state):
    invoke(cloud, "list-files", source="flights", correlation_id="by-a-test")
    assert until(lambda: metric("HoursNotTaken", "Maximum", source="flights")) >= 30
    assert until(lambda: state("file-not-taken-flights") == "ALARM")
    failed = {file["path"]: file["reason"] for file in cloud.json("files", "flights", "--state", "failed")["files"]}
    assert "empty" in failed[broken]
    cloud.json("files", "give-up", "flights", broken, "--reason", "by a test")
    assert broken not in cloud.slackwater("files", "flights", "--state", "failed").out
    [given_up] = cloud.json("files", "flights", "--state", "given-up")["files"]
    assert (given_up["path"], given_up["reason"]) == (broken, "by a test")


@pytest.mark.parametrize(("third", "expected"), [(20, "ALARM"), (0, "OK")])
def test_an_alarm_fires_when_the_pulls_of_three_hours_leave_files(cloud, state, third, expected):
    # Other tests pull `flights` and leave nothing, so this source is an invented one, with a copy of the alarm.
    cloudwatch, source = cloud.client("cloudwatch"), f"left-{third}"
    [alarm] = cloudwatch.describe_alarms(AlarmNames=["slackwater-files-left-flights"])["MetricAlarms"]
    copied = (
        "Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold", "ComparisonOperator",
        "TreatMissingData",
    )  # fmt: skip
    dimensions, now = [{"Name": "source", "Value": source}], datetime.now(UTC)
    points = [
        {
            "MetricName": alarm["MetricName"],
            "Dimensions": dimensions,
            "Timestamp": now - timedelta(hours=ago),
            "Value": files,
        }
        for ago, files in ((2.5, third), (1.5, 40), (0.5, 30))
    ]
    cloudwatch.put_metric_data(Namespace=alarm["Namespace"], MetricData=points)
    cloudwatch.put_metric_alarm(
        AlarmName=f"slackwater-{source}", Dimensions=dimensions, **{key: alarm[key] for key in copied}
    )
    assert until(lambda: state(source) == expected)
    cloudwatch.delete_alarms(AlarmNames=[f"slackwater-{source}"])


def test_an_alarm_fires_when_the_monitor_fails(cloud, metric, state, fired):
    machine = cloud.outputs()["MonitorMachineArn"]
    executions = {"namespace": "AWS/States", "StateMachineArn": machine}
    before = metric("ExecutionsFailed", **executions)
    reset_alarm(cloud, "monitor-failed")
    start(cloud, machine, {"pipeline": "no_such_pipeline"})
    assert until(lambda: metric("ExecutionsFailed", **executions) - before) == 1
    assert until(lambda: state("monitor-failed") == "ALARM")
    assert until(lambda: "slackwater-monitor-failed" in fired())
    assert "slackwater monitor PIPELINE" in fired()["slackwater-monitor-failed"]


def test_an_alarm_fires_when_the_outcome_of_a_notification_is_unknown(cloud, published, metric, state):
    outputs, before = cloud.outputs(), metric("NotificationOutcomeUnknown", pipeline=PIPELINE)
    table = DynamoRunTable(cloud.client("dynamodb"), outputs["RunTable"])
    attempt = table.day(PIPELINE, DAY).published.run.attempt
    cut_off = NotificationClaim(
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:cut-off",
        attempt=attempt,
        since=datetime.now(UTC) - timedelta(hours=1),
    )
    table.save_day(
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


def test_an_alarm_fires_for_a_message_that_cannot_be_delivered(cloud, metric, state, fired):
    outputs, sns = cloud.outputs(), cloud.client("sns")
    sqs, gone, arn = queue(cloud, "soon-gone")
    dead = outputs["DeadLetterQueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscription = sns.subscribe(
        TopicArn=outputs["ChangeTopicArn"],
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": dead_arn})},
    )["SubscriptionArn"]
    sqs.delete_queue(QueueUrl=gone)
    depth = {"namespace": "AWS/SQS", "QueueName": "slackwater-dead-letters"}
    try:
        sns.publish(TopicArn=outputs["ChangeTopicArn"], Subject="to nobody", Message="undeliverable")
        assert until(lambda: metric("ApproximateNumberOfMessagesVisible", "Maximum", **depth)) >= 1
        assert until(lambda: state("dead-letters") == "ALARM")
        assert until(lambda: "slackwater-dead-letters" in fired())
    finally:
        sns.unsubscribe(SubscriptionArn=subscription)
        sqs.purge_queue(QueueUrl=dead)


def test_the_dashboard_exists(cloud):
    dashboard = cloud.client("cloudwatch").get_dashboard(DashboardName=cloud.outputs()["DashboardName"])
    assert len(json.loads(dashboard["DashboardBody"])["widgets"]) > 10
