"""Who sends messages to the queue of states, and what `fold_state` does with them and with the event bus."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from lambdas import fetch_file, fold_state
from slackwater.aws.bus import EventBus
from slackwater.aws.queue import MessageQueue
from slackwater.errors import CloudError, Throttled
from slackwater.project.project import Project
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.runs.period import partition_of
from slackwater.sources.counts import ALL
from slackwater.state.facts import HOUR, RejectedEvents
from slackwater.state.reports import new_report
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_receiver import MemoryEventCounts, a_source
from tests.fakes_state import MemoryState
from tests.state_world import World

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = a_source(counts={"window": "1h"})
PROJECT = Project(sources={"things": SOURCE, "other": a_source(source="other")}, pipelines={})


class Sent(list):
    """The messages that were sent to the queue of states: bodies with delays."""

    def __call__(self, messages):
        self.extend((json.loads(body), seconds) for body, seconds in messages)


def test_a_report_and_rejected_events_send_the_hours_that_they_change():
    sent, state = Sent(), MemoryState()
    resources = resources_of(state_table=state, state_messages=sent)
    report = new_report(SOURCE, as_of=START, through=START, counts={START: 1, START + HOUR: 2}, principal="push:acme")
    resources.put_report(report)
    resources._put_rejected("things", {START: RejectedEvents("batch", {ALL: (1,) * 12})})
    # The rows count when their file is committed, which its function does within 15 minutes.
    resources.put_rejected_rows("things", {START: RejectedEvents("file-a-b", {ALL: (1,) * 12})})
    hours = [message["hours"] for message, _ in sent]
    assert hours == [["2026-01-01T12", "2026-01-01T13"], ["2026-01-01T12"], ["2026-01-01T12"]]
    assert [seconds for _, seconds in sent] == [0, 0, 900]
    assert len(state.rejected) == 2
    assert state.coverage("things") is not None


def test_a_report_whose_message_cannot_be_sent_is_not_confirmed():
    def fail(_):
        raise CloudError("SQS does not answer")

    resources = resources_of(state_table=MemoryState(), state_messages=fail)
    with pytest.raises(CloudError):
        resources.put_report(new_report(SOURCE, as_of=START, through=START, counts={}, principal="push:acme"))


@pytest.mark.parametrize("source", ["things", "other"])
def test_a_committed_file_sends_its_partitions_if_the_source_has_counts(monkeypatch, source):
    sent = Sent()
    counts = MemoryEventCounts()
    use_resources(monkeypatch, fetch_file, project=PROJECT, event_counts=counts, state_messages=sent)
    fetched = FetchResult(path="f.csv", state="stored", partitions=(partition_of(START), partition_of(START + HOUR)))
    fetch_file.report_fetched(source, fetched)
    fetch_file.report_fetched(source, fetched.model_copy(update={"partitions": ()}))
    expected = [({"source": "things", "hours": ["2026-01-01T12", "2026-01-01T13"], "listing": False}, 0)]
    assert sent == (expected if source == "things" else [])


def test_the_daily_check_asks_for_each_day_of_the_window_and_logs_an_error():
    sent = Sent()
    resources = resources_of(state_messages=sent)
    resources.fold_states("things", {partition_of(START + number * HOUR) for number in range(24)})
    assert [(message["listing"], len(message["hours"])) for message, _ in sent] == [(True, 12), (True, 12)]

    def fail(_):
        raise CloudError("SQS does not answer")

    resources_of(state_messages=fail).fold_states("things", {partition_of(START)})


def test_the_function_reports_the_messages_that_failed(monkeypatch):
    world = World(SOURCE, now=START)
    world.send_event_of(world.write(START, [(0, "a")], f"{1:032x}-1", None))
    use_resources(monkeypatch, fold_state, period_folder=world.folder())
    records = [{"messageId": "good", "body": world.queue[0]}, {"messageId": "bad", "body": "text"}]
    assert fold_state.handler({"Records": records}, None) == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
    assert world.table.stored


def test_a_queue_says_which_one_it_is_in_errors():
    sqs = SimpleNamespace(send_message_batch=lambda **_: {"Failed": [{"Code": "InternalError"}]})
    with pytest.raises(CloudError, match="could not send a message to the queue of states: InternalError"):
        MessageQueue(sqs, "url", "queue of states")([("body", 0)])


def test_events_that_the_bus_does_not_take_are_an_error():
    world = World(SOURCE, now=START)
    world.send_event_of(world.write(START, [(0, "a")], f"{1:032x}-1", None))
    at = START + HOUR
    world.table.put_report(new_report(SOURCE, as_of=at, through=at, counts={START: 1}, principal="push:acme"))
    world.handle_all()
    entries, failed = [], []

    def put_events(*, Entries):  # noqa: N803
        entries.extend(Entries)
        return {"FailedEntryCount": len(failed), "Entries": failed or [{"EventId": "1"}] * len(Entries)}

    bus = EventBus(SimpleNamespace(put_events=put_events))
    bus.put_changes(world.changes)
    [entry] = entries
    assert (entry["Source"], entry["DetailType"]) == ("slackwater", "Slackwater Period Changed")
    assert json.loads(entry["Detail"])["start"] == "2026-01-01T12:00:00Z"
    # The quota of an entry is 256 KB, and of a request ten entries.
    assert len(entry["Detail"]) < 1_000
    failed.append({"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"})
    with pytest.raises(Throttled, match="could not send events: ThrottlingException: slow down"):
        bus.put_changes(world.changes)
