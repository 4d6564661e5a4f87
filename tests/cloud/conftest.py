"""What the tests on the local cloud share: the demo's days received and run, and the late day found and run again."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import DATES, LATE, LONG_DAY, Cloud

AS_OF = "2013-03-12"
EMPTY_DAY = "2013-05-01"
"""No partner has sent anything of this day."""


@dataclass(frozen=True)
class Received:
    """What pulling and pushing answered."""

    first: dict[str, Any]
    """The pull of the five days, without the files that were held back."""
    long_day: dict[str, Any]
    pushed: dict[str, Any]


@dataclass(frozen=True)
class Inbox:
    """A queue that is subscribed to the topic of changes."""

    sqs: Any
    url: str

    def take(self, day: str) -> list[dict[str, Any]]:
        """Return the messages of a day among all that have come, and delete all."""
        found: list[dict[str, Any]] = []
        while messages := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                found.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return [message for message in found if day in message["Subject"]]


@dataclass(frozen=True)
class Monitored:
    """The late day, as two monitors found it at once."""

    outputs: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    jobs: list[str]
    """Names of the Spark jobs that it took."""


@pytest.fixture(scope="session")
def received(cloud, partner, weather) -> Received:
    """The flights pulled and the weather pushed, once, but for what comes late."""
    pulled = [cloud.json("pull", "flights", "--as-of", date) for date in (AS_OF, LONG_DAY)]
    return Received(*pulled, cloud.json("push", "weather", str(weather)))


@pytest.fixture(scope="session")
def published(cloud, received):
    """The first publication of the five days, run two at a time."""
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda day: cloud.json("run", "daily_delays", "--date", day), DATES)
    return dict(zip(DATES, answers, strict=True))


@pytest.fixture(scope="session")
def inbox(cloud) -> Inbox:
    """What people are told, from now on."""
    sqs, topic = cloud.client("sqs"), cloud.outputs()["ChangeTopicArn"]
    url = sqs.create_queue(QueueName="told")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    return Inbox(sqs, url)


@pytest.fixture(scope="session")
def monitored(cloud, published, feed, inbox) -> Monitored:
    """What was held back arrives, and two monitors at once look at the days."""
    feed.release()
    cloud.json("pull", "flights", "--as-of", AS_OF)
    cloud.json("push", "weather", str(feed.late_weather))
    before = {job["id"] for job in cloud.jobs()}
    executions = [start_monitor(cloud, AS_OF) for _ in range(2)]
    outputs = [ended(cloud, execution) for execution in executions]
    jobs = [job["name"] for job in cloud.jobs() if job["id"] not in before]
    return Monitored(outputs, inbox.take(LATE), jobs)


@pytest.fixture(scope="session")
def empty_day(cloud) -> list[str]:
    """Two executions at once of a day that nobody has sent anything of, both ended."""
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
    while (found := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
        time.sleep(0.5)
    assert found["status"] == "SUCCEEDED", found
    output: dict[str, Any] = json.loads(found["output"])
    return output


def entered(cloud: Cloud, execution: str) -> list[str]:
    """Names of the states that an execution has entered."""
    states = cloud.client("stepfunctions")
    events = states.get_execution_history(executionArn=execution, maxResults=1000)["events"]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
