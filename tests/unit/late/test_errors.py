"""Days with errors: a check decides about them, and about all other days as usual."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.errors import AccessDenied, CloudError, DayChanged, ObjectInvalid, ObjectMissing, Throttled, Unavailable
from slackwater.late.check.tasks import day_tasks
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.runs.record import DayRecord
from tests.fakes_check import PIPELINE, World

pytestmark = pytest.mark.unit

DATE = "2013-03-10"


def checked_day(world):
    (day,) = [day for day in world.check().days if day.date == DATE]
    return day


def rules_of_other_days(world):
    return {rule for date, rule in world.rules().items() if "2013-03-08" <= date <= "2013-03-12" and date != DATE}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", "Input data was truncated"),
        (
            b'{"pipeline": "p", "date": "d", "frozen_at": "soon", "objects": []}',
            "Invalid RFC3339 encoded datetime - at `$.frozen_at`",
        ),
        (b"\xff", "JSON is malformed: "),
    ],
)
def test_an_unreadable_manifest_puts_its_day_on_hold_and_names_the_remedy(world, body, error):
    uri = world.table.day(PIPELINE, DATE).published.run.manifest
    world.store.put(uri, body)
    day = checked_day(world)
    assert (day.decision, day.rule) == (LateDecision.HOLD, DecisionRule.UNREADABLE)
    assert day.reason.startswith(f"cannot be checked: {uri} is not readable as an input manifest ({error}")
    assert day.reason.endswith(
        f"remove it, and run the day again by hand (slackwater run {PIPELINE} --date {DATE} --force)"
    )
    assert "\n" not in day.reason
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}
    world.store.delete([uri])
    world.publish(DATE, force=True)
    assert checked_day(world).rule is DecisionRule.UNCHANGED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "cannot be checked: DayRecord: pipeline: Field required"),
        (Throttled("DynamoDB is busy"), "cannot be checked: DynamoDB is busy"),
    ],
)
def test_a_day_whose_record_cannot_be_read_is_on_hold_and_not_overdue(world, error, reason):
    def day(pipeline, date):
        if date == DATE and error:
            raise error
        return DayRecord.model_validate({"date": DATE}) if date == DATE else read_day(pipeline, date)

    read_day, world.table.day = world.table.day, day
    assert checked_day(world).reason == reason
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}
    assert world.check().overdue == ()


def test_the_check_fails_when_the_run_table_cannot_be_read(world):
    def day(pipeline, date):
        raise CloudError("DynamoDB does not answer")

    world.table.day = day
    with pytest.raises(CloudError, match="DynamoDB does not answer"):
        world.check()


def test_a_due_notification_of_an_old_day_whose_record_is_invalid_does_not_stop_the_check(world):
    def day(pipeline, date):
        return DayRecord.model_validate({}) if date == "2013-03-08" else read_day(pipeline, date)

    world.publish("2013-03-08", force=True)
    world.publish("2013-03-09", force=True)
    read_day, world.table.day = world.table.day, day
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    assert world.check().notifications_due == ("2013-03-08", "2013-03-09")


def test_the_last_arrival_of_a_day_on_hold_is_still_reported(world):
    uri = world.add("weather", "2013-03-12", "20", name="newest")
    world.store.put("s3://raw/raw/source=flights/date=2013-03-12/hour=17/stray.parquet", b"?")
    assert world.check().last_arrivals["weather"] == world.store.objects[uri][2]


def fail_listing(world, error, *, dates=(DATE,), times=10**6):
    """Let listings that begin with one of the dates fail a number of times; return where those that failed begin.

    The listing of all days fails in any case, so each day is listed by itself.
    """
    failed, listing = [], world.store.list

    def list_objects(prefix, *, start_after=""):
        first = start_after.rpartition("date=")[2][:10]
        if first == "2013-03-06":  # The window begins.
            raise error(f"could not list {prefix}")
        if first in dates and len(failed) < times:
            failed.append(start_after)
            raise error(f"could not list {start_after}")
        return listing(prefix, start_after=start_after)

    world.store.list = list_objects
    return failed


@pytest.mark.parametrize(
    ("error", "rule", "reason"),
    [
        (DayChanged, DecisionRule.CHANGING, "changed during the check: {}: the next check decides"),
        (ObjectMissing, DecisionRule.CHANGING, "changed during the check: {}: the next check decides"),
        (ObjectInvalid, DecisionRule.UNREADABLE, "cannot be checked: {}"),
        (Throttled, DecisionRule.UNREADABLE, "cannot be checked: {}"),
        (Unavailable, DecisionRule.UNREADABLE, "cannot be checked: {}"),
        (CloudError, DecisionRule.UNREADABLE, "cannot be checked: {}"),
        (AccessDenied, DecisionRule.UNREADABLE, "cannot be checked: {}"),
    ],
)
def test_trouble_with_one_day_puts_it_on_hold_and_the_other_days_are_checked(world, error, rule, reason):
    def metadata(uri):
        raise error(uri)

    uri = world.add("flights", DATE, "20", name="late")
    world.store.metadata = metadata
    day = checked_day(world)
    assert (day.decision, day.rule, day.reason) == (LateDecision.HOLD, rule, reason.format(uri))
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}


def test_a_day_that_cannot_be_listed_is_on_hold_and_its_sources_have_no_last_arrival(world):
    fail_listing(world, CloudError, dates=[DATE])
    report = world.check()
    on_hold = {day.date: day.reason for day in report.days if day.decision is LateDecision.HOLD}
    assert set(on_hold) == {DATE}
    assert on_hold[DATE].startswith("cannot be checked: could not list s3://raw/raw/source=flights/date=2013-03-10/")
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}
    assert report.last_arrivals == {}


def test_the_current_day_is_not_on_hold_when_it_cannot_be_listed(world):
    fail_listing(world, CloudError, dates=["2013-03-13"])
    report = world.check()
    assert (report.days[-1].rule, report.last_arrivals) == (DecisionRule.CURRENT, {})


@pytest.mark.parametrize("error", [DayChanged, ObjectMissing, Throttled, Unavailable])
def test_a_day_with_a_transient_error_is_checked_once_more(world, error):
    failed = fail_listing(world, error, times=1)
    assert set(world.rules().values()) == {
        DecisionRule.NEVER_PUBLISHED,
        DecisionRule.UNCHANGED,
        DecisionRule.CURRENT,
    }
    assert len(failed) == 1


@pytest.mark.parametrize("error", [CloudError, AccessDenied, Throttled, Unavailable])
def test_the_check_fails_when_aws_fails_for_all_days(world, error):
    def list_objects(prefix, **_):
        raise error("S3 does not answer")

    world.store.list = list_objects
    with pytest.raises(error, match="S3 does not answer"):
        world.check()


@pytest.mark.parametrize("error", [CloudError, Throttled, Unavailable])
def test_the_check_fails_when_aws_fails_for_all_published_days(world, error):
    def get(uri):
        raise error("S3 does not answer")

    world.store.get = get
    with pytest.raises(error, match="S3 does not answer"):
        world.check()


@pytest.mark.parametrize("error", [DayChanged, ObjectMissing, ObjectInvalid])
def test_an_invalid_or_changing_day_never_fails_the_check_even_if_it_is_the_only_published_one(error):
    def metadata(uri):
        raise error(uri)

    world = World()
    world.add("flights", DATE, "17")
    world.publish(DATE)
    world.add("flights", DATE, "20", name="late")
    world.store.metadata = metadata
    assert checked_day(world).decision is LateDecision.HOLD


def test_the_check_fails_when_aws_fails_before_the_first_day_is_published():
    def list_objects(prefix, **_):
        raise CloudError("S3 does not answer")

    world = World()
    world.store.list = list_objects
    with pytest.raises(CloudError, match="S3 does not answer"):
        world.check()


def test_a_day_whose_execution_cannot_be_looked_up_is_on_hold(world):
    def is_running(execution):
        raise CloudError("Step Functions does not answer")

    world.freeze(DATE, force=True)
    world.executions.is_running = is_running
    assert checked_day(world).reason == "cannot be checked: Step Functions does not answer"
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}


def test_no_notification_is_due_for_the_current_day_when_its_execution_cannot_be_looked_up(world):
    def is_running(execution):
        raise CloudError("Step Functions does not answer")

    for name in ("one", "two"):
        world.add("weather", "2013-03-13", "17", name=name)
        world.publish("2013-03-13")
    world.freeze("2013-03-13", force=True)
    world.executions.is_running = is_running
    assert world.check().days[-1].notification_due
    assert day_tasks(world.check()) == ()


def test_people_are_notified_of_a_day_before_the_window_whose_execution_cannot_be_looked_up(world):
    def is_running(execution):
        raise CloudError("Step Functions does not answer")

    world.add("weather", "2013-03-08", "20", name="late", rows=1)
    world.publish("2013-03-08")
    world.freeze("2013-03-08", force=True)
    world.executions.is_running = is_running
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    assert world.check().notifications_due == ("2013-03-08",)


def test_attempts_are_read_only_where_some_follow_the_published_one(world):
    dates_read, runs = [], world.table.runs
    world.table.runs = lambda pipeline, date: dates_read.append(date) or runs(pipeline, date)
    world.fail(world.freeze(DATE, force=True))
    world.publish("2013-03-11", force=True)
    world.check()
    assert dates_read == [DATE]


class Recording:
    """Saves of the record of DATE, which fail a number of times with an error."""

    def __init__(self, world, error, *, times=10**6, on_fail=lambda: None):
        self.calls, self.save = 0, world.table.save

        def save(*records):
            if any(isinstance(each, DayRecord) and each.date == DATE for each in records):
                self.calls += 1
                if self.calls <= times:
                    on_fail()
                    raise error("write fails")
            self.save(*records)

        world.table.save = save


def vanish(world):
    world.store.delete([f"s3://raw/raw/source=flights/date={DATE}/hour=17/a.parquet"])


def check_arrived(world):
    (day,) = world.checker.check(pipeline=PIPELINE, as_of=None, dates=[DATE]).days
    return day


@pytest.mark.parametrize("error", [DayChanged, Throttled, Unavailable])
def test_a_day_is_recorded_once_more_when_its_record_changed_or_aws_was_busy(world, error):
    vanish(world)
    recording = Recording(world, error, times=1)
    assert check_arrived(world).rule is DecisionRule.VANISHED
    assert (recording.calls, world.table.day(PIPELINE, DATE).hold.rule) == (2, DecisionRule.VANISHED)


@pytest.mark.parametrize("error", [CloudError, AccessDenied, Throttled, Unavailable])
def test_the_check_fails_when_no_day_can_be_recorded(world, error):
    vanish(world)
    Recording(world, error)
    with pytest.raises(error, match="write fails"):
        check_arrived(world)


@pytest.mark.parametrize("error", [CloudError, AccessDenied, Throttled, Unavailable])
def test_a_day_that_cannot_be_recorded_is_unreadable_and_the_other_days_are_checked(world, error):
    vanish(world)
    Recording(world, error)
    assert checked_day(world).reason == "cannot be checked: write fails"
    assert rules_of_other_days(world) == {DecisionRule.UNCHANGED}


def test_no_error_is_recorded_when_some_days_cannot_be_read_and_the_others_not_be_recorded():
    world = World()
    for date in ("2013-03-09", DATE):
        world.add("flights", date, "17")
        world.publish(date)
    world.store.put(world.table.day(PIPELINE, "2013-03-09").published.run.manifest, b"{")
    vanish(world)
    Recording(world, CloudError)
    with pytest.raises(CloudError, match="write fails"):
        world.check()
    assert list(world.table.held(PIPELINE)) == []


def test_a_day_whose_record_keeps_changing_is_left_to_a_later_check(world):
    vanish(world)
    recording = Recording(world, DayChanged)
    day = check_arrived(world)
    assert (day.rule, day.error_may_pass) == (DecisionRule.CHANGING, True)
    # The decision, the one about the record as it is then, and that the day cannot be read.
    assert recording.calls == 3


def test_a_day_that_changes_before_it_is_recorded_is_read_and_decided_again_with_its_limits(world):
    uri = f"s3://raw/raw/source=flights/date={DATE}/hour=17/a.parquet"
    body, metadata, _ = world.store.objects[uri]
    vanish(world)

    def restore():
        world.store.put(uri, body, metadata=metadata)
        world.add("weather", DATE, "20", name="late")
        world.table.save = recording.save
        world.publish(DATE)
        world.add("weather", DATE, "21", name="later")

    recording = Recording(world, DayChanged, times=1, on_fail=restore)
    # The new version begins the cool-down.
    assert (day := check_arrived(world)).rule is DecisionRule.COOL_DOWN
    assert (day.attempt, world.table.day(PIPELINE, DATE).hold) == (2, None)


def test_a_day_that_is_run_after_it_was_read_is_running(world):
    vanish(world)

    def start():
        world.table.save = recording.save
        world.add("flights", DATE, "17", rows=1000)
        world.freeze(DATE, force=True)

    recording = Recording(world, DayChanged, times=1, on_fail=start)
    assert check_arrived(world).rule is DecisionRule.RUNNING
