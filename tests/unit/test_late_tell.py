import threading
from contextlib import suppress
from datetime import timedelta
from itertools import product

import pytest

from slackwater.errors import AnswerLost, CloudError, DayChanged, InputError, ObjectMissing, Throttled
from slackwater.late.comparison import RowCounts
from slackwater.late.message import Message
from slackwater.late.notify import Notifier, message_uri
from slackwater.runs.record import ActiveRun, NotificationClaim
from tests.fakes_runs import DictRunTable, DictStore, SetExecutions
from tests.fakes_telling import (
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

pytestmark = pytest.mark.unit

NOW = FROZEN + timedelta(days=3)
WRITES = 5
"""Points that a telling passes: the message, the claim, the sending, the message's id, the day."""


class World:
    """A day whose second version people do not know, and those who tell them."""

    def __init__(self):
        self.store, self.table, self.outbox = DictStore(), DictRunTable(), Outbox()
        self.executions, self.alarms, self.time = SetExecutions("one", "two"), [], NOW
        self.table.save_day(a_day(2))

    def teller(self, points=None):
        points = points or Points()
        return Notifier(
            store=PointedStore(self.store, points),
            table=PointedTable(self.table, points),
            executions=self.executions,
            topic=PointedOutbox(self.outbox, points),
            now=lambda: self.time,
            unsure=self.alarms.append,
        )

    def compare(self, before=1, after=2, **more):
        uri = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/{before}-{after}/comparison.json"
        self.store.put(uri, a_comparison(before=before, after=after, **more).model_dump_json().encode())
        return uri

    def tell(self, execution="one", *, before=1, after=2, points=None, **more):
        uri = self.compare(before, after, **more)
        return self.teller(points).tell(pipeline=PIPELINE, date=DATE, comparison=uri, execution=execution)

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


def test_people_are_told_once_and_what_they_were_told_is_kept(world):
    told = world.tell()
    assert told.model_dump() == {
        "told": True,
        "why": "",
        "message": f"s3://exchange/comparisons/{PIPELINE}/{DATE}/1-2/message.json",
    }
    (sent,) = world.outbox.sent
    kept = world.message()
    assert (kept.subject, kept.body) == (sent["subject"], sent["body"])
    assert (kept.message_id, kept.sent_at) == ("message-1", NOW)
    assert sent["attributes"] == {"pipeline": PIPELINE, "date": DATE}
    assert (world.day.told, world.day.telling, world.day.notification_due) == (2, None, False)
    assert world.alarms == []


@pytest.mark.parametrize("execution", ["one", "two"])
def test_what_was_told_is_not_told_again(world, execution):
    world.tell()
    again = world.tell(execution)
    assert (again.told, again.why, again.message) == (False, "already told", "")
    assert len(world.outbox.sent) == 1


def test_a_version_that_was_overtaken_is_left_to_the_next_monitoring(world):
    world.publish(3)
    told = world.tell()
    assert (told.told, told.why) == (False, "overtaken by attempt 3: the next monitoring compares it")
    assert (world.outbox.sent, world.day.told) == ([], 1)
    assert world.tell(before=1, after=3).told


def test_a_comparison_with_an_older_version_than_people_know_is_left_to_the_next_monitoring(world):
    world.tell()
    world.publish(3)
    told = world.tell(before=1, after=3)
    assert (told.told, told.why) == (False, "people were told of attempt 2: the next monitoring compares with it")
    assert len(world.outbox.sent) == 1
    assert world.tell(before=2, after=3).told


def test_an_output_that_did_not_change_is_known_without_a_message(world):
    told = world.tell(rows=RowCounts(before=42, after=42, added=0, removed=0, changed=0))
    assert (told.told, told.why, told.message) == (False, "the output did not change", "")
    assert (world.outbox.sent, world.day.told, world.day.notification_due) == ([], 2, False)


def test_a_day_that_no_longer_stands_published_is_not_told(world):
    world.table.save_day(world.day.model_copy(update={"published": None}))
    assert world.tell().why.startswith("overtaken by attempt 0")


def test_a_comparison_of_another_day_is_refused(world):
    uri = world.compare()
    with pytest.raises(InputError, match=f"is one of {PIPELINE} for {DATE}"):
        world.teller().tell(pipeline=PIPELINE, date="2013-03-11", comparison=uri, execution="one")


def test_a_comparison_that_is_not_there_is_told(world):
    with pytest.raises(ObjectMissing):
        world.teller().tell(pipeline=PIPELINE, date=DATE, comparison="s3://exchange/no.json", execution="one")


@pytest.mark.parametrize("refusal", [Throttled("slow down"), CloudError("could not publish: InvalidParameter")])
def test_a_refusal_lets_go_of_the_day_and_the_message_is_sent_when_it_is_tried_again(world, refusal):
    world.outbox.refuses = refusal
    with pytest.raises(type(refusal)):
        world.tell()
    assert (world.day.telling, world.day.told, world.alarms) == (None, 1, [])
    assert world.message().message_id is None
    world.outbox.refuses = None
    assert world.tell("two").told
    assert len(world.outbox.sent) == 1


@pytest.mark.parametrize("retried_by", ["one", "two"])
def test_a_lost_answer_rings_an_alarm_and_is_never_sent_again(world, retried_by):
    world.outbox.loses = AnswerLost("time-out")
    told = world.tell()
    assert not told.told
    assert told.why.startswith("unsure: people may have been told of attempt 2, or not (s3://exchange/comparisons/")
    assert world.alarms == [PIPELINE]
    assert (world.day.told, world.day.telling) == (2, None)
    world.outbox.loses = None
    assert world.tell(retried_by).why == "already told"
    assert len(world.outbox.sent) == 1


def test_a_claim_of_another_monitoring_that_runs_is_respected(world):
    with pytest.raises(Crashed):
        world.tell("one", points=Points(at=2))
    told = world.tell("two")
    assert (told.told, told.why) == (False, "another monitoring tells it")
    assert (world.outbox.sent, world.alarms, world.day.told) == ([], [], 1)


def test_a_claim_that_step_functions_does_not_know_yet_is_respected_while_it_is_young(world):
    with pytest.raises(Crashed):
        world.tell("one", points=Points(at=2))
    world.executions.known.clear()
    assert world.tell("two").why == "another monitoring tells it"
    world.time += timedelta(minutes=3)
    assert world.tell("two").why.startswith("unsure")


@pytest.mark.parametrize("retried_by", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_between_any_two_writes_ends_in_one_message_or_in_an_alarm(world, at, retried_by):
    with pytest.raises(Crashed):
        world.tell("one", points=Points(at=at))
    if retried_by == "two":
        world.over("one")
    told = world.tell(retried_by)
    sent, sure = len(world.outbox.sent), at not in {2, 3}
    assert sent == (0 if at == 2 else 1)  # claimed and not sent: nobody can know
    assert bool(world.alarms) is not sure
    assert told.told is (at < 2 or (at == 4 and retried_by == "one"))
    assert (world.day.told, world.day.telling, world.day.notification_due) == (2, None, False)
    assert world.tell("two").why == "already told"
    assert len(world.outbox.sent) == sent


def test_a_telling_passes_no_more_points_than_are_tried_here(world):
    points = Points()
    world.tell(points=points)
    assert points.passed == WRITES


@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_while_a_crash_is_settled_changes_nothing_about_it(world, at):
    with pytest.raises(Crashed):
        world.tell("one", points=Points(at=at))
    world.over("one")
    if at >= 2:
        with pytest.raises(Crashed):
            world.tell("two", points=Points(at=0))
        world.over("two")
    world.executions.running.add("three")
    world.executions.known.add("three")
    world.tell("three")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert not world.day.notification_due


@pytest.mark.parametrize("other", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_of_two_tellers_at_once_one_sends_wherever_they_meet(world, at, other):
    """`other` tells all of it in between: another monitoring, or a retry of a call that still runs."""
    answers = []
    first = world.tell("one", points=Points(at=at, do=lambda: answers.append(world.tell(other))))
    assert len(world.outbox.sent) == 1
    assert (world.day.told, world.day.telling) == (2, None)
    if other == "two":
        assert [first.told, answers[0].told].count(True) == 1
        assert world.alarms == []


@pytest.mark.parametrize("names", [("one", "two", "three"), ("one", "two", "one"), ("one", "one", "two")])
@pytest.mark.parametrize("crashing", [True, False])
@pytest.mark.parametrize(("first", "second"), list(product(range(WRITES), repeat=2)))
def test_of_three_tellers_within_one_another_one_sends_or_an_alarm_rings(world, first, second, crashing, names):
    """The second one begins within the first and crashes or not; the third one begins within the second or after it."""
    world.executions.running.add("three")
    world.executions.known.add("three")

    def third():
        world.tell(names[2])

    def within():
        with suppress(Crashed):
            world.tell(names[1], points=Points(at=second, do=None if crashing else third))
        if crashing:
            third()

    world.tell(names[0], points=Points(at=first, do=within))
    for execution in ("one", "two", "three"):
        world.over(execution)
    world.executions.running.add("last")
    world.executions.known.add("last")
    world.tell("last")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert (world.day.told, world.day.telling) == (2, None)


def test_many_tellers_in_threads_send_one_message(world):
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
        answers.append(world.teller().tell(pipeline=PIPELINE, date=DATE, comparison=uri, execution=name))

    threads = [threading.Thread(target=run, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.outbox.sent) == 1
    assert sorted(answer.told for answer in answers) == [False] * 7 + [True]
    assert {answer.why for answer in answers if not answer.told} <= {"already told", "another monitoring tells it"}


@pytest.mark.parametrize("at", range(WRITES))
def test_a_run_that_begins_meanwhile_neither_loses_nor_doubles_the_message(world, at):
    active = ActiveRun(execution="two", run=a_run(3), since=NOW)

    def begin():
        world.table.save_day(world.day.model_copy(update={"active": active}))

    assert world.tell(points=Points(at=at, do=begin)).told
    assert len(world.outbox.sent) == 1
    assert (world.day.told, world.day.telling, world.day.active) == (2, None, active)


@pytest.mark.parametrize("at", range(WRITES))
def test_a_version_published_meanwhile_is_compared_by_the_next_monitoring(world, at):
    told = world.tell(points=Points(at=at, do=lambda: world.publish(3)))
    assert told.told is (at >= 2)
    assert told.told or "overtaken by attempt 3" in told.why
    assert world.day.notification_due
    assert world.tell("two", before=world.day.told, after=3).told
    assert (world.day.told, world.alarms) == (3, [])


@pytest.mark.parametrize(("at", "alarms", "sent"), [(2, 1, 0), (3, 1, 1), (4, 0, 1)])
def test_a_claim_on_an_earlier_version_is_settled_before_a_later_one_is_told(world, at, alarms, sent):
    with pytest.raises(Crashed):
        world.tell("one", points=Points(at=at))
    world.over("one")
    world.publish(3)
    told = world.tell("two", before=1, after=3)
    assert not told.told
    assert (len(world.alarms), len(world.outbox.sent)) == (alarms, sent)
    assert (world.day.told, world.day.telling, world.day.notification_due) == (2, None, True)
    assert world.tell("two", before=2, after=3).told


def test_a_claim_whose_own_answer_was_lost_is_recognised(world):
    """The client asks again after a lost answer, and the condition refuses what it has written itself."""
    save = world.table.save_day
    claims = []

    def save_day(day):
        save(day)
        if day.telling and not claims:
            claims.append(day.telling)
            raise DayChanged(DATE)

    world.table.save_day = save_day
    assert world.tell().told
    assert (len(world.outbox.sent), world.alarms) == (1, [])


def test_a_day_that_never_rests_is_left_to_be_tried_again(world):
    def save_day(day):
        raise DayChanged(DATE)

    world.table.save_day = save_day
    with pytest.raises(DayChanged, match="kept changing while people were to be told"):
        world.tell()
    assert world.outbox.sent == []


def test_a_message_that_could_not_be_kept_after_sending_is_not_sent_again(world):
    put = world.store.put

    def refuse(uri, body, *, metadata=None):
        if uri.endswith("message.json") and world.outbox.sent:
            raise CloudError("could not write")
        put(uri, body, metadata=metadata)

    world.store.put = refuse
    with pytest.raises(CloudError, match="could not write"):
        world.tell()
    assert (world.day.told, world.day.telling) == (2, None)
    assert world.tell("two").why == "already told"
    assert len(world.outbox.sent) == 1


def test_a_message_that_could_not_be_kept_before_sending_leaves_no_claim(world):
    with pytest.raises(CloudError, match="could not write"):
        world.tell(points=Points(at=0, do=lambda: (_ for _ in ()).throw(CloudError("could not write"))))
    assert world.day.telling is None
    assert world.tell("two").told


def test_the_message_stands_beside_its_comparison():
    assert message_uri("s3://exchange/comparisons/p/d/1-2/comparison.json") == (
        "s3://exchange/comparisons/p/d/1-2/message.json"
    )


def test_another_ones_claim_is_not_taken_away_when_telling_ends(world):
    """A claim that was taken for dead was settled: the day may belong to the next telling by now."""
    theirs = NotificationClaim(execution="two", attempt=3, since=NOW, call="theirs")

    def settle():
        update = {"told": 2, "telling": theirs, "published": published(3)}
        world.table.save_day(world.day.model_copy(update=update))

    world.tell(points=Points(at=3, do=settle))
    assert world.day.telling == theirs
