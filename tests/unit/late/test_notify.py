import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import product
from types import SimpleNamespace

import pytest

from slackwater.costs.cost import RunCost
from slackwater.errors import CloudError, DayChanged, InputError, ObjectMissing, ResponseLost, Throttled
from slackwater.late.changes.notify import Notifier
from slackwater.late.changes.outbox import Outbox
from slackwater.late.changes.pairs import message_uri
from slackwater.late.comparison import RowCounts
from slackwater.late.report.document import ChangeDocument
from slackwater.late.report.message import Message
from slackwater.pipeline.definition import NotifyRules
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.record import ActiveRun, NotificationClaim
from tests.fakes_notification import (
    DATE,
    FROZEN,
    PIPELINE,
    Crashed,
    Hooked,
    TopicFake,
    WriteHook,
    a_comparison,
    a_day,
    a_run,
    published,
)
from tests.fakes_runs import DictRunTable, DictStore, SetExecutions

pytestmark = pytest.mark.unit

NOW = FROZEN + timedelta(days=3)
WRITES = 7
"""Writes of one notification: the page, the document, the message, the claim, the sending, the id, the day."""


class World:
    """A day with a second version that nobody was notified of, and its notifiers."""

    def __init__(self):
        self.store, self.table, self.outbox = DictStore(), DictRunTable(), TopicFake()
        self.executions, self.alarms, self.time = SetExecutions("one", "two"), [], NOW
        self.table.save(a_day(2))

    def notifier(self, hook=None):
        hook = hook or WriteHook()
        return Notifier(
            store=Hooked(self.store, hook),
            table=Hooked(self.table, hook),
            outbox=Outbox(
                executions=self.executions,
                topic=Hooked(self.outbox, hook),
                now=lambda: self.time,
                put_metric=lambda _metric, _value, *, pipeline: self.alarms.append(pipeline),
                warn=lambda *_, **__: None,
            ),
        )

    def compare(self, before=1, after=2, **more):
        uri = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/{before}-{after}/comparison.json"
        update = {name: more.pop(name) for name in ("notify", "team") if name in more}
        comparison = a_comparison(before=before, after=after, **more).model_copy(update=update)
        self.store.put(uri, comparison.model_dump_json().encode())
        return uri

    def notify(self, execution="one", *, before=1, after=2, hook=None, **more):
        uri = self.compare(before, after, **more)
        return self.notifier(hook).notify(pipeline=PIPELINE, date=DATE, comparison=uri, execution=execution)

    def publish(self, attempt):
        update = {"published": published(attempt), "attempts": attempt}
        self.table.save(self.day.model_copy(update=update))

    def end_execution(self, execution):
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
    stored_message = world.message()
    assert (stored_message.subject, stored_message.body) == (sent["subject"], sent["body"])
    assert (stored_message.message_id, stored_message.sent_at) == ("message-1", NOW)
    assert sent["attributes"] == {"pipeline": PIPELINE, "date": DATE, "severity": "warning"}
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, False)
    assert world.alarms == []


def test_the_message_has_the_costs_that_are_known_when_it_is_sent(world):
    costs = AttemptCosts(RunCost(jobs=1, usd=0.0123), 0.0119)
    recorder = SimpleNamespace(attempt_costs=lambda *_, before, after: costs if (before, after) == (1, 2) else None)
    notifier = replace(world.notifier(), costs=recorder)
    notifier.notify(pipeline=PIPELINE, date=DATE, comparison=world.compare(), execution="one")
    (sent,) = world.outbox.sent
    assert "comparison: 0.0119 USD" in sent["body"]
    document = ChangeDocument.model_validate_json(sent["document"])
    assert (document.cost_usd, document.comparison_cost_usd) == (0.0123, 0.0119)


@pytest.mark.parametrize("execution", ["one", "two"])
def test_people_are_not_notified_again(world, execution):
    world.notify()
    again = world.notify(execution)
    assert (again.notified, again.reason, again.message) == (False, "already notified", "")
    assert len(world.outbox.sent) == 1


def test_a_replaced_version_waits_for_the_next_monitoring(world):
    world.publish(3)
    result = world.notify()
    assert (result.notified, result.reason) == (
        False,
        "attempt 3 was published meanwhile: the next monitoring compares it",
    )
    assert (world.outbox.sent, world.day.notified_attempt) == ([], 1)
    assert world.notify(before=1, after=3).notified


def test_a_comparison_with_a_version_older_than_the_notified_one_waits_for_the_next_monitoring(world):
    world.notify()
    world.publish(3)
    result = world.notify(before=1, after=3)
    assert (result.notified, result.reason) == (
        False,
        "people were notified of attempt 2: the next monitoring compares with it",
    )
    assert len(world.outbox.sent) == 1
    assert world.notify(before=2, after=3).notified


def test_an_unchanged_output_is_marked_as_notified_without_a_message(world):
    result = world.notify(rows=RowCounts(before=42, after=42, added=0, removed=0, changed=0))
    assert (result.notified, result.reason, result.message) == (False, "the output did not change", "")
    assert (world.outbox.sent, world.day.notified_attempt, world.day.notification_due) == ([], 2, False)


def test_no_notification_is_sent_for_a_day_that_is_no_longer_published(world):
    world.table.save(world.day.model_copy(update={"published": None}))
    assert world.notify().reason == "the day has no published version any more"


def test_a_comparison_of_another_day_is_refused(world):
    uri = world.compare()
    with pytest.raises(InputError, match=f"compares {PIPELINE} for {DATE}, not "):
        world.notifier().notify(pipeline=PIPELINE, date="2013-03-11", comparison=uri, execution="one")


def test_a_missing_comparison_is_an_error(world):
    with pytest.raises(ObjectMissing):
        world.notifier().notify(pipeline=PIPELINE, date=DATE, comparison="s3://exchange/no.json", execution="one")


@pytest.mark.parametrize("refusal", [Throttled("slow down"), CloudError("could not publish: InvalidParameter")])
def test_a_refused_message_releases_the_day_and_the_next_attempt_sends_it(world, refusal):
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


def test_the_claim_of_another_running_monitoring_is_respected(world):
    with pytest.raises(Crashed):
        world.notify("one", hook=WriteHook(at=4))
    result = world.notify("two")
    assert (result.notified, result.reason) == (False, "another monitoring sends the notification")
    assert (world.outbox.sent, world.alarms, world.day.notified_attempt) == ([], [], 1)


def test_a_recent_claim_is_respected_although_step_functions_does_not_know_its_execution_yet(world):
    with pytest.raises(Crashed):
        world.notify("one", hook=WriteHook(at=4))
    world.executions.known.clear()
    assert world.notify("two").reason == "another monitoring sends the notification"
    world.time += timedelta(minutes=3)
    assert world.notify("two").reason.startswith("outcome unknown")


@pytest.mark.parametrize("retried_by", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_between_any_two_writes_ends_in_one_message_or_in_an_alarm(world, at, retried_by):
    with pytest.raises(Crashed):
        world.notify("one", hook=WriteHook(at=at))
    if retried_by == "two":
        world.end_execution("one")
    result = world.notify(retried_by)
    sent, outcome_known = len(world.outbox.sent), at not in {4, 5}
    assert sent == (0 if at == 4 else 1)  # claimed but not sent: nobody can know
    assert bool(world.alarms) is not outcome_known
    assert result.notified is (at < 4 or (at == 6 and retried_by == "one"))
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, False)
    assert world.notify("two").reason == "already notified"
    assert len(world.outbox.sent) == sent


def test_a_notification_has_exactly_the_number_of_writes_that_the_crash_tests_cover(world):
    hook = WriteHook()
    world.notify(hook=hook)
    assert hook.writes == WRITES


@pytest.mark.parametrize("at", range(WRITES))
def test_a_crash_while_a_claim_is_resolved_neither_repeats_nor_silently_loses_the_message(world, at):
    with pytest.raises(Crashed):
        world.notify("one", hook=WriteHook(at=at))
    world.end_execution("one")
    if at >= 4:
        with pytest.raises(Crashed):
            world.notify("two", hook=WriteHook(at=2))
        world.end_execution("two")
    world.executions.running.add("three")
    world.executions.known.add("three")
    world.notify("three")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert not world.day.notification_due


@pytest.mark.parametrize("other", ["one", "two"])
@pytest.mark.parametrize("at", range(WRITES))
def test_only_one_of_two_concurrent_notifiers_sends_the_message(world, at, other):
    """`other` runs completely between two writes of the first: another monitoring, or a retry of a running call."""
    results = []
    first = world.notify("one", hook=WriteHook(at=at, action=lambda: results.append(world.notify(other))))
    assert len(world.outbox.sent) == 1
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)
    if other == "two":
        assert [first.notified, results[0].notified].count(True) == 1
        assert world.alarms == []


@pytest.fixture
def _empty_page(monkeypatch):
    """A page that takes no time to draw."""
    monkeypatch.setattr("slackwater.late.changes.notify.report_page", lambda comparison: "")


@pytest.mark.usefixtures("_empty_page")
@pytest.mark.parametrize("names", [("one", "two", "three"), ("one", "two", "one"), ("one", "one", "two")])
@pytest.mark.parametrize("crashing", [True, False])
@pytest.mark.parametrize(("first", "second"), list(product(range(WRITES), repeat=2)))
def test_one_of_three_nested_notifiers_sends_the_message_or_an_alarm_fires(world, first, second, crashing, names):
    """The second one begins within the first and crashes or not; the third one begins within the second or after it."""
    world.executions.running.add("three")
    world.executions.known.add("three")

    def third_notifier():
        world.notify(names[2])

    def second_notifier():
        with suppress(Crashed):
            world.notify(names[1], hook=WriteHook(at=second, action=None if crashing else third_notifier))
        if crashing:
            third_notifier()

    world.notify(names[0], hook=WriteHook(at=first, action=second_notifier))
    for execution in ("one", "two", "three"):
        world.end_execution(execution)
    world.executions.running.add("last")
    world.executions.known.add("last")
    world.notify("last")
    assert len(world.outbox.sent) <= 1
    assert world.outbox.sent or world.alarms
    assert (world.day.notified_attempt, world.day.notification_claim) == (2, None)


def test_many_notifiers_in_threads_send_one_message_in_total(world):
    uri, names = world.compare(), [f"monitor-{number}" for number in range(8)]
    world.executions.running.update(names)
    world.executions.known.update(names)
    barrier, lock, save = threading.Barrier(len(names)), threading.Lock(), world.table.save

    def save_alone(day):
        with lock:  # DynamoDB's condition is atomic, the dictionary's is not
            save(day)

    world.table.save = save_alone
    results = []

    def run(name):
        barrier.wait()
        results.append(world.notifier().notify(pipeline=PIPELINE, date=DATE, comparison=uri, execution=name))

    threads = [threading.Thread(target=run, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(world.outbox.sent) == 1
    assert sorted(result.notified for result in results) == [False] * 7 + [True]
    assert {result.reason for result in results if not result.notified} <= {
        "already notified",
        "another monitoring sends the notification",
    }


@pytest.mark.parametrize("at", range(WRITES))
def test_a_run_that_starts_during_a_notification_neither_loses_nor_repeats_the_message(world, at):
    active = ActiveRun(execution="two", run=a_run(3), since=NOW)

    def start_run():
        world.table.save(world.day.model_copy(update={"active": active}))

    assert world.notify(hook=WriteHook(at=at, action=start_run)).notified
    assert len(world.outbox.sent) == 1
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.active) == (2, None, active)


@pytest.mark.parametrize("at", range(WRITES))
def test_a_version_published_during_a_notification_is_compared_by_the_next_monitoring(world, at):
    result = world.notify(hook=WriteHook(at=at, action=lambda: world.publish(3)))
    assert result.notified is (at >= 4)
    assert result.notified or "attempt 3 was published meanwhile" in result.reason
    assert world.day.notification_due
    assert world.notify("two", before=world.day.notified_attempt, after=3).notified
    assert (world.day.notified_attempt, world.alarms) == (3, [])


@pytest.mark.parametrize(("at", "alarms", "sent"), [(4, 1, 0), (5, 1, 1), (6, 0, 1)])
def test_a_claim_on_an_earlier_version_is_resolved_before_a_later_notification(world, at, alarms, sent):
    with pytest.raises(Crashed):
        world.notify("one", hook=WriteHook(at=at))
    world.end_execution("one")
    world.publish(3)
    result = world.notify("two", before=1, after=3)
    assert not result.notified
    assert (len(world.alarms), len(world.outbox.sent)) == (alarms, sent)
    assert (world.day.notified_attempt, world.day.notification_claim, world.day.notification_due) == (2, None, True)
    assert world.notify("two", before=2, after=3).notified


def test_a_claim_whose_response_was_lost_is_recognised(world):
    """The client repeats a write after a lost response, and the condition fails because of its own first write."""
    save = world.table.save
    claims = []

    def save_and_lose(day):
        save(day)
        if day.notification_claim and not claims:
            claims.append(day.notification_claim)
            raise DayChanged(DATE)

    world.table.save = save_and_lose
    assert world.notify().notified
    assert (len(world.outbox.sent), world.alarms) == (1, [])


def test_a_day_that_keeps_changing_raises_a_retryable_error(world):
    def refuse(day):
        raise DayChanged(DATE)

    world.table.save = refuse
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
        world.notify(hook=WriteHook(at=0, action=lambda: (_ for _ in ()).throw(CloudError("could not write"))))
    assert world.day.notification_claim is None
    assert world.notify("two").notified


def test_the_message_is_stored_next_to_its_comparison():
    assert message_uri("s3://exchange/comparisons/p/d/1-2/") == ("s3://exchange/comparisons/p/d/1-2/message.json")


def test_the_claim_of_another_notifier_is_not_removed(world):
    """An apparently abandoned claim was resolved: the day may already have the claim of the next notification."""
    theirs = NotificationClaim(execution="two", attempt=3, since=NOW, call="theirs")

    def resolve():
        update = {"notified_attempt": 2, "notification_claim": theirs, "published": published(3)}
        world.table.save(world.day.model_copy(update=update))

    world.notify(hook=WriteHook(at=5, action=resolve))
    assert world.day.notification_claim == theirs


def test_a_change_below_the_smallest_effect_causes_no_message_and_small_changes_add_up(world):
    """flights 831 -> 883 is 6.3 %, the mean delay moves by 11.0 %."""
    quiet = NotifyRules(min_effect_percent=12)
    result = world.notify(notify=quiet)
    assert result.reason == "the effect of 11 % is below late.notify.min_effect_percent, 12"
    assert (world.outbox.sent, world.alarms) == ([], [])
    assert (world.day.notified_attempt, world.day.seen_attempt, world.day.notification_due) == (2, 1, False)

    world.publish(3)
    assert world.notify(before=1, after=3, notify=quiet).reason
    assert (world.day.notified_attempt, world.day.seen_attempt) == (3, 1)

    world.publish(4)
    assert world.notify(before=1, after=4, notify=NotifyRules(min_effect_percent=11)).notified is False
    world.publish(5)
    assert world.notify(before=1, after=5, notify=NotifyRules(min_effect_percent=10.9)).notified
    assert (world.day.notified_attempt, world.day.seen_attempt, world.day.baseline_attempt) == (5, 5, 0)


def test_a_crash_before_a_small_change_is_recorded_repeats_only_the_decision(world):
    quiet = NotifyRules(min_effect_percent=50)
    with pytest.raises(Crashed):
        world.notify(hook=WriteHook(at=2), notify=quiet)
    assert (world.day.notified_attempt, world.day.notification_claim) == (1, None)
    assert not world.notify(notify=quiet).notified
    assert (world.day.notified_attempt, world.day.seen_attempt, world.outbox.sent) == (2, 1, [])


def test_the_message_of_an_interrupted_call_is_found_by_the_version_that_people_know(world):
    """A small change was skipped before, so the message is about versions 1 and 3."""
    assert not world.notify(notify=NotifyRules(min_effect_percent=50)).notified
    world.publish(3)
    with pytest.raises(Crashed):
        world.notify("one", before=1, after=3, hook=WriteHook(at=6))
    world.end_execution("one")
    world.publish(4)
    assert "people were notified of attempt 3" in world.notify("two", before=1, after=4).reason
    assert (world.day.notified_attempt, world.day.seen_attempt, world.alarms) == (3, 3, [])


def test_attributes_name_the_team_and_the_severity(world):
    world.notify(team="ops-data", notify=NotifyRules(warning_percent=11.5))
    (sent,) = world.outbox.sent
    assert sent["attributes"] == {"pipeline": PIPELINE, "date": DATE, "severity": "info", "team": "ops-data"}


def test_the_page_and_the_document_are_stored_next_to_the_comparison(world):
    world.notify()
    folder = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/1-2"
    (sent,) = world.outbox.sent
    assert world.store.get(f"{folder}/notification.json").decode() == sent["document"]
    document = ChangeDocument.model_validate_json(sent["document"])
    assert (document.report, document.comparison) == (f"{folder}/report.html", f"{folder}/comparison.json")
    assert world.store.get(document.report).startswith(b"<!DOCTYPE html>")
    assert document.report in world.message().body
