"""The messages about changed hours: one for those of each calendar day, each hour at most once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from slackwater.errors import ObjectMissing, ResponseLost, Throttled
from slackwater.late.changes.hour_notices import ComparedHour, HourNotifier, HoursChangeDocument
from slackwater.late.changes.pairs import message_uri
from slackwater.late.report.message import Message
from slackwater.model import json_schema
from slackwater.pipeline.definition import Late, NotifyRules
from slackwater.sources.late_thresholds import ANY_LATE_DATA
from tests.fakes_check import NOW, make_hourly
from tests.fakes_check import PIPELINE as DELAYS
from tests.fakes_notification import PIPELINE, Crashed, WriteHook, a_comparison, a_day
from tests.late_world import LateWorld
from tests.unit.late.test_notify import World

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).resolve().parents[3] / "docs" / "contracts" / "hours-change.schema.json"
# The clocks of New York go forward on the 10th: this day has 23 hours, from 05:00 to 04:00 UTC.
BEFORE, FIRST, LAST, AFTER = "2013-03-10T04", "2013-03-10T05", "2013-03-11T03", "2013-03-11T04"


class Hours(World):
    """Hours with a second version that nobody was notified of."""

    def __init__(self, *hours: str) -> None:
        super().__init__()
        self.hours = hours
        for hour in hours:
            self.table.save(a_day(2, date=hour))

    def uri(self, hour: str, name: str = "comparison.json") -> str:
        return f"s3://exchange/comparisons/{PIPELINE}/{hour}/1-2/{name}"

    def notify_all(self, hook=None, execution="one", timezone="America/New_York", **changes):
        for hour in self.hours:
            comparison = a_comparison().model_copy(update={"date": hour, **changes})
            self.store.put(self.uri(hour), comparison.model_dump_json().encode())
        compared = [ComparedHour(date=hour, comparison=self.uri(hour)) for hour in self.hours]
        notifier = HourNotifier(notifier=self.notifier(hook))
        return notifier.notify(pipeline=PIPELINE, timezone=timezone, hours=compared, execution=execution)

    @property
    def documents(self):
        return [HoursChangeDocument.model_validate_json(sent["document"]) for sent in self.outbox.sent]

    @property
    def named(self):
        return [[hour.date for hour in document.hours] for document in self.documents]


def test_one_message_has_the_hours_of_a_calendar_day():
    world = Hours(AFTER, LAST, FIRST, BEFORE)
    results, messages = world.notify_all()
    assert [(document.date, document.timezone) for document in world.documents] == [
        (f"2013-03-{day:02}", "America/New_York") for day in (9, 10, 11)
    ]
    assert (messages, world.named) == (3, [[BEFORE], [FIRST, LAST], [AFTER]])
    assert {date: (result.notified, result.message) for date, result in results.items()} == {
        hour: (True, message_uri(world.uri(hour, ""))) for hour in world.hours
    }
    for hour in world.hours:
        day = world.table.day(PIPELINE, hour)
        assert (day.notified_attempt, day.notification_claim) == (2, None)
    assert [sent["attributes"]["date"] for sent in world.outbox.sent] == ["2013-03-09", "2013-03-10", "2013-03-11"]


@pytest.mark.parametrize(
    ("timezone", "hours", "days"),
    [
        ("UTC", ["2013-03-10T23", "2013-03-11T00"], ["2013-03-10", "2013-03-11"]),
        ("Asia/Kolkata", ["2013-03-10T18", "2013-03-10T19"], ["2013-03-10", "2013-03-11"]),  # midnight is 18:30
        ("Australia/Lord_Howe", ["2013-04-06T12", "2013-04-06T13", "2013-04-07T13"], ["2013-04-06", "2013-04-07"]),
    ],
)
def test_an_hour_belongs_to_the_day_in_which_it_begins(timezone, hours, days):
    world = Hours(*hours)
    world.notify_all(timezone=timezone)
    assert [document.date for document in world.documents] == days


def test_a_message_names_each_hour_with_its_change():
    world = Hours(FIRST, LAST)
    world.notify_all()
    (sent,) = world.outbox.sent
    assert (
        sent["subject"]
        == "daily_delays 2013-03-10: 2 hours changed, largest 2013-03-10T05: flights 831 -> 883 (+6.3 %)"
    )
    assert (
        "2 hours of daily_delays on 2013-03-10 (America/New_York) have changed. Hours are those of UTC:" in sent["body"]
    )
    for hour in (FIRST, LAST):
        assert f"  {hour}  flights 831 -> 883 (+6.3 %), by late data" in sent["body"].splitlines()
    assert f"    slackwater rollback daily_delays --date {LAST} --to 1 --reason TEXT" in sent["body"].splitlines()


def test_the_message_about_one_hour_is_its_whole_report():
    world = Hours(FIRST)
    world.notify_all()
    (sent,) = world.outbox.sent
    stored = Message.model_validate_json(world.store.get(world.uri(FIRST, "message.json")))
    assert (sent["subject"], sent["body"], stored.message_id) == (stored.subject, stored.body, "message-1")
    assert sent["subject"].startswith(f"daily_delays {FIRST} changed: ")
    for words in ("Metrics, over the hour", "rows of the hour", "All versions of the hour:"):
        assert words in sent["body"]
    assert " of the day" not in sent["body"]


def test_a_change_below_the_least_effect_is_in_no_message():
    world = Hours(FIRST, LAST)
    results, messages = world.notify_all(notify=NotifyRules(min_effect_percent=50))
    assert (messages, world.outbox.sent) == (0, [])
    assert {result.reason for result in results.values()} == {
        "the effect of 11 % is below late.notify.min_effect_percent, 50"
    }


def test_a_repeated_call_notifies_nobody_again():
    world = Hours(FIRST, LAST)
    world.notify_all()
    results, messages = world.notify_all()
    assert (messages, {result.reason for result in results.values()}) == (0, {"already notified"})
    assert len(world.outbox.sent) == 1


def test_a_refused_message_is_sent_by_the_next_call_and_keeps_no_other_day():
    world = Hours(BEFORE, FIRST)
    world.outbox.refuses = Throttled("slow down")
    with pytest.raises(Throttled):
        world.notify_all()
    assert [world.table.day(PIPELINE, hour).notification_claim for hour in world.hours] == [None, None]
    world.outbox.refuses = None
    assert world.notify_all().messages == 2
    assert world.alarms == []


def test_an_hour_without_a_comparison_keeps_no_other_hour():
    world = Hours(FIRST, LAST)
    get, lost = world.store.get, world.uri(LAST)

    def get_but_one(uri):
        if uri == lost:
            raise ObjectMissing(uri)
        return get(uri)

    world.store.get = get_but_one
    with pytest.raises(ObjectMissing):
        world.notify_all()
    assert world.named == [[FIRST]]
    world.store.get = get
    assert world.notify_all().messages == 1
    assert world.named == [[FIRST], [LAST]]


def test_a_lost_answer_of_the_topic_fires_one_alarm_and_no_message_is_repeated():
    world = Hours(FIRST, LAST)
    world.outbox.loses = ResponseLost("no answer")
    results, messages = world.notify_all()
    assert (messages, world.alarms) == (0, [PIPELINE])
    assert all("outcome unknown" in result.reason for result in results.values())
    world.outbox.loses = None
    world.notify_all()
    assert len(world.outbox.sent) == 1


def test_after_a_crash_at_any_write_no_hour_is_in_two_messages_and_none_is_forgotten():
    calls = Hours(FIRST, LAST, AFTER)
    hook = WriteHook()
    calls.notify_all(hook)
    for at in range(hook.writes):
        for execution in ("one", "two"):
            world = Hours(FIRST, LAST, AFTER)
            with suppress(Crashed):
                world.notify_all(WriteHook(at=at))
            world.end_execution("one")
            for _ in range(2):
                world.notify_all(execution=execution)
            sent = [hour for hours in world.named for hour in hours]
            assert len(sent) == len(set(sent)), at
            assert len(sent) == len(world.hours) or world.alarms, at
            assert not any(world.table.day(PIPELINE, hour).notification_due for hour in world.hours), at


def test_the_contract_in_docs_is_up_to_date():
    assert CONTRACT.read_text(encoding="utf-8") == json_schema(HoursChangeDocument), (
        "write it again: python -m slackwater.late.changes.hour_notices > docs/contracts/hours-change.schema.json"
    )


def test_a_document_follows_the_contract():
    world = Hours(FIRST, LAST)
    world.notify_all()
    contract = json.loads(CONTRACT.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(contract).validate(json.loads(world.outbox.sent[0]["document"]))


def test_a_monitoring_notifies_people_once_of_a_day_of_late_hours():
    world = LateWorld()
    world.time = NOW
    make_hourly(world, timezone="America/New_York", late=Late(cool_down_hours=0, thresholds={"flights": ANY_LATE_DATA}))
    hours = [FIRST, LAST, AFTER]
    for hour in hours:
        world.add("flights", *hour.split("T"))
        world.run_day(hour)
        world.add("flights", *hour.split("T"), name="late")
    world.monitor()
    assert [[hour["date"] for hour in each["hours"]] for each in world.documents("hours")] == [[FIRST, LAST], [AFTER]]
    world.add("flights", *FIRST.split("T"), name="later")
    world.monitor()
    assert [hour["date"] for hour in world.documents("hours")[-1]["hours"]] == [FIRST]
    world.monitor()
    assert len(world.topic.sent) == 3
    assert {row.notified for row in world.ledger.rows if row.pipeline == DELAYS and row.attempt} == {True}
