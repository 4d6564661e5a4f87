from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.stub import Stubber

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.costs.cost import RunCost
from slackwater.errors import AccessDenied, CloudError, DayChanged, Throttled
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.pipeline_records import ArrivalHistory, CountedRerun, DefinitionNotice, LedgerDay, RerunUsage
from slackwater.runs.record import DayRecord, Hold, Publication, PublishedRun, Run, RunRecord, RunState
from tests.fakes_runs import RUN_TABLE, DictRunTable

pytestmark = pytest.mark.unit


@pytest.fixture
def dynamodb():
    return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")


@pytest.fixture
def table(each_dynamodb):
    with each_dynamodb.table("runs", **RUN_TABLE) as name:
        yield DynamoRunTable(each_dynamodb.client, name)


def published(date, *, attempt=1, notified=1, pipeline="p", version=0):
    """Return a day that published this attempt, and whose readers know the attempt `notified`."""
    run = RUN.run.model_copy(update={"pipeline": pipeline, "date": date, "attempt": attempt})
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1)
    return DayRecord(
        pipeline=pipeline,
        date=date,
        version=version,
        published=PublishedRun(run=run, publication=publication, at=RUN.started_at),
        notified_attempt=notified,
    )


def test_the_first_published_day_is_that_of_the_pipeline_whatever_days_failed_before(table):
    table.save(DayRecord(pipeline="p", date="2013-03-01", attempts=1))
    table.save(published("2013-03-02", pipeline="other"))
    assert table.first_published("p") is None
    table.save(published("2013-03-08"), RUN)
    table.save(published("2013-03-04"))
    assert table.first_published("p") == "2013-03-04"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["2013-02-28", "2013-03-01", "2013-03-02"]),
        ({"limit": 2}, ["2013-02-28", "2013-03-01"]),
        ({"limit": 2, "latest_first": True}, ["2013-03-02", "2013-03-01"]),
        ({"limit": 9, "latest_first": True}, ["2013-03-02", "2013-03-01", "2013-02-28"]),
    ],
)
def test_the_days_of_a_range_are_those_that_were_run_with_both_ends(table, options, expected):
    for date in ("2013-02-27", "2013-02-28", "2013-03-02", "2013-03-03"):
        table.save(published(date))
    table.save(DayRecord(pipeline="p", date="2013-03-01", attempts=1))
    table.save(published("2013-03-01", pipeline="other"))
    table.save(run("2013-03-01", 1))
    assert [day.date for day in table.days("p", "2013-02-28", "2013-03-02", **options)] == expected
    assert table.days("p", "2013-03-04", "2013-03-09") == []


def test_a_limited_query_reads_no_more_days_than_its_limit(dynamodb):
    items = [{"record": {"S": DAY.model_dump_json()}}] * 2
    with Stubber(dynamodb) as stub:
        stub.add_response("query", {"Items": items, "LastEvaluatedKey": {"pipeline": {"S": "p"}}}, LIMITED_QUERY)
        assert DynamoRunTable(dynamodb, "runs").days("p", "a", "b", limit=2, latest_first=True) == [DAY, DAY]
        stub.assert_no_pending_responses()


def test_due_notifications_are_those_of_earlier_days_until_people_are_notified(table):
    for date in ("2013-03-01", "2013-03-02", "2013-03-03"):
        table.save(published(date, attempt=2))
    table.save(published("2012-12-31"))
    table.save(published("2013-01-01", attempt=2, pipeline="other"))
    assert list(table.notifications_due("p", before="2013-03-03")) == ["2013-03-01", "2013-03-02"]
    table.save(published("2013-03-01", attempt=2, notified=2, version=1))
    assert list(table.notifications_due("p", before="2013-03-03")) == ["2013-03-02"]


def test_the_history_of_arrivals_is_that_of_the_pipeline_and_no_day(table):
    at = datetime(2013, 3, 9, 12, tzinfo=UTC)
    assert table.arrival_history("p") == ArrivalHistory(pipeline="p")
    history = ArrivalHistory(pipeline="p").with_arrivals({"flights": [at]}, now=at)
    table.save_arrival_history(history)
    table.save_arrival_history(history.with_arrivals({"flights": [at], "weather": []}, now=at))
    assert set(table.arrival_history("p").sources) == {"flights", "weather"}
    assert table.arrival_history("q").sources == {}
    assert table.days("p", "0001-01-01", "9999-12-31") == []


def test_runs_are_returned_in_order_of_date_and_attempt(table):
    for date, attempt in (("2013-03-10", 1), ("2013-03-08", 10), ("2013-03-08", 9)):
        table.save(run(date, attempt))
    table.save(DAY, run("2013-03-08", 1))
    assert [(item.run.date, item.run.attempt) for item in table.runs("p")] == [
        ("2013-03-08", 1),
        ("2013-03-08", 9),
        ("2013-03-08", 10),
        ("2013-03-10", 1),
    ]
    assert [item.run.attempt for item in table.runs("p", "2013-03-08")] == [1, 9, 10]
    assert table.run("p", "2013-03-08", 10) == run("2013-03-08", 10)
    assert (table.run("p", "2013-03-08", 2), table.runs("other")) == (None, [])


def test_a_run_is_found_by_the_first_digits_of_its_id(table):
    for number in range(3):
        found = RUN.run.model_copy(update={"date": f"2013-03-1{number}", "run_id": f"{number}a" * 16})
        table.save(RUN.model_copy(update={"run": found}))
    assert [table.date_of_run("p", digits) for digits in ("1a" * 6, "2a" * 16, "a1" * 6)] == [
        "2013-03-11", "2013-03-12", None,
    ]  # fmt: skip
    assert table.date_of_run("other", "1a" * 6) is None


def test_days_on_hold_are_indexed_until_their_hold_ends(table):
    hold = Hold(rule="vanished", reason="r", since=datetime(2013, 3, 9, tzinfo=UTC))
    for date in ("2013-03-10", "2013-03-08", "2013-03-09"):
        table.save(DayRecord(pipeline="p", date=date, hold=None if date == "2013-03-09" else hold))
    table.save(DayRecord(pipeline="other", date="2013-03-07", hold=hold))
    assert list(table.held("p")) == ["2013-03-08", "2013-03-10"]
    table.save(table.day("p", "2013-03-08").model_copy(update={"hold": None}))
    assert list(table.held("p")) == ["2013-03-10"]


def test_a_run_and_its_day_are_written_over_the_version_that_was_read_or_not_at_all(table):
    table.save(DAY, RUN)
    table.save(DAY.model_copy(update={"version": 1, "attempts": 1}))
    for version in (0, 1, 3):
        stale = DAY.model_copy(update={"version": version})
        with pytest.raises(DayChanged):
            table.save(stale, run(DAY.date, 2))
        with pytest.raises(DayChanged):
            table.save(stale)
    assert table.day("p", DAY.date) == DAY.model_copy(update={"version": 2, "attempts": 1})
    assert [item.run.attempt for item in table.runs("p")] == [1]


def test_a_run_that_takes_a_day_over_closes_the_lost_run_or_writes_nothing(table):
    table.save(DAY, RUN)
    table.save(DAY.model_copy(update={"version": 1, "attempts": 1}))
    before = table.day("p", DAY.date)
    lost = RUN.model_copy(update={"state": RunState.FAILED, "ended_at": RUN.started_at, "error": "e"})
    for version in (0, 1, 3):
        # The function of the lost run may have recorded meanwhile that it has published the day.
        with pytest.raises(DayChanged):
            table.save(before.model_copy(update={"version": version}), run(DAY.date, 2), lost)
        assert (table.day("p", DAY.date), table.runs("p"), list(table.costs_due("p"))) == (before, [RUN], [])
    table.save(before.model_copy(update={"attempts": 2}), run(DAY.date, 2), lost)
    assert table.day("p", DAY.date) == before.model_copy(update={"version": 3, "attempts": 2})
    assert table.runs("p") == [lost, run(DAY.date, 2)]
    assert list(table.costs_due("p")) == [(DAY.date, 1, "")]


def run(date, attempt):
    return RUN.model_copy(update={"run": RUN.run.model_copy(update={"date": date, "attempt": attempt})})


def test_due_notifications_are_read_page_by_page_as_the_caller_needs_them(dynamodb):
    keys = [{"pipeline": {"S": "p"}, "item": {"S": f"day#2013-03-{number:02}"}} for number in (8, 9, 10)]
    query = {
        "TableName": "runs",
        "IndexName": "notification-due",
        "KeyConditionExpression": "notification_due_pipeline = :pipeline AND #item < :before",
        "ExpressionAttributeNames": {"#item": "item"},
        "ExpressionAttributeValues": {":pipeline": {"S": "p"}, ":before": {"S": "day#2014-01-01"}},
    }
    with Stubber(dynamodb) as stub:
        stub.add_response("query", {"Items": keys[:2], "LastEvaluatedKey": keys[1]}, query)
        dates = DynamoRunTable(dynamodb, "runs").notifications_due("p", before="2014-01-01")
        assert [next(dates), next(dates)] == ["2013-03-08", "2013-03-09"]
        stub.add_response("query", {"Items": keys[2:]}, {**query, "ExclusiveStartKey": keys[1]})
        assert list(dates) == ["2013-03-10"]
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda table: list(table.notifications_due("p", before="2014-01-01")), "the due notifications of p"),
        (lambda table: table.first_published("p"), "the first published day of p"),
        (lambda table: table.runs("p"), "the runs of p"),
        (lambda table: table.days("p", "2013-03-01", "2013-03-02"), "the days of p from 2013-03-01 to 2013-03-02"),
    ],
)
def test_denied_access_is_reported_with_what_was_read(dynamodb, read, what):
    with Stubber(dynamodb) as stub:
        stub.add_client_error("query", "AccessDeniedException", "no")
        with pytest.raises(AccessDenied, match=f"could not read {what}"):
            read(DynamoRunTable(dynamodb, "runs"))


RUN = RunRecord(
    run=Run(
        pipeline="p", date="2013-03-08", run_id="r" * 32, attempt=1, correlation_id="c", manifest="s3://x/m",
        prefix="s3://x/p/", files=0, rows=0, bytes=0,
    ),
    state=RunState.RUNNING,
    execution="arn:e",
    started_at=datetime(2013, 3, 9, tzinfo=UTC),
)  # fmt: skip
DAY = DayRecord(pipeline="p", date="2013-03-08")
LIMITED_QUERY = {
    "TableName": "runs",
    "KeyConditionExpression": "pipeline = :pipeline AND #item BETWEEN :first AND :last",
    "ExpressionAttributeNames": {"#item": "item"},
    "ExpressionAttributeValues": {":pipeline": {"S": "p"}, ":first": {"S": "day#a"}, ":last": {"S": "day#b"}},
    "ScanIndexForward": False,
    "ConsistentRead": True,
    "Limit": 2,
}


def cancelled(dynamodb, *reasons):
    """Return the error of saving a run and its day when DynamoDB cancels the transaction for these reasons."""
    with Stubber(dynamodb) as stub:
        stub.add_client_error(
            "transact_write_items",
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons {list(reasons)}",
            modeled_fields={"CancellationReasons": [{"Code": reason} for reason in reasons]},
        )
        with pytest.raises(Exception, match="2013-03-08") as raised:
            DynamoRunTable(dynamodb, "runs").save(DAY, RUN)
    return raised.value


@pytest.mark.parametrize("other", ["None", "ThrottlingError", "TransactionConflict"])
def test_a_day_whose_version_differs_was_changed_by_another_execution(dynamodb, other):
    error = cancelled(dynamodb, other, "ConditionalCheckFailed")
    assert type(error) is DayChanged
    assert str(error) == "p: 2013-03-08 was changed by another execution"


@pytest.mark.parametrize(
    ("reasons", "error"),
    [
        (("ThrottlingError", "None"), Throttled),
        (("None", "TransactionConflict"), Throttled),
        (("ValidationError", "None"), CloudError),
    ],
)
def test_a_transaction_that_was_cancelled_for_another_reason_is_no_change_of_the_day(dynamodb, reasons, error):
    assert type(cancelled(dynamodb, *reasons)) is error


@pytest.mark.parametrize("implementation", ["dynamodb", "fake"])
def test_a_day_stays_listed_for_the_ledger_until_it_is_removed_as_it_was_last_seen(table, implementation):
    table = table if implementation == "dynamodb" else DictRunTable()
    at = RUN.started_at
    for date, minutes in (("2013-03-09", 2), ("2013-03-08", 1), ("2013-03-09", 1)):
        table.record_ledger_day("p", date, at=at + timedelta(minutes=minutes))
    table.record_ledger_day("q", "2013-03-08", at=at)
    table.save_rejects_until("p", at)
    first, second = table.ledger_days("p")
    assert first == LedgerDay(date="2013-03-08", last=at + timedelta(minutes=1))
    assert second == LedgerDay(date="2013-03-09", last=at + timedelta(minutes=2))
    table.record_ledger_day("p", "2013-03-08", at=at + timedelta(minutes=3))
    for day in (first, second, second):
        table.remove_ledger_day("p", day)
    assert [day.date for day in table.ledger_days("p")] == ["2013-03-08"]
    assert (table.rejects_until("p"), table.rejects_until("q")) == (at, None)


@pytest.mark.parametrize("code", ["ConditionalCheckFailedException", "TransactionConflictException"])
def test_a_refused_write_of_a_day_is_a_conflict(dynamodb, code):
    with Stubber(dynamodb) as stub:
        stub.add_client_error("put_item", code, "no")
        with pytest.raises(DayChanged, match="2013-03-08"):
            DynamoRunTable(dynamodb, "runs").save(DAY)


def test_counted_re_runs_are_written_over_the_version_that_was_read_or_not_at_all(table):
    unused = table.rerun_usage("p", "2013-03-13")
    assert unused == RerunUsage(pipeline="p", date="2013-03-13")
    rerun = CountedRerun(date="2013-03-10", attempt=2, at=RUN.started_at, usd=0.02)
    table.save_rerun_usage(unused.model_copy(update={"reruns": (rerun,)}))
    stored = table.rerun_usage("p", "2013-03-13")
    assert (stored.version, stored.reruns) == (1, (rerun,))
    for overtaken in (unused, stored.model_copy(update={"version": 2})):
        with pytest.raises(DayChanged, match="p: another check has counted re-runs"):
            table.save_rerun_usage(overtaken)
    assert table.rerun_usage("p", "2013-03-13") == stored
    # They are neither days nor runs, and each calendar day and pipeline has its own.
    assert (table.runs("p"), table.days("p", "0001-01-01", "9999-12-31")) == ([], [])
    assert table.rerun_usage("p", "2013-03-14").version == table.rerun_usage("q", "2013-03-13").version == 0


def test_the_message_about_a_definition_is_written_over_the_version_that_was_read_or_not_at_all(table):
    none = table.definition_notice("p")
    assert none == DefinitionNotice(pipeline="p")
    table.save_definition_notice(none.model_copy(update={"digest": "d", "since": RUN.started_at}))
    stored = table.definition_notice("p")
    assert (stored.version, stored.digest, stored.since) == (1, "d", RUN.started_at)
    for superseded in (none, stored.model_copy(update={"version": 2})):
        with pytest.raises(DayChanged, match="p: another check has recorded a message"):
            table.save_definition_notice(superseded)
    assert (table.definition_notice("p"), table.definition_notice("q").version) == (stored, 0)
    # It is neither a day nor a run.
    assert (table.runs("p"), table.days("p", "0001-01-01", "9999-12-31")) == ([], [])


def test_the_largest_number_of_counted_re_runs_fits_into_an_item(table):
    rerun = CountedRerun(date="2013-03-10", attempt=10**6, at=RUN.started_at, usd=1 / 3)
    table.save_rerun_usage(RerunUsage(pipeline="p" * 63, date="2013-03-13", reruns=(rerun,) * 1000))
    assert len(table.rerun_usage("p" * 63, "2013-03-13").reruns) == 1000


def test_the_cost_of_an_ended_run_is_due_until_it_is_complete(table):
    ended = RUN.model_copy(update={"state": RunState.FAILED, "ended_at": RUN.started_at})
    table.save(RUN)
    assert list(table.costs_due("p")) == []
    table.save(ended)
    due = (RUN.run.date, RUN.run.attempt)
    assert list(table.costs_due("p")) == [(*due, "")]
    assert table.save_cost(ended.model_copy(update={"cost": RunCost(transitions=4)}))
    assert list(table.costs_due("p")) == [(*due, "")]
    final = {"cost": RunCost(transitions=4, usd=0.5, complete=True)}
    # The cost was written since this record was read.
    assert not table.save_cost(ended.model_copy(update=final))
    assert list(table.costs_due("p")) == [(*due, "")]
    complete = table.run("p", *due).model_copy(update=final)
    assert table.save_cost(complete)
    assert list(table.costs_due("p")) == []
    complete = complete.model_copy(update={"cost_version": 2})
    assert table.run("p", *due) == complete
    table.save(complete)
    assert list(table.costs_due("p")) == []


def test_the_cost_of_a_run_of_an_older_version_which_has_no_number_is_written(each_dynamodb, table):
    ended = RUN.model_copy(update={"state": RunState.FAILED, "ended_at": RUN.started_at})
    item = {"pipeline": {"S": "p"}, "item": {"S": f"run#{RUN.run.date}#00001"}}
    record = {"S": ended.model_dump_json(exclude={"cost_version"})}
    each_dynamodb.client.put_item(TableName="runs", Item={**item, "record": record})
    assert table.save_cost(table.run("p", RUN.run.date, 1).model_copy(update={"cost": RunCost(usd=0.5)}))
    assert table.run("p", RUN.run.date, 1).cost_version == 1


def test_comparisons_are_stored_by_day_and_due_until_their_cost_is_complete(table):
    def compared(name, date="2013-03-10", after=2, **more):
        execution = f"arn:aws:states:us-east-1:000000000000:execution:slackwater-compare-day:{name}"
        pair = {"pipeline": "p", "date": date, "before": 1, "after": after}
        return ComparisonRun(**pair, execution=execution, started_at=RUN.started_at, **more)

    first, second, other = compared("c1"), compared("c2", after=10), compared("c3", date="2013-03-11")
    for comparison in (second, first, other, first):
        table.save_comparison(comparison)
    assert table.comparisons("p", "2013-03-10") == [first, second]
    assert table.comparisons_between("p", "2013-03-10", "2013-03-11") == [first, second, other]
    assert (table.comparisons("p", "2013-03-1"), table.comparisons("q", "2013-03-10")) == ([], [])
    due = [("2013-03-10", 2, "c1"), ("2013-03-10", 10, "c2"), ("2013-03-11", 2, "c3")]
    assert list(table.costs_due("p")) == due
    assert table.comparison("p", next(table.costs_due("p"))) == first
    priced = compared("c1", cost=RunCost(usd=0.5, complete=True))
    assert (table.save_cost(priced), table.save_cost(priced)) == (True, False)
    assert list(table.costs_due("p")) == due[1:]
    assert table.comparisons("p", "2013-03-10") == [priced.model_copy(update={"cost_version": 1}), second]
    # They are neither runs nor days.
    assert (table.runs("p"), table.days("p", "0001-01-01", "9999-12-31")) == ([], [])


def test_the_runs_of_a_range_are_those_of_its_days_with_both_ends(table):
    for date, attempt in (("2013-02-28", 1), ("2013-03-01", 1), ("2013-03-02", 12), ("2013-03-03", 1)):
        table.save(RUN.model_copy(update={"run": RUN.run.model_copy(update={"date": date, "attempt": attempt})}))
    runs = table.runs_between("p", "2013-03-01", "2013-03-02")
    assert [(record.run.date, record.run.attempt) for record in runs] == [("2013-03-01", 1), ("2013-03-02", 12)]
    assert table.runs_between("other", "2013-03-01", "2013-03-02") == []
