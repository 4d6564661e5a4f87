"""`slackwater buffer`: messages are counted, and dead letters are sent back without losing any."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.queue import EventQueues, SqsEventQueue
from slackwater.cli.main import run
from slackwater.errors import AccessDenied, CloudError
from tests.example_project import PROJECT
from tests.fakes_cli import use_client

pytestmark = pytest.mark.unit


class Queues:
    """The operations of SQS that are used. A received message is invisible until `time_passes`."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = {"events": [], "dead": []}
        self.in_flight: dict[str, str] = {}
        self.delays: list[int] = []
        self.delayed = 0
        self.refused: dict[str, str] = {}
        self.failed: list[dict[str, str]] = []

    def _maybe_refuse(self, operation: str) -> None:
        if operation in self.refused:
            raise ClientError({"Error": {"Code": self.refused[operation], "Message": "no"}}, operation)

    def send_message(self, *, QueueUrl, MessageBody, DelaySeconds=0):  # noqa: N803
        self._maybe_refuse("send")
        self.delays.append(DelaySeconds)
        self.bodies[QueueUrl].append(MessageBody)
        return {"MessageId": "id"}

    def receive_message(self, *, QueueUrl, MaxNumberOfMessages, WaitTimeSeconds):  # noqa: N803
        assert (QueueUrl, MaxNumberOfMessages) == ("dead", 10)
        assert WaitTimeSeconds > 0
        self._maybe_refuse("receive")
        received = self.bodies["dead"][:MaxNumberOfMessages]
        del self.bodies["dead"][: len(received)]
        handles = {f"handle {len(self.in_flight) + index}": body for index, body in enumerate(received)}
        self.in_flight |= handles
        messages = [{"ReceiptHandle": handle, "Body": body} for handle, body in handles.items()]
        return {"Messages": messages} if messages else {}

    def delete_message_batch(self, *, QueueUrl, Entries):  # noqa: N803
        assert QueueUrl == "dead"
        assert len({entry["Id"] for entry in Entries}) == len(Entries)
        self._maybe_refuse("delete")
        if not self.failed:
            for entry in Entries:
                del self.in_flight[entry["ReceiptHandle"]]
        return {"Failed": self.failed}

    def get_queue_attributes(self, *, QueueUrl, AttributeNames):  # noqa: N803
        self._maybe_refuse("count")
        figures = {
            "ApproximateNumberOfMessages": len(self.bodies[QueueUrl]),
            "ApproximateNumberOfMessagesDelayed": self.delayed,
            "ApproximateNumberOfMessagesNotVisible": len(self.in_flight) if QueueUrl == "dead" else 3,
        }
        return {"Attributes": {name: str(figures[name]) for name in AttributeNames}}

    def time_passes(self) -> None:
        self.bodies["dead"] += self.in_flight.values()
        self.in_flight.clear()


@pytest.fixture
def sqs():
    return Queues()


@pytest.fixture
def queues(sqs, monkeypatch):
    queues = EventQueues(sqs, events="events", dead_letters="dead")
    use_client(monkeypatch, SimpleNamespace(buffer=queues))
    return queues


def test_messages_are_counted(printed_by, document_of, sqs, queues):
    sqs.bodies = {"events": ["a", "b"], "dead": []}
    shown = printed_by("buffer", "status", *PROJECT)
    assert shown.out == "2 messages waiting, 3 being stored, 0 could not be stored\n"
    assert not shown.err
    sqs.bodies["dead"] = ["c"]
    assert document_of("buffer", "status", *PROJECT) == {"waiting": 2, "in_flight": 3, "dead": 1}
    assert "slackwater buffer redrive" in printed_by("buffer", "status", *PROJECT).err


def test_messages_of_a_longer_buffer_wait_too(document_of, sqs, queues):
    sqs.bodies, sqs.delayed = {"events": ["a", "b"], "dead": []}, 4
    assert document_of("buffer", "status", *PROJECT)["waiting"] == 6


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_every_dead_letter_is_sent_back_unchanged(document_of, sqs, queues, count):
    bodies = [f"body {number}" for number in range(count)]
    sqs.bodies["dead"] = list(bodies)
    assert document_of("buffer", "redrive", *PROJECT) == {"moved": count}
    assert sqs.bodies == {"events": bodies, "dead": []}
    assert not sqs.in_flight


def test_the_number_of_redriven_messages_is_printed(printed_by, sqs, queues):
    assert printed_by("buffer", "redrive", *PROJECT).out == "nothing to send back: there are no dead letters\n"
    sqs.bodies["dead"] = ["a"]
    assert printed_by("buffer", "redrive", *PROJECT).out.startswith("1 message sent back")


@pytest.mark.parametrize("operation", ["receive", "send", "delete"])
def test_an_interrupted_redrive_loses_nothing_and_can_be_repeated(sqs, queues, operation):
    bodies = [f"body {number}" for number in range(12)]
    sqs.bodies["dead"] = list(bodies)
    sqs.refused = {operation: "InternalError"}
    with pytest.raises(CloudError, match="dead letters"):
        list(queues.redrive())
    sqs.refused = {}
    sqs.time_passes()
    assert sorted({*sqs.bodies["events"], *sqs.bodies["dead"]}) == sorted(bodies)
    list(queues.redrive())
    assert set(sqs.bodies["events"]) == set(bodies)
    assert not sqs.bodies["dead"]


def test_a_dead_letter_that_is_not_deleted_is_an_error(sqs, queues):
    sqs.bodies["dead"] = ["a"]
    sqs.failed = [{"Id": "0", "Code": "InternalError"}]
    with pytest.raises(CloudError, match="InternalError"):
        list(queues.redrive())


def test_errors_are_printed(capsys, sqs, queues):
    sqs.refused = {"count": "AccessDenied"}
    assert run(["buffer", "status", *PROJECT]) == 1
    assert capsys.readouterr().err == "error: could not count the messages of events: AccessDenied: no\n"


def test_a_message_that_is_not_sent_is_an_error(sqs):
    buffer = SqsEventQueue(sqs, "events")
    buffer.send("a", delay=7)
    assert (sqs.bodies["events"], sqs.delays) == (["a"], [7])
    sqs.refused = {"send": "AccessDenied"}
    with pytest.raises(AccessDenied, match="could not send events to the queue"):
        buffer.send("b", delay=0)
