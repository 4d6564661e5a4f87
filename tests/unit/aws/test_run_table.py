from __future__ import annotations

from datetime import UTC, datetime

import boto3
import pytest
from botocore.stub import Stubber

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.errors import AccessDenied, CloudError, DayChanged, Throttled
from slackwater.runs.record import DayRecord, Run, RunRecord, RunState

pytestmark = pytest.mark.unit


@pytest.fixture
def dynamodb():
    return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")


def expected_query(**more):
    return {
        "TableName": "runs",
        "KeyConditionExpression": "pipeline = :pipeline AND begins_with(#item, :prefix)",
        "ExpressionAttributeNames": {"#item": "item"},
        "ExpressionAttributeValues": {":pipeline": {"S": "p"}, ":prefix": {"S": "day#"}},
        "ConsistentRead": True,
        **more,
    }


def test_all_days_of_a_pipeline_are_read_page_by_page(dynamodb):
    days = [DayRecord(pipeline="p", date=f"2013-03-{number:02}", attempts=number) for number in (8, 9, 10)]
    items = [{"record": {"S": day.model_dump_json()}} for day in days]
    last = {"pipeline": {"S": "p"}, "item": {"S": "day#2013-03-09"}}
    with Stubber(dynamodb) as stub:
        stub.add_response("query", {"Items": items[:2], "LastEvaluatedKey": last}, expected_query())
        stub.add_response("query", {"Items": items[2:]}, expected_query(ExclusiveStartKey=last))
        assert DynamoRunTable(dynamodb, "runs").days("p") == days
        stub.assert_no_pending_responses()


def test_denied_access_to_the_days_is_reported(dynamodb):
    with Stubber(dynamodb) as stub:
        stub.add_client_error("query", "AccessDeniedException", "no")
        with pytest.raises(AccessDenied, match="could not read the days of p"):
            DynamoRunTable(dynamodb, "runs").days("p")


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
            DynamoRunTable(dynamodb, "runs").save(run=RUN, day=DAY)
    return raised.value


@pytest.mark.parametrize("reason", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"])
@pytest.mark.parametrize("second", [False, True])
def test_a_transaction_that_was_cancelled_for_a_temporary_reason_is_throttled(dynamodb, reason, second):
    error = cancelled(dynamodb, *(("None", reason) if second else (reason, "None")))
    assert type(error) is Throttled
    assert "could not record attempt 1 of p for 2013-03-08: TransactionCanceledException: " in str(error)
    assert reason in str(error)


@pytest.mark.parametrize("other", ["None", "ThrottlingError", "TransactionConflict"])
def test_a_day_whose_version_differs_was_changed_by_another_execution(dynamodb, other):
    error = cancelled(dynamodb, other, "ConditionalCheckFailed")
    assert type(error) is DayChanged
    assert str(error) == "p: 2013-03-08 was changed by another execution"


@pytest.mark.parametrize(
    "reasons", [("ValidationError", "None"), ("ThrottlingError", "ItemCollectionSizeLimitExceeded")]
)
def test_a_transaction_that_can_never_succeed_is_not_tried_again(dynamodb, reasons):
    error = cancelled(dynamodb, *reasons)
    assert type(error) is CloudError
    assert reasons[0] in str(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ConditionalCheckFailedException", DayChanged),
        ("TransactionConflictException", DayChanged),
        ("ProvisionedThroughputExceededException", Throttled),
        ("ThrottlingException", Throttled),
        ("RequestLimitExceeded", Throttled),
        ("ItemCollectionSizeLimitExceededException", CloudError),
    ],
)
def test_a_refused_write_of_a_day_is_a_conflict_throttling_or_a_failure(dynamodb, code, expected):
    with Stubber(dynamodb) as stub:
        stub.add_client_error("put_item", code, "no")
        with pytest.raises(expected, match="2013-03-08") as raised:
            DynamoRunTable(dynamodb, "runs").save_day(DAY)
    assert type(raised.value) is expected
