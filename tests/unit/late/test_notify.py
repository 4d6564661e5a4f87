import threading
from contextlib import suppress
from datetime import timedelta
from itertools import product

import pytest

from slackwater.errors import CloudError, DayChanged, InputError, ObjectMissing, ResponseLost, Throttled
from slackwater.late.comparison import RowCounts
from slackwater.late.message import Message
from slackwater.late.notify import Notifier, message_uri
from slackwater.runs.record import ActiveRun, NotificationClaim
from tests.fakes_notification import (
    DATE,
    FROZEN,
    PIPELINE,
    Crashed,
    Outbox,
    PointedOutbox,
    PointedStore,
    PointedTable,
    Points,
    a_comparison,
    a_day,
    a_run,
    published,
)
from tests.fakes_runs import DictRunTable, DictStore, SetExecutions

pytestmark = pytest.mark.unit

NOW = FROZEN + timedelta(days=3)
WRITES = 5
"""Writes of one notification: the message, the claim, the sending, the message's id, the day."""


class World:
    """A day whose second version people do not know, and the notifiers of it."""

    def __init__(self):
        self.store, self.table, self.outbox = DictStore(), DictRunTable(), Outbox()
        self.executions, self.alarms, self.time = SetExecutions("one", "two"), [], NOW
        self.table.save_day(a_day(2))

    def notifier(self, points=None):
        points = points or Points()
        return Notifier(
            store=PointedStore(self.store, points),
            table=PointedTable(self.table, points),
            executions=self.executions,
            topic=PointedOutbox(self.outbox, points),
            now=lambda: self.time,
            on_outcome_unknown=self.alarms.append,
        )

    def compare(self, before=1, after=2, **more):
        uri = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/{before}-{after}/comparison.json"
        self.store.put(uri, a_comparison(before=before, after=after, **more).model_dump_json().encode())
        return uri

    def notify(self, execution="one", *, before=1, after=2, points=None, **more):
        uri = self.compare(before, after, **more)
        return self.notifier(points).notify(pipeline=PIPELINE, date=DATE, comparison=uri, execution=execution)

    def publish(self, attempt):
        update = {"published": published(attempt), "attempts": attempt}
        self.table.save_day(self.day.model_copy(update=update))

    def over(self, execution):
        self.executions.running.discard(execution)

    @property
    def day(self):
        return self.table.day(PIPELINE, DATE)

    def message(self, before=1, after=2):
        uri = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/{before}-{after}/message.json"
        return Message.model_validate_json(self.store.get(uri))


@pytest.fixture
def world():
    return World()


def test_people_are_notified_once_and_the_message_is_stored(world):
    result = world.notify()
    assert result.model_dump() == {
        "notified": True,
        "reason": "",
        "message": f"s3://exchange/comparisons/{PIPELINE}/{DATE}/1-2/message.json",
    }
    (sent,) = world.outbox.sent
    kept = world.message()
    assert (kept.subject, kept.body) == (sent["subject"], sent["body"])
    assert (kept.message_id, kept.sent_at) == ("message-1", NOW)
    assert sent["attributes"] == {"pipeline": PIPELINE, "date": DATE}
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, False)
    assert world.alarms == []


@pytest.mark.parametrize("execution", ["one", "two"])
def test_people_are_not_notified_again(world, execution):
    world.notify()
    again = world.notify(execution)
    assert (again.notified, again.reason, again.message) == (False, "already notified", "")
    assert len(world.outbox.sent) == 1


def test_a_version_that_was_replaced_is_left_to_the_next_monitoring(world):
    world.publish(3)
    result = world.notify()
    assert (result.notified, result.reason) == (
        False,
        "attempt 3 was published meanwhile: the next monitoring compares it",
    )
    assert (world.outbox.sent, world.day.notified_attempt) == ([], 1)
    assert world.notify(before=1, after=3).notified


def test_a_comparison_with_an_older_version_than_people_know_is_left_to_the_next_monitoring(world):
    world.notify()
    world.publish(3)
    result = world.notify(before=1, after=3)
    assert (result.notified, result.reason) == (
        False,
        "people were notified of attempt 2: the next monitoring compares with it",
    )
    assert len(world.outbox.sent) == 1
    assert world.notify(before=2, after=3).notified


def test_an_output_that_did_not_change_is_known_without_a_message(world):
    result = world.notify(rows=RowCounts(before=42, after=42, added=0, removed=0, changed=0))
    assert (result.notified, result.reason, result.message) == (False, "the output did not change", "")
    assert (world.outbox.sent, world.day.notified_attempt, world.day.notification_due) == ([], 2, False)


def test_nobody_is_notified_of_a_day_that_is_no_longer_published(world):
    world.table.save_day(world.day.model_copy(update={"published": None}))
    assert world.notify().reason == "the day has no published version any more"


def test_a_comparison_of_another_day_is_refused(world):
    uri = world.compare()
    with pytest.raises(InputError, match=f"compares {PIPELINE} for {DATE}, not "):
        world.notifier().notify(pipeline=PIPELINE, date="2013-03-11", comparison=uri, execution="one")


def test_a_missing_comparison_is_an_error(world):
    with pytest.raises(ObjectMissing):
        world.notifier().notify(pipeline=PIPELINE, date=DATE, comparison="s3://exchange/no.json", execution="one")


@pytest.mark.parametrize("refusal", [Throttled("slow down"), CloudError("could not publish: InvalidParameter")])
def test_a_refusal_releases_the_day_and_the_message_is_sent_by_the_next_try(world, refusal):
    world.outbox.refuses = refusal
    with pytest.raises(type(refusal)):
        world.notify()
    assert (world.day.notification_claim, world.day.notified_attempt, world.alarms) == (None, 1, [])
    assert world.message().message_id is None
    world.outbox.refuses = None
    assert world.notify("two").notified
    assert len(world.outbox.sent) == 1


@pytest.mark.parametrize("retried_by", ["one", "two"])
def test_after_a_lost_response_an_alarm_fires_and_nothing_is_sent_again(world, retried_by):
    world.outbox.loses = ResponseLost("time-out")
    result = world.notify()
    assert not result.notified
    assert result.reason.startswith(
        "outcome unknown: people may have been notified of attempt 2, or not (s3://exchange/comparisons/"
    )
    assert world.alarms == [PIPELINE]
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)
    world.outbox.loses = None
    assert world.notify(retried_by).reason == "already notified"
    assert len(world.outbox.sent) == 1


def test_a_claim_of_another_monitoring_that_runs_is_respected(world):
    with pytest.raises(Crashed):
        world.notify("one", points=Points(at=2))
    result = world.notify("two")
    assert (result.notified, result.reason) == (False, "another monitoring sends the notification")
    assert (world.outbox.sent, world.alarms, world.day.notified_attempt) == ([], [], 1)


def test_a_claim_that_step_functions_does_not_know_yet_is_respected_while_it_is_young(world):
    with pytest.raises(Crashed):
        world.notify("one", points=Points(at=2))
    world.executions.known.clear()
    assert world.notify("two").reason == "another monitoring sends the notification"
    world.time += timedelta(minutes=3)
    assert world.notify("two").reason.startswith("outcome unknown")


@pytest.mark.parametrize("retried_by", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_between_any_two_writes_ends_in_one_message_or_in_an_alarm(world, at, retried_by):
    with pytest.raises(Crashed):
        world.notify("one", points=Points(at=at))
    if retried_by == "two":
        world.over("one")
    result = world.notify(retried_by)
    sent, sure = len(world.outbox.sent), at not in {2, 3}
    assert sent == (0 if at == 2 else 1)  # claimed but not sent: nobody can know
    assert bool(world.alarms) is not sure
    assert result.notified is (at < 2 or (at == 4 and retried_by == "one"))
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, False)
    assert world.notify("two").reason == "already notified"
    assert len(world.outbox.sent) == sent


def test_a_notification_has_no_more_writes_than_are_tested_here(world):
    points = Points()
    world.notify(points=points)
    assert points.writes == WRITES


@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_while_a_claim_is_resolved_changes_nothing_about_it(world, at):
    with pytest.raises(Crashed):
        world.notify("one", points=Points(at=at))
    world.over("one")
    if at >= 2:
        with pytest.raises(Crashed):
            world.notify("two", points=Points(at=0))
        world.over("two")
    world.executions.running.add("three")
    world.executions.known.add("three")
    world.notify("three")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert not world.day.notification_due


@pytest.mark.parametrize("other", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_of_two_notifiers_at_once_one_sends_wherever_they_meet(world, at, other):
    """`other` runs completely in between: another monitoring, or a retry of a call that still runs."""
    answers = []
    first = world.notify("one", points=Points(at=at, do=lambda: answers.append(world.notify(other))))
    assert len(world.outbox.sent) == 1
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)
    if other == "two":
        assert [first.notified, answers[0].notified].count(True) == 1
        assert world.alarms == []


@pytest.mark.parametrize("names", [("one", "two", "three"), ("one", "two", "one"), ("one", "one", "two")])
@pytest.mark.parametrize("crashing", [True, False])
@pytest.mark.parametrize(("first", "second"), list(product(range(WRITES), repeat=2)))
def test_of_three_nested_notifiers_one_sends_or_an_alarm_fires(world, first, second, crashing, names):
    """The second one begins within the first and crashes or not; the third one begins within the second or after it."""
    world.executions.running.add("three")
    world.executions.known.add("three")

    def third():
        world.notify(names[2])

    def within():
        with suppress(Crashed):
            world.notify(names[1], points=Points(at=second, do=None if crashing else third))
        if crashing:
            third()

    world.notify(names[0], points=Points(at=first, do=within))
    for execution in ("one", "two", "three"):
        world.over(execution)
    world.executions.running.add("last")
    world.executions.known.add("last")
    world.notify("last")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)


def test_many_notifiers_in_threads_send_one_message(world):
    uri, names = world.compare(), [f"monitor-{number}" for number in range(8)]
    world.executions.running.update(names)
    world.executions.known.update(names)
    barrier, lock, save = threading.Barrier(len(names)), threading.Lock(), world.table.save_day

    def save_day(day):
        with lock:  # DynamoDB's condition is atomic, the dictionary's is not
            save(day)

    world.table.save_day = save_day
    answers = []

    def run(name):
        barrier.wait()
        answers.append(world.notifier().notify(pipeline=PIPELINE, date=DATE, comparison=uri, execution=name))

    threads = [threading.Thread(target=run, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.outbox.sent) == 1
    assert sorted(answer.notified for answer in answers) == [False] * 7 + [True]
    assert {answer.reason for answer in answers if not answer.notified} <= {
        "already notified",
        "another monitoring sends the notification",
    }


@pytest.mark.parametrize("at", range(WRITES))
def test_a_run_that_begins_meanwhile_neither_loses_nor_repeats_the_message(world, at):
    active = ActiveRun(execution="two", run=a_run(3), since=NOW)

    def begin():
        world.table.save_day(world.day.model_copy(update={"active": active}))

    assert world.notify(points=Points(at=at, do=begin)).notified
    assert len(world.outbox.sent) == 1
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.active) == (2, None, active)


@pytest.mark.parametrize("at", range(WRITES))
def test_a_version_published_meanwhile_is_compared_by_the_next_monitoring(world, at):
    result = world.notify(points=Points(at=at, do=lambda: world.publish(3)))
    assert result.notified is (at >= 2)
    assert result.notified or "attempt 3 was published meanwhile" in result.reason
    assert world.day.notification_due
    assert world.notify("two", before=world.day.notified_attempt, after=3).notified
    assert (world.day.notified_attempt, world.alarms) == (3, [])


@pytest.mark.parametrize(("at", "alarms", "sent"), [(2, 1, 0), (3, 1, 1), (4, 0, 1)])
def test_a_claim_on_an_earlier_version_is_resolved_before_a_later_notification(world, at, alarms, sent):
    with pytest.raises(Crashed):
        world.notify("one", points=Points(at=at))
    world.over("one")
    world.publish(3)
    result = world.notify("two", before=1, after=3)
    assert not result.notified
    assert (len(world.alarms), len(world.outbox.sent)) == (alarms, sent)
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, True)
    assert world.notify("two", before=2, after=3).notified


def test_a_claim_whose_response_was_lost_is_recognised(world):
    """The client writes again after a lost response, and the condition refuses its own first write."""
    save = world.table.save_day
    claims = []

    def save_day(day):
        save(day)
        if day.notification_claim and not claims:
            claims.append(day.notification_claim)
            raise DayChanged(DATE)

    world.table.save_day = save_day
    assert world.notify().notified
    assert (len(world.outbox.sent), world.alarms) == (1, [])


def test_a_day_that_keeps_changing_is_an_error_to_be_retried(world):
    def save_day(day):
        raise DayChanged(DATE)

    world.table.save_day = save_day
    with pytest.raises(DayChanged, match="kept changing while its notification was claimed"):
        world.notify()
    assert world.outbox.sent == []


def test_a_message_whose_id_could_not_be_stored_is_not_sent_again(world):
    put = world.store.put

    def refuse(uri, body, *, metadata=None):
        if uri.endswith("message.json") and world.outbox.sent:
            raise CloudError("could not write")
        put(uri, body, metadata=metadata)

    world.store.put = refuse
    with pytest.raises(CloudError, match="could not write"):
        world.notify()
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)
    assert world.notify("two").reason == "already notified"
    assert len(world.outbox.sent) == 1


def test_a_message_that_could_not_be_stored_leaves_no_claim(world):
    with pytest.raises(CloudError, match="could not write"):
        world.notify(points=Points(at=0, do=lambda: (_ for _ in ()).throw(CloudError("could not write"))))
    assert world.day.notification_claim is None
    assert world.notify("two").notified


def test_the_message_is_stored_next_to_its_comparison():
    assert message_uri("s3://exchange/comparisons/p/d/1-2/comparison.json") == (
        "s3://exchange/comparisons/p/d/1-2/message.json"
    )


def test_the_claim_of_another_notifier_is_not_removed(world):
    """A claim that seemed to be left behind was resolved: the day may have the claim of the next notification."""
    theirs = NotificationClaim(execution="two", attempt=3, since=NOW, call="theirs")

    def resolve():
        update = {"notified_attempt": 2, "notification_claim": theirs, "published": published(3)}
        world.table.save_day(world.day.model_copy(update=update))

    world.notify(points=Points(at=3, do=resolve))
    assert world.day.notification_claim == theirs
