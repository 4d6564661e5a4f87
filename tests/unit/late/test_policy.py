"""The policy of a pipeline through whole checks: thresholds, age, cool-down, limits of a day, and failed attempts."""

from datetime import UTC, datetime, timedelta

import pytest

from slackwater.errors import DayChanged
from slackwater.late.check.tasks import DayAction, day_tasks
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.pipeline.definition import Late
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.record import RunState
from slackwater.sources.late_thresholds import LateThresholds
from tests.fakes_check import NOW, PIPELINE, PUBLICATION, World, five_days, freezer_of

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

DAY = "2013-03-10"


def with_policy(world, *, thresholds=None, **late):
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(**late)})
    sources = {
        name: source.model_copy(update={"late": thresholds or source.late})
        for name, source in world.project.sources.items()
    }
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}, "sources": sources})
    return world


def decision_of(world, date=DAY, as_of=None):
    [day] = [day for day in world.check(as_of).days if day.date == date]
    return day


def rerun(world, date=DAY):
    """Run a day again as the monitoring does: its publication replaces rows."""
    run = world.freeze(date)
    publication = PUBLICATION.model_copy(update={"replaced": 3})
    world.store.put(f"{run.prefix}publication.json", publication.model_dump_json().encode())
    world.recorder.record_published(run)


def fail(world, date=DAY, error="SparkException: out of memory"):
    run = world.freeze(date)
    world.store.put(failure_uri(run.prefix), error.encode())
    world.fail(run)


def test_only_the_day_that_reaches_the_threshold_runs_again():
    # The acceptance case of the original system: threshold 5 %, window 7 days.
    world = World()
    world.time = datetime(2012, 3, 3, 18, tzinfo=UTC)
    world = with_policy(world, thresholds=LateThresholds(percent=5), window_days=7)
    dates = [f"2012-02-{number}" for number in range(25, 30)] + ["2012-03-01", "2012-03-02"]
    for date in dates:
        for source in ("flights", "weather"):
            world.add(source, date, "17", rows=1000)
        world.publish(date)
    for date, rows in {"2012-02-27": 103, "2012-02-28": 49, "2012-02-29": 12}.items():
        world.add("flights", date, "18", name="late", rows=rows)
    report = world.check()
    assert [task.date for task in day_tasks(report)] == ["2012-02-27"]
    decisions = {day.date: (day.decision, day.rule) for day in report.days}
    assert decisions["2012-02-27"] == (LateDecision.RERUN, DecisionRule.GROWN)
    assert decisions["2012-02-28"] == decisions["2012-02-29"] == (LateDecision.IGNORE, DecisionRule.BELOW)
    figures = {day.date: day.figures for day in report.days if day.figures}
    assert figures["2012-02-27"].late_percent == pytest.approx(10.3)
    assert (figures["2012-02-28"].late_rows, figures["2012-02-28"].late_percent) == (49, pytest.approx(4.9))


@pytest.mark.parametrize("thresholds", [{"percent": 5}, {"bytes": 5}], ids=str)
@pytest.mark.parametrize(
    ("units", "rule"), [(104, DecisionRule.BELOW), (105, DecisionRule.GROWN), (110, DecisionRule.GROWN)]
)
def test_a_day_of_100_units_runs_again_when_it_has_grown_by_5_percent(thresholds, units, rule):
    """A unit is one row of one byte."""
    world = World()
    world.time = datetime(2012, 3, 1, 18, tzinfo=UTC)
    with_policy(world, thresholds=LateThresholds(**thresholds), window_days=7)
    world.add("flights", "2012-02-27", "17", rows=100)
    world.publish("2012-02-27")
    world.add("flights", "2012-02-27", "18", name="late", rows=units - 100)
    report = world.check()
    assert [day.rule for day in report.days if day.date == "2012-02-27"] == [rule]
    assert [task.date for task in day_tasks(report)] == (["2012-02-27"] if rule is DecisionRule.GROWN else [])


def test_late_data_below_every_threshold_runs_again_when_the_oldest_of_it_has_waited_long_enough():
    world = with_policy(five_days(), max_age_hours=24)
    world.add("flights", DAY, "18", name="late", rows=1)
    arrived = next(item.modified for item in world.store.list(f"s3://raw/raw/source=flights/date={DAY}/hour=18"))
    # Newer late data of the same hour does not start the wait again.
    uri = world.add("flights", DAY, "18", name="later", rows=1)
    body, metadata, _ = world.store.objects[uri]
    world.store.objects[uri] = (body, metadata, arrived + timedelta(hours=23))
    for hours, rule in ((23.9, DecisionRule.BELOW), (24, DecisionRule.AGED)):
        world.time = arrived + timedelta(hours=hours)
        day = decision_of(world, as_of="2013-03-13")
        assert (day.rule, day.figures.oldest_wait_hours) == (rule, pytest.approx(hours))
    assert day.decision is LateDecision.RERUN
    assert day.reasons[-1] == "flights waits for 24.0 h: reaches late.max_age_hours 24"


@pytest.mark.parametrize(
    ("ages", "of_pipeline", "hours", "rule", "reason"),
    [
        ({"flights": 24}, None, 24, DecisionRule.AGED, "reaches late_max_age_hours 24 of its source"),
        ({"flights": 24}, None, 23.9, DecisionRule.BELOW, None),
        ({"weather": 1}, None, 1000, DecisionRule.BELOW, None),  # only the other source has a limit
        ({"flights": 1}, 48, 24, DecisionRule.BELOW, None),  # the pipeline's replaces it, also a longer one
        ({}, 12, 24, DecisionRule.AGED, "reaches late.max_age_hours 12"),
    ],
)
def test_each_source_may_limit_how_long_its_late_data_waits_and_the_pipeline_replaces_it(
    ages, of_pipeline, hours, rule, reason
):
    world = with_policy(five_days(), max_age_hours=of_pipeline)
    sources = {
        name: source.model_copy(update={"late_max_age_hours": ages.get(name)})
        for name, source in world.project.sources.items()
    }
    world.project = world.project.model_copy(update={"sources": sources})
    world.add("flights", DAY, "18", name="late", rows=1)
    arrived = next(item.modified for item in world.store.list(f"s3://raw/raw/source=flights/date={DAY}/hour=18"))
    world.time = arrived + timedelta(hours=hours)
    day = decision_of(world, as_of="2013-03-13")
    assert day.rule is rule
    assert reason is None or day.reasons[-1] == f"flights waits for 24.0 h: {reason}"


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ({"cool_down_hours": 1}, DecisionRule.COOL_DOWN),
        ({"cool_down_hours": 0, "max_reruns_per_day": 1}, DecisionRule.TOO_MANY),
    ],
)
def test_a_run_by_hand_waits_for_no_limit_and_counts_for_none(policy, rule):
    world = with_policy(five_days(), **policy)
    world.add("flights", DAY, "18", name="late", rows=500)
    rerun(world)
    for date in ("2013-03-09", DAY):
        world.add("flights", date, "20", name="later", rows=500)
    assert decision_of(world).rule is rule
    usage = dict(world.table.usage)
    rerun(world)  # `slackwater run` freezes the day in the same way
    assert decision_of(world).rule is DecisionRule.UNCHANGED
    assert world.table.usage == usage


def test_changed_files_reach_their_own_threshold_and_new_ones_do_not():
    world = with_policy(five_days(), thresholds=LateThresholds(changed_files=1, rows=10_000))
    world.add("flights", DAY, "18", name="new", rows=500)
    assert decision_of(world).rule is DecisionRule.BELOW
    assert decision_of(world).figures.changed_files == 0
    # An object that was overwritten is a changed input.
    world.add("weather", DAY, "17", rows=1001)
    changed = decision_of(world)
    assert (changed.rule, changed.figures.changed_files) == (DecisionRule.GROWN, 1)
    assert "reaches changed_files 1 of its source" in changed.reason


def test_a_partner_who_trickles_does_not_run_the_day_again_with_every_check():
    world = five_days()
    runs = []
    for minute in range(0, 180, 5):
        world.time = NOW + timedelta(minutes=minute)
        world.add("flights", DAY, "18", name=f"trickle-{minute}", rows=20)
        if decision_of(world).decision is LateDecision.RERUN:
            rerun(world)
            runs.append(minute)
    # At once, and then at most once an hour.
    assert runs == [0, 60, 120]
    assert decision_of(world).rule is DecisionRule.COOL_DOWN


def failing_attempts(world, *, minutes, error="SparkException: out of memory"):
    """Return the minutes at which checks, one every five minutes, run the day again, whose runs fail."""
    started = []
    for minute in minutes:
        world.time = NOW + timedelta(minutes=minute)
        world.add("flights", DAY, "18", name=f"trickle-{minute}", rows=20)
        if decision_of(world).decision is LateDecision.RERUN:
            fail(world, error=error)
            started.append(minute)
    return started


def test_a_day_that_keeps_failing_while_data_trickles_in_is_not_run_again_with_every_check():
    # Each object gives the run another identity. Two repairs follow at once, then at most one an hour.
    assert failing_attempts(five_days(), minutes=range(0, 180, 5)) == [0, 5, 10, 70, 130]


def test_a_rerun_that_fails_its_audit_starts_the_cool_down():
    assert failing_attempts(five_days(), minutes=range(0, 130, 5), error="AuditFailed: 1 row") == [0, 60, 120]


def test_a_day_that_keeps_failing_takes_no_re_run_of_another_day():
    world = with_policy(five_days(), max_reruns_per_day=4, cool_down_hours=0)
    assert failing_attempts(world, minutes=(0, 5, 10)) == [0, 5, 10]
    for date in (DAY, "2013-03-11"):
        world.add("flights", date, "18", name="late", rows=500)
    days = {day.date: day for day in world.check().days}
    # The failing day is the older one.
    assert (days["2013-03-11"].decision, days["2013-03-11"].rule) == (LateDecision.RERUN, DecisionRule.GROWN)
    assert (days[DAY].decision, days[DAY].rule) == (LateDecision.DEFER, DecisionRule.TOO_MANY)
    world.time += timedelta(days=1)
    assert decision_of(world).rule is DecisionRule.OUTCOME_UNKNOWN


def test_the_checks_of_one_day_share_the_largest_number_of_re_runs():
    world = with_policy(five_days(), max_reruns_per_day=2)
    for number in range(8, 13):
        world.add("weather", f"2013-03-{number:02}", "18", name="late", rows=5)

    def reruns():
        return [day.date for day in world.check().days if day.decision is LateDecision.RERUN]

    assert reruns() == ["2013-03-08", "2013-03-09"]
    # A repeated check, and one after the days have run, start no others.
    assert reruns() == ["2013-03-08", "2013-03-09"]
    for date in ("2013-03-08", "2013-03-09"):
        rerun(world, date)
    assert reruns() == []
    world.time += timedelta(days=1)
    assert reruns() == ["2013-03-10", "2013-03-11"]


def test_many_late_days_run_again_from_the_oldest_day_on_as_many_each_day_as_the_limit_allows():
    # The second check is on the next day: the window still has the oldest day.
    world, first = with_policy(World(), window_days=121), NOW.date() - timedelta(days=120)
    dates = [(first + timedelta(days=number)).isoformat() for number in range(120)]
    for date in dates:
        world.add("weather", date, "17", rows=1000)
        world.publish(date)
        world.add("weather", date, "18", name="late", rows=5)
    for number in range(2):
        report = world.check()
        expected = dates[50 * number : 50 * (number + 1)]
        # `parallel_days` of them run at the same time, and start in this order.
        assert [task.date for task in day_tasks(report) if task.action is DayAction.RERUN] == expected
        rules = {day.date: (day.decision, day.rule) for day in report.days}
        waiting = dates[50 * (number + 1) :]
        assert {rules[date] for date in waiting} == {(LateDecision.DEFER, DecisionRule.TOO_MANY)}
        for date in expected:
            rerun(world, date)
        world.time += timedelta(days=1)


def test_of_two_parallel_checks_only_one_counts_the_last_re_run():
    world = with_policy(five_days(), max_reruns_per_day=1)
    world.add("weather", DAY, "18", name="late", rows=5)
    table, superseded = world.table, []

    class Superseded:
        """The table of a check, whose first count another check supersedes with a day of its own."""

        def __getattr__(self, name):
            return getattr(table, name)

        def save_rerun_usage(self, usage):
            if not superseded:
                superseded.append(usage)
                world.table = table
                world.add("weather", "2013-03-09", "18", name="late", rows=5)
                assert decision_of(world, "2013-03-09").decision is LateDecision.RERUN
                world.table = self
            table.save_rerun_usage(usage)

    world.table = Superseded()
    day = decision_of(world)
    assert (day.decision, day.rule) == (LateDecision.DEFER, DecisionRule.TOO_MANY)
    [usage] = table.usage.values()
    assert [item.date for item in usage.reruns] == ["2013-03-09"]
    with pytest.raises(DayChanged):
        table.save_rerun_usage(superseded[0])


def test_attempts_whose_execution_died_count_as_failed():
    world = five_days()
    world.add("flights", DAY, "18", name="late", rows=500)
    for attempt in range(2, 5):
        day = decision_of(world)
        assert day.rule is (DecisionRule.GROWN if attempt == 2 else DecisionRule.OUTCOME_UNKNOWN)
        assert day.reasons[0].startswith("flights grew by 500 rows")
        # Step Functions knows the execution, and it has ended without recording anything.
        world.executions.known.add(f"killed-{attempt}")
        frozen = freezer_of(world).freeze(
            pipeline=PIPELINE, date=DAY, execution=f"killed-{attempt}", correlation_id="c"
        )
        assert frozen.run.attempt == attempt
    # The last one is still recorded as running.
    assert world.table.run(PIPELINE, DAY, 4).state is RunState.RUNNING
    day = decision_of(world)
    assert (day.decision, day.rule) == (LateDecision.HOLD, DecisionRule.FAILED)
    assert "attempt 4 with: its execution ended without an outcome" in day.reason


def test_a_deployed_project_with_the_former_key_order_is_read():
    assert Late.model_validate({"order": "oldest", "budget_per_day": 2}) == Late(budget_per_day=2)
