"""Shared fixtures of the tests on the local cloud: the demo's days received and run, and the late day run again."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cloud.roles import create_queue
from tests.cloud.staged_runs import recover, wait_for
from tests.cloud.ways import large_way
from tests.conftest import DATES, LATE, Cloud

*PAST, AS_OF = DATES
EMPTY_DAY = "2013-05-01"
"""A day without any data."""


@dataclass(frozen=True)
class Received:
    """Results of the first pull and of the push."""

    pulled: dict[str, Any]
    """The pull, without the late files."""
    pushed: dict[str, Any]


@dataclass(frozen=True)
class Inbox:
    """A queue that is subscribed to the topic of notifications."""

    sqs: Any
    url: str

    def take(self, day: str) -> list[dict[str, Any]]:
        """Delete all messages that have arrived; return those about one day."""
        received: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                received.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        # The tests of permissions publish a message without a subject.
        return [message for message in received if day in message.get("Subject", "")]


@dataclass(frozen=True)
class Monitored:
    """Results of two monitorings at the same time, after the late data has arrived."""

    outputs: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    teams: dict[str, Inbox]
    """The queues of the teams."""
    filtered: dict[str, list[dict[str, Any]]]
    """The messages that these had, by team."""
    jobs: list[str]
    """Names of the Spark jobs that they ran."""


@pytest.fixture(scope="module")
def arrivals(cloud):
    """The deployment has the setting `collect_minutes` 0: the bucket sends no events, and the rule passes none."""
    s3, events, raw = cloud.client("s3"), cloud.client("events"), cloud.outputs()["RawBucket"]
    before = s3.get_bucket_notification_configuration(Bucket=raw)
    before.pop("ResponseMetadata")
    events.enable_rule(Name="slackwater-states-0")
    s3.put_bucket_notification_configuration(Bucket=raw, NotificationConfiguration={"EventBridgeConfiguration": {}})
    yield
    s3.put_bucket_notification_configuration(Bucket=raw, NotificationConfiguration=before)
    events.disable_rule(Name="slackwater-states-0")


@pytest.fixture(scope="session")
def received(cloud, partner, weather) -> Received:
    """The flights, pulled, and the weather, pushed, without the late data."""
    return Received(cloud.json("pull", "flights", "--as-of", AS_OF), cloud.json("push", "weather", str(weather)))


@pytest.fixture(scope="session")
def published(cloud, received, lineage):
    """The first runs of the days before the current one, at the same time: both find no table.

    The first one is read and written in the way of a large day, and the second one in that of a small day. During the
    second one, the consumer of lineage answers no request.
    """
    first, second = PAST
    with ExitStack() as switched:
        switched.enter_context(large_way(cloud, "daily_delays"))
        with cloud.process("run", "daily_delays", "--date", first, "--json") as other:
            try:
                runs = ("runs", "daily_delays", "--date", first)
                wait_for(lambda: bool(cloud.json(*runs)["runs"]) or other.poll() is not None)
                switched.close()
                # The first run still needs its Spark job: many times the processor time that it takes to start another.
                with lineage.slow():
                    result = cloud.json("run", "daily_delays", "--date", second)
                output, errors = other.communicate(timeout=300)
            finally:
                other.kill()
    assert other.returncode == 0, errors
    return {first: json.loads(output), second: result}


@pytest.fixture(scope="session")
def week(cloud, published, lineage):
    """The first run of the week that ends with the late day, before the late data arrives.

    Meanwhile the consumer of lineage is down.
    """
    with lineage.down():
        return cloud.json("run", "weekly_delays", "--date", LATE)


@pytest.fixture(scope="session")
def inbox(cloud) -> Inbox:
    """The notifications that are sent from now on."""
    sqs, topic = cloud.client("sqs"), cloud.outputs()["ChangeTopicArn"]
    url, arn = create_queue(sqs, "notifications")
    cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    return Inbox(sqs, url)


@pytest.fixture(scope="session")
def team_inboxes(cloud) -> dict[str, Inbox]:
    """The deployed queues of the teams that own `daily_delays` and `weekly_delays`."""
    sqs = cloud.client("sqs")
    names = {team: f"slackwater-changes-{team}" for team in ("operations", "finance")}
    return {team: Inbox(sqs, sqs.get_queue_url(QueueName=name)["QueueUrl"]) for team, name in names.items()}


@pytest.fixture(scope="session")
def monitored(cloud, week, feed, inbox, team_inboxes) -> Monitored:
    """The late data arrives, and two monitorings run at the same time. Their comparison takes the way of many rows."""
    feed.release()
    cloud.json("pull", "flights", "--as-of", AS_OF)
    cloud.json("push", "weather", str(feed.late_weather))
    before = {job["id"] for job in cloud.jobs()}
    with large_way(cloud):
        executions = [start_monitor(cloud, AS_OF) for _ in range(2)]
        outputs = [ended(cloud, execution) for execution in executions]
    jobs = [job["name"] for job in cloud.jobs() if job["id"] not in before]
    filtered = {team: own.take(LATE) for team, own in team_inboxes.items()}
    return Monitored(outputs, inbox.take(LATE), team_inboxes, filtered, jobs)


@pytest.fixture(scope="session")
def recovered(cloud, monitored) -> dict[str, Any]:
    """The results of two days of `staged_delays`, whose drivers were killed."""
    return recover(cloud)


@pytest.fixture(scope="session")
def empty_day(cloud) -> list[str]:
    """Two executions of a day without data, started at the same time and ended."""
    machine = cloud.outputs()["PipelineMachinePrefix"] + "daily_delays"
    executions = [start(cloud, machine, {"date": EMPTY_DAY}) for _ in range(2)]
    for execution in executions:
        ended(cloud, execution)
    return executions


def start_monitor(cloud: Cloud, as_of: str) -> str:
    return start(cloud, cloud.outputs()["MonitorMachineArn"], {"pipeline": "daily_delays", "as_of": as_of})


def start(cloud: Cloud, machine: str, payload: dict[str, Any]) -> str:
    states = cloud.client("stepfunctions")
    return str(states.start_execution(stateMachineArn=machine, input=json.dumps(payload))["executionArn"])


def ended(cloud: Cloud, execution: str) -> dict[str, Any]:
    """Wait for an execution to succeed; return its output."""
    states = cloud.client("stepfunctions")
    while (description := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(0.5)
    assert description["status"] == "SUCCEEDED", description
    output: dict[str, Any] = json.loads(description["output"])
    return output


def entered(cloud: Cloud, execution: str) -> list[str]:
    """Names of the states that an execution has entered."""
    states = cloud.client("stepfunctions")
    events = states.get_execution_history(executionArn=execution, maxResults=1000)["events"]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
