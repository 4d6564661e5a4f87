"""Each alarm's metric moves because its cause is made to happen, as a user's CloudWatch client sees it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from slackwater.aws.run_table import DynamoRunTable
from slackwater.runs.record import NotificationClaim
from tests.cloud.conftest import ended, start
from tests.fakes_late import comparison, version

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

PIPELINE = "daily_delays"
DAY = (datetime.now(ZoneInfo("America/New_York")) - timedelta(days=3)).date().isoformat()
"""In the window of a check of today, and past its deadline, like the day after it."""


def until(read, seconds=60):
    """Return what `read` returns as soon as it is true; the local cloud looks at metrics and alarms once a second."""
    deadline = time.monotonic() + seconds
    while not (found := read()) and time.monotonic() < deadline:
        time.sleep(0.25)
    return found


@pytest.fixture(scope="module")
def metric(cloud):
    """Asks CloudWatch for one number over all that a metric has ever been put."""
    cloudwatch = cloud.client("cloudwatch")

    def metric(name, statistic="Sum", namespace="Slackwater", **dimensions):
        now = datetime.now(UTC)
        found = cloudwatch.get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
            StartTime=now - timedelta(days=1),
            EndTime=now + timedelta(minutes=1),
            Period=86400,
            Statistics=[statistic],
        )["Datapoints"]
        values = [point[statistic] for point in found]
        return {"Sum": sum, "Maximum": max, "Minimum": min}[statistic](values) if values else 0

    return metric


@pytest.fixture(scope="module")
def state(cloud):
    cloudwatch = cloud.client("cloudwatch")

    def state(alarm):
        [found] = cloudwatch.describe_alarms(AlarmNames=[f"slackwater-{alarm}"])["MetricAlarms"]
        return found["StateValue"]

    return state


@pytest.fixture(scope="module")
def rung(cloud):
    """Names of the alarms that have rung since this was made, by what a subscriber of the topic was sent."""
    sqs, url, arn = queue(cloud, "rung")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["AlarmTopicArn"], Protocol="sqs", Endpoint=arn)
    told: list[dict[str, Any]] = []

    def rung():
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            told.append(json.loads(json.loads(message["Body"])["Message"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return {found["AlarmName"]: found["AlarmDescription"] for found in told if found["NewStateValue"] == "ALARM"}

    return rung


def queue(cloud, name):
    sqs = cloud.client("sqs")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    return sqs, url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def put_out(cloud, alarm):
    """Let an alarm that rings already ring again, should its cause happen again."""
    cloud.client("cloudwatch").set_alarm_state(AlarmName=f"slackwater-{alarm}", StateValue="OK", StateReason="a test")


def invoke(cloud, function, **event):
    answer = cloud.client("lambda").invoke(FunctionName=f"slackwater-{function}", Payload=json.dumps(event))
    body = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, body
    return body


def check(cloud):
    """Check the days as of today, as the monitor does every day."""
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
        answer = httpx.post(f"{url}/v1/sources/weather/events", content=body, headers=headers, timeout=60)
        assert answer.status_code == 202, answer.text

    return push


def observed(origin, hour=15):
    return {"origin": origin, "time_hour": f"{DAY}T{hour}:00:00Z", "temp": 50.0}


@pytest.fixture(scope="module")
def pushed(metric, push):
    """Three events of the day, then two of them again with one that is wrong: how much each metric moved."""
    names = ("EventsAccepted", "EventsDuplicate", "EventsRejected")
    before = {name: metric(name, source="weather") for name in names}
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR", hour=16), {"origin": "LGA"})

    def moved():
        return {name: metric(name, source="weather") - was for name, was in before.items()}

    until(lambda: moved()["EventsRejected"])
    return moved()


@pytest.fixture(scope="module")
def failed(cloud, metric, rung, pushed):
    """A run of the day whose Spark job is cancelled: how much the metric moved."""
    before = metric("RunsFailed", pipeline=PIPELINE)
    put_out(cloud, f"run-failed-{PIPELINE}")
    execution = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY})
    [job] = until(lambda: [job for job in cloud.jobs() if job["name"].startswith(f"{PIPELINE} {DAY}")])
    cloud.client("emr-serverless").cancel_job_run(applicationId=job["applicationId"], jobRunId=job["id"])
    states = cloud.client("stepfunctions")
    until(lambda: states.describe_execution(executionArn=execution)["status"] == "FAILED")
    return until(lambda: metric("RunsFailed", pipeline=PIPELINE) - before)


@pytest.fixture(scope="module")
def published(cloud, metric, failed):
    """The day, run again to its end: how much the metric moved."""
    before = metric("RunsPublished", pipeline=PIPELINE)
    ended(cloud, start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY}))
    return until(lambda: metric("RunsPublished", pipeline=PIPELINE) - before)


def test_events_are_counted_by_what_became_of_them(pushed):
    assert pushed == {"EventsAccepted": 4, "EventsDuplicate": 3, "EventsRejected": 1}


def test_a_failed_run_rings_and_its_message_says_what_to_do(failed, state, rung):
    assert failed == 1
    assert until(lambda: state(f"run-failed-{PIPELINE}") == "ALARM")
    assert until(lambda: f"slackwater-run-failed-{PIPELINE}" in rung())
    assert f"slackwater runs {PIPELINE}" in rung()[f"slackwater-run-failed-{PIPELINE}"]


def test_a_published_run_is_counted(published):
    assert published == 1


def test_a_day_that_is_not_published_by_its_deadline_rings(cloud, published, metric, state):
    check(cloud)
    assert until(lambda: metric("DaysOverdue", "Maximum", pipeline=PIPELINE)) >= 1
    assert until(lambda: state(f"day-overdue-{PIPELINE}") == "ALARM")


def test_a_partner_that_has_sent_nothing_for_long_rings_and_one_that_has_does_not(cloud, published, metric, state):
    check(cloud)
    assert until(lambda: metric("HoursSinceArrival", "Minimum", source="flights")) >= 48
    assert until(lambda: state("partner-silent-flights") == "ALARM")
    assert until(lambda: state("partner-silent-weather") == "OK")
    assert metric("HoursSinceArrival", "Minimum", source="weather") < 24


def test_late_bytes_that_stay_unprocessed_ring(cloud, published, push, metric, state):
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    prefix = f"raw/source=weather/date={DAY}/hour=15/"
    [kept] = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    before = metric("DaysOnHold", pipeline=PIPELINE)
    s3.delete_object(Bucket=bucket, Key=kept["Key"])
    push(observed("EWR", hour=17))
    check(cloud)
    assert until(lambda: metric("DaysOnHold", pipeline=PIPELINE) - before) == 1
    assert until(lambda: metric("LateBytesUnprocessed", "Maximum", pipeline=PIPELINE)) > 0
    assert until(lambda: state(f"day-on-hold-{PIPELINE}") == "ALARM")
    assert until(lambda: state(f"late-bytes-unprocessed-{PIPELINE}") == "ALARM")


def test_a_monitoring_that_fails_rings(cloud, metric, state, rung):
    machine = cloud.outputs()["MonitorMachineArn"]
    of = {"namespace": "AWS/States", "StateMachineArn": machine}
    before = metric("ExecutionsFailed", **of)
    put_out(cloud, "monitor-failed")
    start(cloud, machine, {"pipeline": "no_such_pipeline"})
    assert until(lambda: metric("ExecutionsFailed", **of) - before) == 1
    assert until(lambda: state("monitor-failed") == "ALARM")
    assert until(lambda: "slackwater-monitor-failed" in rung())
    assert "slackwater monitor PIPELINE" in rung()["slackwater-monitor-failed"]


def test_a_message_that_may_have_been_sent_rings(cloud, published, metric, state):
    outputs, before = cloud.outputs(), metric("TellingsUnsure", pipeline=PIPELINE)
    table = DynamoRunTable(cloud.client("dynamodb"), outputs["RunTable"])
    attempt = table.day(PIPELINE, DAY).published.run.attempt
    cut_off = NotificationClaim(execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:cut-off",
                      attempt=attempt, since=datetime.now(UTC) - timedelta(hours=1))  # fmt: skip
    table.save_day(table.day(PIPELINE, DAY).model_copy(update={"told": attempt - 1, "telling": cut_off}))
    document = comparison(date=DAY, before=version(attempt - 1), after=version(attempt)).model_dump_json()
    key = f"comparisons/{PIPELINE}/{DAY}/{attempt - 1}-{attempt}/comparison.json"
    cloud.client("s3").put_object(Bucket=outputs["ExchangeBucket"], Key=key, Body=document.encode())
    told = invoke(
        cloud,
        "tell-change",
        pipeline=PIPELINE,
        date=DAY,
        comparison=f"s3://{outputs['ExchangeBucket']}/{key}",
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:by-a-test",
        correlation_id="by-a-test",
    )
    assert not told["told"]
    assert until(lambda: metric("TellingsUnsure", pipeline=PIPELINE) - before) == 1
    assert until(lambda: state(f"telling-unsure-{PIPELINE}") == "ALARM")


def test_a_message_that_cannot_be_delivered_rings(cloud, metric, state, rung):
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
        sns.publish(TopicArn=outputs["ChangeTopicArn"], Subject="to nobody", Message="text")
        assert until(lambda: metric("ApproximateNumberOfMessagesVisible", "Maximum", **depth)) >= 1
        assert until(lambda: state("dead-letters") == "ALARM")
        assert until(lambda: "slackwater-dead-letters" in rung())
    finally:
        sns.unsubscribe(SubscriptionArn=subscription)
        sqs.purge_queue(QueueUrl=dead)


def test_the_dashboard_is_there(cloud):
    found = cloud.client("cloudwatch").get_dashboard(DashboardName=cloud.outputs()["DashboardName"])
    assert len(json.loads(found["DashboardBody"])["widgets"]) > 10
