from datetime import UTC, datetime, timedelta
from threading import Barrier, Lock

import pytest

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.errors import InputError
from slackwater.late.check.silences import arrivals_of_day
from slackwater.late.check.tasks import DayAction, DayTask, day_tasks
from slackwater.late.check.window_dates import today, window_start
from slackwater.late.decision import CheckReport, DecisionRule, LateDecision, report_uri
from slackwater.pipeline.definition import Late
from slackwater.runs.period import day_of, parse_date
from slackwater.sources.late_thresholds import LateThresholds
from slackwater.sources.partitions import Partition
from tests.fakes_check import NOW, PIPELINE, World, five_days
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import store_file
from tests.fakes_runs import RUN_TABLE

pytestmark = pytest.mark.unit


def test_all_days_of_the_window_and_the_current_day_are_decided_in_order(world):
    report = world.check("2013-03-13")
    assert [day.date for day in report.days] == [f"2013-03-{number:02}" for number in range(6, 14)]
    assert [day.rule for day in report.days] == [
        *[DecisionRule.NEVER_PUBLISHED] * 2,
        *[DecisionRule.UNCHANGED] * 5,
        DecisionRule.CURRENT,
    ]
    assert (report.pipeline, report.as_of, report.checked_at) == (PIPELINE, "2013-03-13", NOW)
    assert day_tasks(report) == ()


def test_the_thresholds_of_the_pipeline_precede_those_of_the_source(world):
    world.add("flights", "2013-03-10", "20", name="late", rows=20)
    own = Late(thresholds={"flights": LateThresholds(rows=21)})
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": own})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    (day,) = [day for day in world.check().days if day.date == "2013-03-10"]
    assert day.rule is DecisionRule.BELOW
    assert day.reason.endswith("below rows 21 of pipeline daily_delays")


def test_no_notification_is_due_for_the_current_day_even_after_several_publications(world):
    for name in ("one", "two"):
        world.add("weather", "2013-03-13", "17", name=name)
        world.publish("2013-03-13")
    (day,) = [day for day in world.check().days if day.date == "2013-03-13"]
    assert (day.rule, day.notification_due) == (DecisionRule.CURRENT, True)
    assert day_tasks(world.check()) == ()


def test_people_are_notified_of_a_day_before_the_window_that_was_run_again_by_hand(world):
    for date in ("2013-03-08", "2013-03-09"):
        world.add("weather", date, "20", name="late", rows=1)
        world.publish(date)
    world.add("weather", "2013-03-08", "21", name="later", rows=1)
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    report = world.check()
    assert (report.days[0].date, report.notifications_due) == ("2013-03-10", ("2013-03-08", "2013-03-09"))
    assert [(task.date, task.action) for task in day_tasks(report)] == [
        ("2013-03-08", DayAction.NOTIFY),
        ("2013-03-09", DayAction.NOTIFY),
    ]


def test_re_runs_start_before_comparisons_of_due_notifications(world):
    # A comparison may wait for its job for hours, and a monitoring works on four days at a time.
    for date in ("2013-03-08", "2013-03-10"):
        world.add("weather", date, "20", name="late", rows=1)
        world.publish(date)
    for date in ("2013-03-11", "2013-03-12"):
        world.add("weather", date, "20", name="late", rows=500)
    world.time = datetime(2013, 3, 16, 18, tzinfo=UTC)
    assert [(task.date, task.action) for task in day_tasks(world.check())] == [
        ("2013-03-11", DayAction.RERUN),
        ("2013-03-12", DayAction.RERUN),
        ("2013-03-08", DayAction.NOTIFY),
        ("2013-03-10", DayAction.NOTIFY),
    ]


def test_no_notification_is_due_for_a_day_before_the_window_that_is_running_or_already_notified(world):
    world.add("weather", "2013-03-08", "20", name="late", rows=1)
    world.publish("2013-03-08")
    world.freeze("2013-03-08", force=True)
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    assert world.check().notifications_due == ()
    world.executions.running.clear()
    assert world.check().notifications_due == ("2013-03-08",)
    day = world.table.day(PIPELINE, "2013-03-08")
    world.table.save(day.model_copy(update={"notified_attempt": 2}))
    assert world.check().notifications_due == ()


def test_days_after_the_date_of_a_check_wait_for_a_later_check(world):
    world.add("weather", "2013-03-12", "20", name="late", rows=1)
    world.publish("2013-03-12")
    report = world.check("2013-03-10")
    assert (report.notifications_due, day_tasks(report)) == ((), ())


def test_notifications_beyond_the_limit_of_one_map_wait_for_later_checks(world, monkeypatch):
    monkeypatch.setattr("slackwater.late.check.checker._MAX_DAYS_TO_NOTIFY", 1)
    for date in ("2013-03-08", "2013-03-09"):
        world.publish(date, force=True)
    world.time = datetime(2013, 3, 17, 18, tzinfo=UTC)
    [first] = world.check().notifications_due
    # The first day stays due, as one whose comparison was given up does. It must not block the other one.
    world.time += timedelta(days=1)
    [second] = world.check().notifications_due
    assert {first, second} == {"2013-03-08", "2013-03-09"}


def test_a_monitoring_has_no_more_days_than_fit_into_its_history_and_leaves_out_no_re_run(world, monkeypatch):
    for date in ("2013-03-08", "2013-03-09"):
        world.publish(date, force=True)
    world.add("weather", "2013-03-12", "20", name="late", rows=1)
    monkeypatch.setattr("slackwater.late.check.tasks.MOST_TASKS", 2)
    assert [(task.date, task.action) for task in day_tasks(world.check())] == [
        ("2013-03-12", DayAction.RERUN),
        ("2013-03-08", DayAction.NOTIFY),
    ]


def test_metadata_is_read_only_for_objects_that_the_published_run_has_not_read(world):
    uri = world.add("flights", "2013-03-10", "20", name="late", rows=10)
    world.store.asked_metadata.clear()
    world.check()
    assert world.store.asked_metadata == [uri]


def test_a_run_that_publishes_while_the_check_lists_its_inputs_does_not_put_the_day_on_hold(world):
    listing = world.store.list

    def list_and_publish(prefix, **options):
        objects = list(listing(prefix, **options))
        world.store.list = listing
        world.add("flights", "2013-03-10", "20", name="late", rows=500)
        world.publish("2013-03-10")
        return iter(objects)

    world.store.list = list_and_publish
    (day,) = [day for day in world.check().days if day.date == "2013-03-10"]
    assert (day.attempt, day.decision) == (1, LateDecision.IGNORE)
    assert world.table.day(PIPELINE, "2013-03-10").hold is None


def test_frozen_at_is_the_time_of_the_run_and_not_of_an_equal_manifest(world):
    world.time += timedelta(hours=1)
    world.publish("2013-03-10", force=True)
    (day,) = [day for day in world.check().days if day.date == "2013-03-10"]
    assert (day.attempt, day.frozen_at) == (2, NOW + timedelta(hours=1))


def test_a_pipeline_that_was_never_run_has_nothing_to_check():
    report = World().check()
    assert {day.rule for day in report.days[:-1]} == {DecisionRule.NEVER_PUBLISHED}
    assert (report.overdue, report.last_arrivals) == ((), {"flights": None, "weather": None})
    assert day_tasks(report) == ()


def test_today_is_computed_in_the_timezone_of_the_pipeline(world):
    world.time = datetime(2013, 3, 13, 3, 59, tzinfo=UTC)
    assert world.check().as_of == "2013-03-12"
    world.time += timedelta(minutes=1)
    assert world.check().as_of == "2013-03-13"


@pytest.mark.parametrize("as_of", ["2013-02-30", "yesterday", "", "0001-01-03", "20130310", "2013-W10-7"])
def test_an_invalid_date_is_refused(world, as_of):
    with pytest.raises(InputError, match=f"as_of: '{as_of}' is not a date such as 2013-03-10"):
        world.check(as_of)


def test_a_day_that_has_not_begun_is_refused(world):
    with pytest.raises(InputError, match="as_of: 2013-03-14 has not begun in America/New_York"):
        world.check("2013-03-14")


def test_a_pull_that_keeps_changing_one_day_puts_only_that_day_on_hold(world):
    noon = [Partition("2013-03-10", "17")]
    (uri,) = store_file(world.files, "flights", "f.csv", "a", noon)
    world.store.put(uri, b"x", metadata={"rows": "1"})
    listing, lock = world.store.list, Lock()

    def change_and_list(prefix, **options):
        # Listings run in parallel: each leaves the content that was there, changed twice more.
        with lock:
            for content in "ba":
                store_file(world.files, "flights", "f.csv", content, noon)
        return listing(prefix, **options)

    world.store.list = change_and_list
    rules = world.rules()
    assert rules.pop("2013-03-10") is DecisionRule.CHANGING
    assert {rules[f"2013-03-{number:02}"] for number in (8, 9, 11, 12)} == {DecisionRule.UNCHANGED}


def gap(world, *dates):
    for date in dates:
        del world.table.by_day[PIPELINE, date]


def test_days_past_their_deadline_are_overdue_from_the_first_published_one_on(world):
    gap(world, "2013-03-10", "2013-03-12")
    assert world.check().overdue == ("2013-03-10", "2013-03-12")


def test_a_day_is_not_overdue_before_its_deadline(world):
    gap(world, "2013-03-12")
    world.time = datetime(2013, 3, 13, 16, tzinfo=UTC)  # noon in New York, twelve hours after the day's end
    assert world.check().overdue == ()
    world.time += timedelta(seconds=1)
    assert world.check().overdue == ("2013-03-12",)


def add_published_days(world, count):
    """Record days before the others of the world as published, all copies of one of them."""
    record = world.table.day(PIPELINE, "2013-03-08")
    for back in range(1, count + 1):
        date = (datetime(2013, 3, 8) - timedelta(days=back)).date().isoformat()
        world.table.save(record.model_copy(update={"date": date, "version": 0}))


@pytest.fixture
def dynamodb():
    local = LocalDynamoDB()
    with local.table("runs", **RUN_TABLE) as table:
        yield local, DynamoRunTable(local.client, table)


def test_the_check_of_a_pipeline_with_years_of_days_makes_the_same_requests_as_a_young_one(dynamodb):
    def check_and_count():
        answers.clear()
        report = world.check()
        passed = world.checker.passed_over(report)
        return sorted(answers), report.model_copy(update={"seconds": 0}), passed

    local, table = dynamodb
    world, answers = five_days(table), []
    local.client.meta.events.register(
        "after-call.dynamodb", lambda parsed, model, **_: answers.append((model.name, parsed.get("Count")))
    )
    world.time = datetime(2013, 3, 15, 18, tzinfo=UTC)
    young = check_and_count()
    add_published_days(world, 400)
    assert check_and_count() == young
    assert young[0].count(("Query", 1)) == 2  # the first published day, for either
    assert young[1].overdue == ("2013-03-13", "2013-03-14")


def test_a_notification_that_is_due_for_an_old_day_is_still_sent(dynamodb):
    _, table = dynamodb
    world = five_days(table)
    old, record = "2012-03-01", table.day(PIPELINE, "2013-03-08")
    again = record.published.run.model_copy(update={"attempt": 2})
    published = record.published.model_copy(update={"run": again})
    table.save(record.model_copy(update={"date": old, "version": 0, "published": published}))
    assert day_tasks(world.check()) == (DayTask(date=old, action=DayAction.NOTIFY),)
    table.save(table.day(PIPELINE, old).model_copy(update={"notified_attempt": 2}))
    assert day_tasks(world.check()) == ()


def test_a_pipeline_whose_window_has_no_published_day_is_overdue_for_years(dynamodb):
    _, table = dynamodb
    world = five_days(table)
    world.time = datetime(2016, 3, 9, 18, tzinfo=UTC)
    assert world.check().overdue == tuple(f"2016-03-{number:02}" for number in range(2, 9))


def test_the_newest_arrival_of_each_source_is_reported_over_all_days(world):
    world.add("weather", "2013-03-13", "17", name="today")
    world.add("flights", "2013-03-07", "17", name="unpublished")
    newest = {uri: item[2] for uri, item in world.store.objects.items()}
    arrivals = world.check().last_arrivals
    assert arrivals == {
        "weather": newest["s3://raw/raw/source=weather/date=2013-03-13/hour=17/today.parquet"],
        "flights": newest["s3://raw/raw/source=flights/date=2013-03-07/hour=17/unpublished.parquet"],
    }


def test_the_sources_of_a_day_without_a_listing_of_the_window_are_listed_in_parallel(world):
    listing, listed = world.store.list, Barrier(2, timeout=30)

    def list_together(prefix, **options):
        listed.wait()
        return listing(prefix, **options)

    world.store.list = list_together
    definition, day = world.project.pipelines[PIPELINE], day_of(parse_date("2013-03-12"), "America/New_York")
    arrivals, error = arrivals_of_day(definition, day, None, None, inputs=world.inputs)
    assert (list(arrivals), error) == (list(definition.sources), None)
    assert all(arrivals.values())


def test_arrivals_before_the_window_are_searched_for_the_silent_hours_of_the_source(world):
    def arrived(silent_hours):
        source = world.project.sources["weather"].model_copy(update={"silent_hours": silent_hours})
        world.project = world.project.model_copy(update={"sources": {**world.project.sources, "weather": source}})
        return world.check().last_arrivals["weather"]

    world.time = datetime(
        2013, 3, 22, 18, tzinfo=UTC
    )  # the window begins on the 15th, three days after the newest object
    newest = world.store.objects["s3://raw/raw/source=weather/date=2013-03-12/hour=17/a.parquet"][2]
    assert arrived(48) is None
    assert arrived(8 * 24) is None
    assert arrived(10 * 24) == newest


def test_the_report_is_stored_under_the_name_of_its_execution(world):
    execution = "arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:2013-03-13-abc"
    report = world.check()
    uri = world.checker.save(report, execution=execution)
    assert uri == f"s3://exchange/checks/{PIPELINE}/2013-03-13/2013-03-13-abc.json"
    assert uri == report_uri("exchange", PIPELINE, "2013-03-13", execution)
    assert CheckReport.model_validate_json(world.store.get(uri)) == report


def test_the_window_starts_at_its_first_midnight(world):
    definition = world.project.pipelines[PIPELINE]
    assert window_start(definition, "2013-03-13") == datetime(2013, 3, 6, 5, tzinfo=UTC)
    assert today(definition, NOW).isoformat() == "2013-03-13"


def test_a_repeated_check_has_the_same_result(world):
    world.add("flights", "2013-03-10", "20", name="late", rows=10)
    one, other = world.check(), world.check()
    assert one.model_copy(update={"seconds": 0}) == other.model_copy(update={"seconds": 0})
