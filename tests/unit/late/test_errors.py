"""Days with errors: a check decides about them, and about all other days as usual."""

from __future__ import annotations

import pytest

from slackwater.errors import AccessDenied, CloudError, DayChanged, ObjectMissing, Throttled
from slackwater.late.check import DayAction, day_tasks
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.project import CodeDigests
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import RunRecord
from tests.fakes_check import PIPELINE, five_days

pytestmark = pytest.mark.unit

DATE = "2013-03-10"


@pytest.fixture
def world():
    return five_days()


def decided(world):
    (day,) = [day for day in world.check().days if day.date == DATE]
    return day


def others(world):
    return {rule for date, rule in world.rules().items() if "2013-03-08" <= date <= "2013-03-12" and date != DATE}


def fail(world, *, times=1, error="AuditFailed: a key occurs twice"):
    for _ in range(times):
        RunRecorder(store=world.store, table=world.table, now=world.now).record_failure(
            world.freeze(DATE, force=True), error=error.split(":")[0], cause=error.split(": ")[1]
        )


def test_an_object_that_the_receiver_has_not_written_holds_its_own_day_only(world):
    world.store.put(f"s3://raw/raw/source=flights/date={DATE}/hour=17/stray.parquet", b"?")
    day = decided(world)
    assert (day.decision, day.rule, day.attempt) == (LateDecision.HOLD, DecisionRule.UNREADABLE, 1)
    assert day.reason == (
        f"cannot be checked: s3://raw/raw/source=flights/date={DATE}/hour=17/stray.parquet does not say how many "
        "events it holds: it was not written by the receiver (remove it)"
    )
    assert others(world) == {DecisionRule.UNCHANGED}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "InputManifest: (whole): Invalid JSON: "),
        (b'{"pipeline": "p", "date": "d", "frozen_at": "soon", "objects": []}', "InputManifest: frozen_at: Input"),
        (b"\xff", "InputManifest: (whole): Invalid JSON: "),
    ],
)
def test_a_manifest_that_cannot_be_read_holds_its_day_and_names_the_remedy(world, body, words):
    uri = world.table.day(PIPELINE, DATE).published.run.manifest
    world.store.put(uri, body)
    day = decided(world)
    assert (day.decision, day.rule) == (LateDecision.HOLD, DecisionRule.UNREADABLE)
    assert day.reason.startswith(f"cannot be checked: {uri} is not readable as an input manifest ({words}")
    assert day.reason.endswith(
        f"remove it, and run the day again by hand (slackwater run {PIPELINE} --date {DATE} --force)"
    )
    assert "\n" not in day.reason
    assert others(world) == {DecisionRule.UNCHANGED}
    world.store.delete([uri])
    world.publish(DATE, force=True)
    assert decided(world).rule is DecisionRule.UNCHANGED


def test_a_run_that_cannot_be_read_holds_its_day(world):
    def run(pipeline, date, attempt):
        return RunRecord.model_validate({}) if date == DATE else asked(pipeline, date, attempt)

    asked, world.table.run = world.table.run, run
    assert decided(world).reason == "cannot be checked: RunRecord: run: Field required"
    assert others(world) == {DecisionRule.UNCHANGED}


def test_the_last_arrival_of_a_day_on_hold_is_still_reported(world):
    uri = world.add("weather", "2013-03-12", "20", name="newest")
    world.store.put("s3://raw/raw/source=flights/date=2013-03-12/hour=17/stray.parquet", b"?")
    assert world.check().last_arrivals["weather"] == world.store.objects[uri][2]


def test_people_are_notified_of_a_day_that_cannot_be_checked_if_that_is_due(world):
    world.publish(DATE, force=True)
    world.store.put(f"s3://raw/raw/source=flights/date={DATE}/hour=17/stray.parquet", b"?")
    assert [(task.date, task.action) for task in day_tasks(world.check())] == [(DATE, DayAction.NOTIFY)]


@pytest.mark.parametrize("error", [DayChanged, Throttled, ObjectMissing])
def test_a_temporary_error_is_left_to_the_state_machine_to_retry(world, error):
    def metadata(uri):
        raise error(uri)

    world.add("flights", DATE, "20", name="late")
    world.store.metadata = metadata
    with pytest.raises(error):
        world.check()


@pytest.mark.parametrize("error", [CloudError, AccessDenied])
def test_a_permanent_error_holds_the_day(world, error):
    def metadata(uri):
        raise error(f"no {uri}")

    uri = world.add("flights", DATE, "20", name="late")
    world.store.metadata = metadata
    assert decided(world).reason == f"cannot be checked: no {uri}"


@pytest.mark.parametrize(
    ("times", "rule"),
    [(1, DecisionRule.GROWN), (2, DecisionRule.GROWN), (3, DecisionRule.FAILED), (4, DecisionRule.FAILED)],
)
def test_a_late_day_is_run_again_until_that_has_failed_three_times(world, times, rule):
    world.add("flights", DATE, "20", name="late", rows=30)
    fail(world, times=times)
    day = decided(world)
    assert day.rule is rule
    assert day.decision is (LateDecision.HOLD if rule is DecisionRule.FAILED else LateDecision.RERUN)
    assert [source.late.rows for source in day.sources] == [30, 0]


def test_a_day_whose_runs_fail_is_on_hold_with_the_last_error_and_nobody_is_notified(world):
    world.add("flights", DATE, "20", name="late", rows=30)
    fail(world, times=2, error="E: first")
    fail(world)
    day = decided(world)
    assert day.reason == (
        "the last 3 attempts failed with the same inputs and definition, attempt 4 with: "
        "AuditFailed: a key occurs twice: fix the cause, then run the day by hand "
        f"(slackwater run {PIPELINE} --date {DATE})"
    )
    assert day_tasks(world.check()) == ()
    assert others(world) == {DecisionRule.UNCHANGED}


def test_more_late_data_or_another_definition_is_tried_again(world):
    world.add("flights", DATE, "20", name="late", rows=30)
    fail(world, times=3)
    project = world.project
    world.project = project.model_copy(update={"code": CodeDigests(job="newer")})
    assert decided(world).rule is DecisionRule.GROWN
    world.project = project
    assert decided(world).rule is DecisionRule.FAILED
    world.add("flights", DATE, "20", name="later", rows=1)
    assert decided(world).rule is DecisionRule.GROWN


def test_failures_at_other_inputs_in_between_start_the_count_anew(world):
    world.add("flights", DATE, "20", name="late", rows=30)
    fail(world, times=2)
    uri = world.add("flights", DATE, "20", name="later", rows=1)
    fail(world)
    world.store.delete([uri])
    fail(world, times=2)
    assert decided(world).rule is DecisionRule.GROWN
    fail(world)
    assert decided(world).rule is DecisionRule.FAILED


def test_a_day_on_which_nothing_has_grown_is_run_again_if_a_run_may_have_published(world):
    fail(world)
    day = decided(world)
    assert (day.decision, day.rule) == (LateDecision.RERUN, DecisionRule.OUTCOME_UNKNOWN)
    assert day.reason == (
        "attempt 2 ended without an outcome and may have published: the table may not hold the recorded version"
    )
    world.publish(DATE)
    assert decided(world).rule is DecisionRule.UNCHANGED


def test_a_day_with_late_data_below_its_thresholds_is_run_again_if_a_run_may_have_published(world):
    world.add("flights", DATE, "20", name="late", rows=1)
    assert decided(world).rule is DecisionRule.BELOW
    fail(world)
    assert decided(world).rule is DecisionRule.OUTCOME_UNKNOWN


def test_a_day_whose_run_was_lost_is_run_again_once_that_is_known(world):
    world.freeze(DATE, force=True)
    assert decided(world).rule is DecisionRule.RUNNING
    world.executions.running.clear()
    assert decided(world).rule is DecisionRule.OUTCOME_UNKNOWN


def test_a_day_with_an_unknown_outcome_is_on_hold_when_its_runs_keep_failing(world):
    fail(world, times=3)
    assert decided(world).rule is DecisionRule.FAILED


def test_inputs_that_are_gone_hold_a_day_with_an_unknown_outcome(world):
    fail(world)
    world.store.delete([f"s3://raw/raw/source=flights/date={DATE}/hour=17/a.parquet"])
    assert decided(world).rule is DecisionRule.VANISHED


def test_attempts_are_read_only_where_some_follow_the_published_one(world):
    asked, runs = [], world.table.runs
    world.table.runs = lambda pipeline, date: asked.append(date) or runs(pipeline, date)
    fail(world)
    world.publish("2013-03-11", force=True)
    world.check()
    assert asked == [DATE]
