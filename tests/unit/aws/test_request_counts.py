"""Billed requests are counted from the responses that botocore receives, for real requests of its clients."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError

from slackwater.aws.executions.request_counts import RequestCounter
from slackwater.pipeline.prices import read_prices
from slackwater.runs.costs.cost import RequestCounts

pytestmark = pytest.mark.unit

KEY = {"pipeline": {"S": "p"}, "item": {"S": "day#2013-03-10"}}


class Raw(io.BytesIO):
    """A body as urllib3 has it."""

    def stream(self, **_):
        yield self.read()


class Cloud:
    """The clients of a session whose requests never leave the process."""

    def __init__(self):
        self.statuses, self.bodies, self.sent = [], {}, []
        session = boto3.session.Session("key", "secret", region_name="us-east-1")
        self.counter = RequestCounter()
        self.counter.register(session.events)
        session.events.register("before-send", self._answer)
        config = Config(retries={"mode": "standard", "total_max_attempts": 3})
        self.s3, self.dynamodb = (session.client(service, config=config) for service in ("s3", "dynamodb"))

    def _answer(self, *, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.sent.append((operation, request.body))
        status = self.statuses.pop(0) if self.statuses else 200
        body = self.bodies.get(operation, b"{}" if "dynamodb" in event_name else b"")
        return AWSResponse(request.url, status, {}, Raw(body))

    def consumes(self, operation, capacity):
        self.bodies[operation] = json.dumps({"ConsumedCapacity": capacity}).encode()


@pytest.fixture
def cloud(monkeypatch):
    # Not `time.sleep` itself: threads that wait for other tests' clouds would never pause.
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    return Cloud()


def test_requests_to_s3_are_counted_by_their_price(cloud):
    cloud.s3.put_object(Bucket="b", Key="k", Body=b"")
    cloud.s3.get_object(Bucket="b", Key="k")
    cloud.s3.head_object(Bucket="b", Key="k")
    cloud.s3.list_objects_v2(Bucket="b")
    cloud.s3.delete_object(Bucket="b", Key="k")
    assert cloud.counter.counts() == RequestCounts(s3_puts=1, s3_lists=1, s3_gets=2)
    cloud.counter.reset()
    assert cloud.counter.counts() == RequestCounts()


def test_a_refused_request_counts_and_an_error_of_the_server_does_not(cloud):
    cloud.statuses = [503, 200, 404]
    cloud.s3.head_object(Bucket="b", Key="k")
    with pytest.raises(ClientError):
        cloud.s3.head_object(Bucket="b", Key="k")
    assert len(cloud.sent) == 3
    assert cloud.counter.counts() == RequestCounts(s3_gets=2)


def test_dynamodb_is_asked_for_the_units_that_it_bills(cloud):
    cloud.consumes("GetItem", {"TableName": "t", "CapacityUnits": 1.5})
    cloud.consumes("Query", {"TableName": "t", "CapacityUnits": 0.5})
    cloud.consumes("TransactWriteItems", [{"TableName": "t", "CapacityUnits": 4.0}, {"CapacityUnits": 2.0}])
    cloud.dynamodb.get_item(TableName="t", Key=KEY)
    cloud.dynamodb.query(
        TableName="t", KeyConditionExpression="pipeline = :p", ExpressionAttributeValues={":p": KEY["item"]}
    )
    cloud.dynamodb.transact_write_items(TransactItems=[{"Put": {"TableName": "t", "Item": KEY}}])
    cloud.dynamodb.describe_table(TableName="t")
    assert cloud.counter.counts() == RequestCounts(dynamodb_reads=2, dynamodb_writes=6)
    asked = {operation: json.loads(body).get("ReturnConsumedCapacity") for operation, body in cloud.sent}
    assert asked == {"GetItem": "TOTAL", "Query": "TOTAL", "TransactWriteItems": "TOTAL", "DescribeTable": None}


def test_requests_of_all_threads_are_counted(cloud):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: cloud.s3.head_object(Bucket="b", Key=str(key)), range(200)))
    assert cloud.counter.counts() == RequestCounts(s3_gets=200)


def test_the_price_of_requests_is_that_of_the_region():
    counts = RequestCounts(s3_puts=20, s3_lists=24, s3_gets=40, dynamodb_reads=20, dynamodb_writes=20.5)
    by_hand = (
        (20 + 24) * Decimal("0.0054") / 1000
        + 40 * Decimal("0.00043") / 1000
        + 20 * Decimal("0.1525") / 10**6
        + Decimal("20.5") * Decimal("0.7625") / 10**6
    )
    assert counts.usd(read_prices("eu-central-1")) == pytest.approx(float(by_hand), abs=1e-15)
    assert counts.plus(counts).s3_gets == 80
    assert counts.plus(RequestCounts()) == counts
