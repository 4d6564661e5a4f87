"""What the tests of alarms share: metrics, states and messages of the deployed alarms, and ways to cause them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx

from tests.cloud.roles import create_queue
from tests.conftest import Cloud

PIPELINE = "daily_delays"
# In the window of today's check, and past its deadline, like the day after it.
DAY = (datetime.now(ZoneInfo("America/New_York")) - timedelta(days=3)).date().isoformat()
PAGE, WARNING = "AlarmTopicArn", "WarningTopicArn"
"""The outputs with the topics."""


def causes(*alarms: str, artificial: str = "") -> Callable[[Any], Any]:
    """Mark a test as the one that causes these alarms, waits for them, and runs the AWS commands of their runbooks.

    `artificial` is why it writes the metric or creates the alarm itself. Any test may shorten a threshold or a timeout
    of minutes or hours, and write records as earlier work would have left them. A fixture fails a test that leaves out
    commands.
    """

    def mark(test: Any) -> Any:
        test.causes, test.artificial = alarms, artificial
        return test

    return mark


def until(read, seconds=60):
    """Call `read` until its result is true. Return the last result. The local cloud evaluates alarms once a second."""
    deadline = time.monotonic() + seconds
    while not (result := read()) and time.monotonic() < deadline:
        time.sleep(0.25)
    return result


def until_ok(state, alarm, again):
    """Wait until an alarm is OK, and call `again`, which measures once more, until it is. Return whether it is."""

    def is_ok():
        again()
        return state(alarm) == "OK"

    return until(is_ok)


def metric_of(cloud):
    """Return a function that reads one statistic of all values of a metric from CloudWatch."""
    cloudwatch = cloud.client("cloudwatch")

    def metric(name, statistic="Sum", namespace="Slackwater/slackwater", **dimensions):
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


def state_of(cloud):
    """Return a function that returns the state of an alarm."""
    cloudwatch = cloud.client("cloudwatch")

    def state(alarm):
        described = cloudwatch.describe_alarms(
            AlarmNames=[f"slackwater-{alarm}"], AlarmTypes=["MetricAlarm", "CompositeAlarm"]
        )
        [description] = described["MetricAlarms"] + described["CompositeAlarms"]
        return description["StateValue"]

    return state


@dataclass(kw_only=True)
class Messages:
    """The messages of alarms that have fired, from both topics."""

    sqs: Any
    url: str
    topics: dict[str, str]
    """By ARN: the topic's output."""
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """Return each message with the output of its topic."""
        while messages := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                body = json.loads(message["Body"])
                self.received.append((self.topics[body["TopicArn"]], json.loads(body["Message"])))
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return self.received

    def of(self, topic: str, alarm: str) -> list[dict[str, Any]]:
        """Return the messages that one alarm has sent to a topic when it fired."""
        fired = [message for of, message in self.all() if of == topic and message["NewStateValue"] == "ALARM"]
        return [message for message in fired if message["AlarmName"] == f"slackwater-{alarm}"]


def subscribe(cloud) -> Messages:
    """Return the messages from now on."""
    sqs = cloud.client("sqs")
    url, arn = create_queue(sqs, "fired")
    topics = {cloud.outputs()[output]: output for output in (PAGE, WARNING)}
    for topic in topics:
        cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    return Messages(sqs=sqs, url=url, topics=topics)


def reset_alarm(cloud, alarm):
    """Set an alarm to OK, so that it can fire again."""
    cloud.client("cloudwatch").set_alarm_state(AlarmName=f"slackwater-{alarm}", StateValue="OK", StateReason="a test")


def invoke(cloud, function, **event):
    """Call a function; return its result."""
    response = cloud.client("lambda").invoke(FunctionName=f"slackwater-{function}", Payload=json.dumps(event))
    body = json.loads(response["Payload"].read())
    assert "FunctionError" not in response, body
    return body


def check(cloud, pipeline=PIPELINE, *, name="by-a-test", **request):
    """Check the days as of today, as the monitor does daily. `name` is that of the execution."""
    execution = f"arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:{name}"
    return invoke(cloud, "check-days", pipeline=pipeline, execution=execution, correlation_id="by-a-test", **request)


def push_to(cloud):
    """Return a function that pushes events of the weather."""
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


def put_alarm(cloud: Cloud, alarm: str, *, like: str = "", **changed: Any) -> None:
    """Create an alarm as a copy of a deployed one, or change it. Names are without the prefix."""
    cloudwatch = cloud.client("cloudwatch")
    [deployed] = cloudwatch.describe_alarms(AlarmNames=[f"slackwater-{like or alarm}"])["MetricAlarms"]
    members = cloudwatch.meta.service_model.operation_model("PutMetricAlarm").input_shape.members
    kept = {name: value for name, value in deployed.items() if name in members and value not in ("", [])}
    cloudwatch.put_metric_alarm(**{**kept, "AlarmName": f"slackwater-{alarm}", **changed})


@contextmanager
def changed_alarm(cloud: Cloud, alarm: str, **changed: Any) -> Iterator[None]:
    """Change a deployed alarm, such as its threshold, so that a test need not wait for hours."""
    cloudwatch = cloud.client("cloudwatch")
    [deployed] = cloudwatch.describe_alarms(AlarmNames=[f"slackwater-{alarm}"])["MetricAlarms"]
    put_alarm(cloud, alarm, **changed)
    try:
        yield
    finally:
        put_alarm(cloud, alarm, **{name: deployed[name] for name in changed})


def deployed_alarms(cloud: Cloud) -> list[str]:
    """Return the names of all alarms with a metric, without the prefix."""
    pages = cloud.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"])
    names = [alarm["AlarmName"] for page in pages for alarm in page["MetricAlarms"]]
    return [name.removeprefix("slackwater-") for name in names]
