"""Push through a queue: events are stored once, however their messages are grouped, repeated and interrupted."""

from __future__ import annotations

import gzip
import io
import json
import time
import tracemalloc
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ministack.services import lambda_svc, sns, sqs
from ministack.services.cloudformation import provisioners

from lambdas import store_events
from slackwater.errors import CloudError
from slackwater.local.services import queues as emulated_queues
from slackwater.receiver.push import queue
from slackwater.receiver.push.queue import MAX_MESSAGE_BYTES, BufferedBatch, store_messages
from slackwater.receiver.push.receive import Receipt
from slackwater.sources.definition import GENERATED_ID, Source
from tests import pushing
from tests.fakes_functions import use_resources
from tests.fakes_receiver import RECEIVED, Crash, a_source
from tests.reading import counted_events, stored_events

pytestmark = pytest.mark.unit

JSON, NDJSON = "application/json", "application/x-ndjson"
QUEUE = {"buffer": "queue"}
THINGS = a_source(push=QUEUE)
FIELDS = {name: field.model_dump(by_alias=True) for name, field in THINGS.fields.items()}
OTHERS = a_source(source="others", push=QUEUE, event_id="id")


class Setup(pushing.Setup):
    """The API, a queue and the function that stores its messages, with fakes."""

    def __init__(self, *sources: Source, **limits: int) -> None:
        super().__init__(*(sources or (THINGS, OTHERS)), **limits)

    def deliver(self, *indexes: int) -> dict[int, str]:
        """Store the messages with these indexes, or all; return the failures by index."""
        messages = {str(index): self.queue.messages[index] for index in indexes or range(len(self.queue.messages))}
        results = list(store_messages(messages, source=self.find_source, receiver=self.receiver))
        assert sorted(message_id for message_id, _, _ in results) == sorted(messages)
        return {int(message_id): failure for message_id, _, failure in results if failure is not None}

    def objects(self, source: str = "things") -> list[str]:
        return self.store.uris(f"/raw/source={source}/")

    def counted_rows(self, source: str = "things") -> list[dict[str, object]]:
        definition = self.sources[source]
        return counted_events(stored_events(self.store, definition), definition.id_column)


def event(number: int = 0, hour: int = 12, **changes: object) -> dict[str, object]:
    return {"id": "a", "at": f"2013-03-08T{hour}:00:00Z", "count": number, **changes}


class TestResponse:
    def test_a_small_body_is_queued_before_the_response(self):
        setup = Setup()
        body = gzip.compress(json.dumps(event()).encode(), mtime=0)
        answer = setup.post(body=body, content_encoding="gzip")
        assert answer.status == 202
        assert (answer.body["accepted"], answer.body["duplicates"], answer.body["rejected"]) == (1, 0, [])
        [uri] = setup.store.objects
        receipt = Receipt.model_validate_json(setup.store.get(uri))
        assert (receipt.received_at, receipt.definition) == (RECEIVED, THINGS)
        [message] = setup.queue.messages
        assert BufferedBatch.model_validate_json(message) == BufferedBatch(
            receipt=receipt,
            body=body,
            content_type=NDJSON,
            content_encoding="gzip",
            origin="push:acme",
            accepted=1,
            correlation_id="mine",
        )

    def test_rejected_events_are_stored_before_the_response_and_accepted_events_are_queued(self):
        setup = Setup()
        answer = setup.post(event(), 7, event(1))
        assert (answer.status, answer.body["accepted"]) == (202, 2)
        assert answer.body["rejected"] == [{"index": 1, "reason": "an event is a JSON object, not a number (7)"}]
        [uri] = setup.store.uris("/sideline/")
        assert json.loads(setup.store.get(uri))["text"] == "7"
        assert not setup.objects()
        message = BufferedBatch.model_validate_json(setup.queue.messages[0])
        assert message.accepted == 2

    @pytest.mark.parametrize(
        ("body", "headers", "status"),
        [
            (b"[]", {"content_type": JSON}, 202),
            (b"7\n8", {}, 422),
            (b"hello", {}, 400),
            (b"", {}, 400),
            (b"[1]", {"content_type": "text/csv"}, 415),
            (b"1\n" * 4, {}, 413),
            (b" " * 2000 + b"1", {}, 413),
        ],
        ids=["no event", "all rejected", "unreadable", "empty", "media type", "too many", "too large"],
    )
    def test_without_accepted_events_no_message_is_sent(self, body, headers, status):
        setup = Setup(a_source(push={**QUEUE, "max_events": 3}), body_bytes=1000)
        assert setup.post(body=body, **headers).status == status
        assert not setup.queue.messages

    def test_there_is_no_response_before_the_queue_confirms(self):
        setup = Setup()
        setup.fuse.left = 1  # the receipt
        with pytest.raises(Crash, match="before send"):
            setup.post(event())

    @pytest.mark.parametrize(("extra_characters", "is_queued"), [(0, True), (1, False)])
    def test_a_body_that_does_not_fit_in_a_message_is_stored_immediately(self, extra_characters, is_queued):
        setup = Setup()
        setup.post(event(note=""))
        [message] = setup.queue.messages
        # Base64 turns three bytes of a body into four of a message.
        room = (MAX_MESSAGE_BYTES - len(message)) // 4 * 3
        answer = setup.post(event(note="x" * (room + 3 * extra_characters)))
        assert (answer.status, answer.body["accepted"], answer.body["duplicates"]) == (202, 1, 0)
        assert len(setup.queue.messages) == 1 + is_queued
        assert len(setup.objects()) == 1 - is_queued
        assert max(map(len, setup.queue.messages)) <= MAX_MESSAGE_BYTES
        again = setup.post(event(note="x" * (room + 3 * extra_characters)))
        assert (again.body["accepted"], again.body["duplicates"]) == ((1, 0) if is_queued else (0, 1))
        setup.deliver()
        assert len(setup.counted_rows()) == 2

    def test_a_source_without_buffer_does_not_use_the_queue(self):
        setup = Setup(a_source())
        assert setup.post(event()).body["accepted"] == 1
        assert (len(setup.objects()), setup.queue.messages) == (1, [])


class TestStore:
    def test_batches_of_a_source_are_joined_by_hour(self):
        setup = Setup()
        for number in range(10):
            setup.post(event(number, hour=12 + number % 2))
            setup.post(event(number, id=f"b{number}"), source="others")
        setup.clock.pass_by(minutes=1)
        assert setup.deliver() == {}
        assert (len(setup.objects()), len(setup.objects("others"))) == (2, 1)
        assert sorted(row["count"] for row in setup.counted_rows()) == list(range(10))
        assert sorted(row["id"] for row in setup.counted_rows("others")) == [f"b{number}" for number in range(10)]
        assert {row["_received_at"] for row in setup.counted_rows()} == {RECEIVED}

    def test_an_event_without_an_id_gets_one_from_its_batch_and_index(self):
        setup = Setup()
        batch = setup.post(event(), 7, event()).body["batch_id"]
        setup.deliver()
        assert sorted(row[GENERATED_ID] for row in setup.counted_rows()) == [f"{batch}-0", f"{batch}-2"]

    def test_an_unreadable_message_does_not_fail_others(self):
        setup = Setup()
        setup.post(event())
        for message in ("", "{}", '{"source": "things"}', setup.queue.messages[0].replace('"body":"', '"body":"%')):
            setup.queue.messages.append(message)
        failed = setup.deliver()
        assert sorted(failed) == [1, 2, 3, 4]
        assert all(reason.startswith("the message is not a batch of events: ") for reason in failed.values())
        assert len(setup.counted_rows()) == 1

    def test_an_unknown_source_fails_only_its_own_messages(self):
        setup = Setup()
        setup.post(event(), source="others")
        setup.post(event())
        del setup.sources["others"]
        assert setup.deliver() == {0: "no source 'others'"}
        assert len(setup.counted_rows()) == 1

    def test_a_message_is_stored_by_the_definition_that_accepted_it(self):
        """Later definitions refuse the body, reject its accepted event, accept its rejected event or move its hour."""
        old, new = (
            a_source(
                push={**QUEUE, "max_events": max_events},
                fields={**FIELDS, "day": {"type": "date", "formats": [date_format]}},
                timestamp={"field": "at", "timezone": timezone},
            )
            for max_events, date_format, timezone in ((2, "%d/%m/%Y", "UTC"), (1, "%m/%d/%Y", "Asia/Kolkata"))
        )
        setup = Setup(old)
        sent = [event(1, day="25/12/2013", at="2013-03-08T12:00:00"), event(2, day="12/25/2013")]
        answer = setup.post(*sent)
        assert [item["index"] for item in answer.body["rejected"]] == [1]
        setup.sources["things"] = new
        setup.post(event(3, at="2013-03-08T12:00:00"))
        assert setup.deliver() == {}
        hours = {row["count"]: row["_event_time"].hour for row in setup.counted_rows()}
        assert hours == {1: 12, 3: 6}
        assert setup.post(*sent).body == answer.body
        assert setup.deliver() == {}
        assert len(setup.counted_rows()) == 2
        assert len(setup.store.uris("/sideline/")) == 1

    @pytest.mark.parametrize(("first", "then"), [("none", "queue"), ("queue", "none")])
    def test_a_body_is_stored_once_when_the_source_starts_or_stops_to_use_the_queue(self, first, then):
        setup = Setup(a_source(push={"buffer": first}))
        assert setup.post(event(1), event(2)).body["accepted"] == 2
        setup.sources["things"] = a_source(push={"buffer": then})
        setup.post(event(1), event(2))
        if setup.queue.messages:
            assert setup.deliver() == {}
        events = stored_events(setup.store, a_source())
        assert sorted(row["count"] for row in counted_events(events, GENERATED_ID)) == [1, 2]

    def test_a_message_that_this_release_reads_differently_fails(self, monkeypatch):
        setup = Setup()
        setup.post(event(1))
        message = json.loads(setup.queue.messages[0])
        message["receipt"]["events_digest"] = "other"
        setup.queue.messages.append(json.dumps(message))
        failed = setup.deliver()
        assert sorted(failed) == [1]
        assert failed[1].endswith("could be stored twice: deploy that release again")
        assert [row["count"] for row in setup.counted_rows()] == [1]

    def test_a_failed_write_fails_only_the_messages_of_its_source(self):
        setup = Setup()
        setup.post(event(1), source="others")
        setup.post(event(2))
        setup.post(event(3), source="others")
        put_new = setup.store.put_new

        def failing_put_new(uri: str, body: bytes, **options: object) -> bool:
            if "source=others" in uri:
                raise CloudError(f"could not write {uri}")
            return put_new(uri, body, **options)

        setup.store.put_new = failing_put_new
        failed = setup.deliver()
        assert sorted(failed) == [0, 2]
        assert all(reason.startswith("could not write s3://raw/raw/source=others/") for reason in failed.values())
        assert [row["count"] for row in setup.counted_rows()] == [2]

    def test_a_write_that_fails_without_a_reason_keeps_its_message(self):
        setup = Setup()
        setup.post(event(1))

        def failing_put_new(uri: str, body: bytes, **options: object) -> bool:
            raise CloudError

        setup.store.put_new = failing_put_new
        assert setup.deliver() == {0: ""}

    def test_joined_batches_fit_in_memory(self, monkeypatch):
        setup = Setup()
        for number in range(9):
            setup.post(event(number, note="x" * 1000))
        monkeypatch.setattr(queue, "JOINED_BYTES", 6000)
        setup.deliver()
        assert len(setup.objects()) == 3
        assert sorted(row["count"] for row in setup.counted_rows()) == list(range(9))

    def test_the_expanded_size_of_a_body_counts_towards_the_memory_limit(self, monkeypatch):
        """Ignored fields use memory, too."""
        setup = Setup(a_source(push=QUEUE, unknown_fields="ignore"))
        for number in range(9):
            body = json.dumps(event(number, note="x" * 2000)).encode()
            setup.post(body=gzip.compress(body), content_encoding="gzip")
        monkeypatch.setattr(queue, "JOINED_BYTES", 6000)
        setup.deliver()
        assert len(setup.objects()) == 3

    def test_rejected_events_count_towards_the_memory_limit(self, monkeypatch):
        """A body of a few bytes may have many of them, each with a reason."""
        setup = Setup()
        for number in range(9):
            setup.post(event(number), *[{}] * 20)
        monkeypatch.setattr(queue, "JOINED_BYTES", 6000)
        setup.deliver()
        assert len(setup.objects()) == 3  # one without counting them
        assert sorted(row["count"] for row in setup.counted_rows()) == list(range(9))

    def test_queued_bodies_are_not_held_in_memory_before_they_are_joined(self):
        """Storing ten takes no more memory than storing one, though all become one object."""
        setup = Setup(a_source(push=QUEUE, unknown_fields="ignore"), expanded_bytes=1_000_000)
        for number in range(11):
            body = json.dumps(event(number, note="x" * 500_000)).encode()
            setup.post(body=gzip.compress(body), content_encoding="gzip")
        peaks = []
        for messages in ([10], range(10)):
            tracemalloc.start()
            try:
                assert setup.deliver(*messages) == {}
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        assert len(setup.objects()) == 2
        assert peaks[1] < peaks[0] + 500_000


@st.composite
def histories(draw):
    """Return the sizes of bodies, how often each is sent, and invocations: messages, allowed writes, answered."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    send_counts = [draw(st.integers(1, 2)) for _ in sizes]
    message = st.integers(0, sum(send_counts) - 1)
    writes, answered = st.integers(0, 5), st.sampled_from([True, True, False])
    invocation = st.tuples(st.lists(message, min_size=1, unique=True), writes, answered)
    return sizes, send_counts, draw(st.lists(invocation, max_size=6)), draw(st.randoms(use_true_random=False))


@given(history=histories())
@pytest.mark.parametrize("source", [THINGS, OTHERS], ids=["own ids", "the partner's ids"])
def test_each_event_is_stored_once_after_repeated_and_interrupted_deliveries(source, history):
    """Bodies are compressed or not; messages are grouped in any way, delivered again, and interrupted anywhere."""
    sizes, send_counts, invocations, random = history
    setup, numbers = Setup(), iter(range(100))
    # A third of the events of an hour share an id; they are one event only if the source uses the partner's ids.
    bodies = [[next(numbers) for _ in range(size)] for size in sizes]
    posts = [body for body, times in zip(bodies, send_counts, strict=True) for _ in range(times)]
    random.shuffle(posts)
    for body in posts:
        setup.clock.pass_by(seconds=1)
        lines = "\n".join(json.dumps(event(n, 12 + n % 2, id=shared_id(n))) for n in body).encode()
        payload, headers = random.choice([(lines, {}), (gzip.compress(lines), {"content_encoding": "gzip"})])
        answer = setup.post(body=payload, source=source.source, **headers)
        assert answer.body["accepted"] == len(body)
    waiting = set(range(len(posts)))
    for messages, writes, answered in invocations:
        setup.fuse.left = writes
        failed = setup.deliver(*messages)
        waiting -= set(messages) - set(failed) if answered else set()
    setup.fuse.left = None
    if waiting:
        assert setup.deliver(*sorted(waiting)) == {}
    numbers_read = [row["count"] for row in setup.counted_rows(source.source)]
    if source is THINGS:
        assert sorted(numbers_read) == list(range(sum(sizes)))
    else:
        every = {(n % 2, shared_id(n)) for body in bodies for n in body}
        assert sorted((n % 2, shared_id(n)) for n in numbers_read) == sorted(every)


def shared_id(number: int) -> str:
    return "shared" if number % 3 == 0 else str(number)


class TestHandler:
    @pytest.fixture
    def setup(self, monkeypatch):
        setup = Setup()
        self.logs = io.StringIO()
        monkeypatch.setattr(store_events.logger.registered_handler, "stream", self.logs)
        project = SimpleNamespace(source=setup.find_source)
        use_resources(monkeypatch, store_events, project=project, receiver=setup.receiver)
        return setup

    def handle(self, setup):
        records = [{"messageId": f"m{n}", "body": body} for n, body in enumerate(setup.queue.messages)]
        return store_events.handler({"Records": records}, None)

    def test_failed_messages_are_returned_and_all_are_logged_with_their_correlation_id(self, setup, capsys):
        setup.post(event())
        setup.post(event(), source="others")
        setup.queue.messages.append("hello")
        del setup.sources["others"]
        answer = self.handle(setup)
        assert sorted(answer) == ["batchItemFailures"]
        assert sorted(failure["itemIdentifier"] for failure in answer["batchItemFailures"]) == ["m1", "m2"]
        logged = {line["message_id"]: line for line in map(json.loads, self.logs.getvalue().splitlines())}
        log_entries = {name: (line["message"], line["level"], line["correlation_id"]) for name, line in logged.items()}
        assert log_entries == {
            "m0": ("batch stored", "INFO", "mine"),
            "m1": ("batch not stored", "ERROR", "mine"),
            "m2": ("batch not stored", "ERROR", "m2"),
        }
        assert logged["m1"]["reason"] == "no source 'others'"
        assert not capsys.readouterr().out  # no metrics: events were counted when they were answered

    def test_when_everything_is_stored_no_message_is_returned(self, setup):
        setup.post(event())
        assert self.handle(setup) == {"batchItemFailures": []}


class TestBuffer:
    """Messages of each second of two minutes: the objects that they make, and when they are stored."""

    @pytest.fixture
    def sent(self, monkeypatch):
        """Push an event each second through the queue of the local cloud; return setup, objects and waits in seconds.

        The emulator's queue and the adapter's batches, by a clock that the test moves.
        """
        monkeypatch.setattr(sqs, "_receive_messages_for_esm", sqs._receive_messages_for_esm)
        monkeypatch.setattr(sns, "_deliver_to_sqs", sns._deliver_to_sqs)
        kind = "AWS::Lambda::EventSourceMapping"
        monkeypatch.setitem(provisioners._RESOURCE_HANDLERS, kind, dict(provisioners._RESOURCE_HANDLERS[kind]))
        emulated_queues.register()
        url = sqs._act_create_queue({"QueueName": "events", "Attributes": {"VisibilityTimeout": "420"}}, "")["QueueUrl"]
        arn = sqs._queues[url]["attributes"]["QueueArn"]
        lambda_svc._esms["one"] = {"EventSourceArn": arn, "MaximumBatchingWindowInSeconds": 5}

        def push(**seconds_of_sources: int) -> tuple[Setup, dict[str, list[int]]]:
            setup = Setup(
                *(
                    a_source(source=name, push={**QUEUE, "buffer_seconds": seconds})
                    for name, seconds in seconds_of_sources.items()
                )
            )
            sizes: dict[str, list[int]] = {name: [] for name in seconds_of_sources}
            monkeypatch.setattr(time, "time", lambda: setup.clock().timestamp())
            for second in range(120 + 66):
                for name in seconds_of_sources if second < 120 else ():
                    setup.post(event(second, id=f"{name} {second}"), source=name)
                    message, delay = setup.queue.messages.pop(), setup.queue.delays.pop()
                    sqs._act_send_message({"QueueUrl": url, "MessageBody": message, "DelaySeconds": delay}, url)
                batch = sqs._receive_messages_for_esm(url, 10_000)
                stored = store_messages(
                    {item["id"]: item["body"] for item in batch}, source=setup.find_source, receiver=setup.receiver
                )
                assert all(failure is None for _, _, failure in stored)
                for item in batch:
                    sqs._queues[url]["messages"].remove(item)
                for name, found in sizes.items():
                    if new := len(setup.objects(name)) - len(found):
                        sizes[name] = found + [second] * new
                setup.clock.pass_by(seconds=1)
            return setup, sizes

        yield push
        sqs.reset()
        lambda_svc._esms.clear()

    @pytest.mark.parametrize(("seconds", "objects"), [(5, 20), (30, 4), (60, 2)])
    def test_more_seconds_make_fewer_objects_of_the_same_events(self, sent, seconds, objects):
        setup, written = sent(things=seconds)
        assert len(written["things"]) == pytest.approx(objects, abs=1)
        assert sorted(row["count"] for row in setup.counted_rows("things")) == list(range(120))
        assert written["things"][-1] <= 120 + seconds + 5

    def test_a_source_does_not_wait_for_another_one_of_the_same_queue(self, sent):
        setup, written = sent(fast=5, slow=60)
        assert len(written["slow"]) <= 3
        assert len(written["fast"]) >= 18
        assert max(later - earlier for earlier, later in pairwise(written["fast"])) <= 7
        for name in written:
            assert sorted(row["count"] for row in setup.counted_rows(name)) == list(range(120))
