from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.errors import AccessDenied
from slackwater.runs.record import DayRecord

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
