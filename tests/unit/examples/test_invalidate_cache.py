"""The example `invalidate_cache`: order, repetition and crashes; the local cloud's DynamoDB keeps the versions."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from examples.period_events.invalidate_cache import handler, invalidate
from tests.fakes_aws import FakeAws
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_interleaving import take_turns

pytestmark = pytest.mark.unit

TABLE = "cache_versions"


class Crash(Exception):
    """The process ends."""


class CloudFront:
    """Creates one invalidation for each reference, and refuses a 16th path with `*` in progress, as CloudFront does.

    botocore validates requests and answers.
    """

    def __init__(self) -> None:
        self.batches: dict[str, list[str]] = {}
        self.in_progress: list[str] = []
        self.client = FakeAws({"cloudfront:CreateInvalidation": self._create}).client("cloudfront")

    def _create(self, request: dict[str, Any]) -> dict[str, Any] | str:
        batch = request["InvalidationBatch"]
        items = batch["Paths"]["Items"]
        assert (request["DistributionId"], batch["Paths"]["Quantity"]) == ("E1", len(items))
        if batch["CallerReference"] not in self.batches:
            wildcards = [path for path in (*self.in_progress, *items) if path.endswith("*")]
            if len(wildcards) > 15:
                return "TooManyInvalidationsInProgress"
            self.in_progress = wildcards
        assert self.batches.setdefault(batch["CallerReference"], items) == items, "InvalidationBatchAlreadyExists"
        return {}

    @property
    def versions(self) -> list[int]:
        return [int(reference.rpartition("/")[2]) for reference in self.batches]


@pytest.fixture(scope="module")
def dynamodb():
    local = LocalDynamoDB()
    with local.table(TABLE, "period"):
        yield local


@pytest.fixture
def emptied(dynamodb):
    empty(dynamodb)
    return dynamodb


def empty(dynamodb: LocalDynamoDB) -> None:
    dynamodb.before = dynamodb.after = lambda _: None
    for item in dynamodb.items(TABLE):
        dynamodb.client.delete_item(TableName=TABLE, Key={"period": item["period"]})


def event(version: int, start: str = "2026-11-27T15:00:00Z") -> dict[str, Any]:
    return {"source": "clicks", "unit": "hour", "start": start, "version": version, "state": "short"}


def handle(cloudfront: CloudFront, dynamodb: LocalDynamoDB, version: int, **more: str) -> None:
    invalidate(cloudfront.client, "E1", dynamodb.client, TABLE, event(version, **more))


def test_each_newer_version_of_each_period_is_invalidated_once(emptied):
    cloudfront = CloudFront()
    for version in (2, 2, 5, 3, 5):
        handle(cloudfront, emptied, version)
    assert cloudfront.versions == [2, 5]
    handle(cloudfront, emptied, 1, start="2026-11-27T16:00:00Z")
    assert cloudfront.versions == [2, 5, 1]
    assert cloudfront.batches["clicks/hour/2026-11-27T15:00:00Z/5"] == ["/clicks/2026-11-27", "/clicks/2026-11-27T15*"]


@pytest.fixture
def deployed(emptied, monkeypatch) -> CloudFront:
    """CloudFront as the handler sees it, with the variables of the function."""
    cloudfront = CloudFront()
    monkeypatch.setattr(boto3, "client", {"cloudfront": cloudfront.client, "dynamodb": emptied.client}.get)
    monkeypatch.setenv("DISTRIBUTION", "E1")
    monkeypatch.setenv("VERSIONS_TABLE", TABLE)
    return cloudfront


def refused(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """Send each event to the function, as the queue does; return those that the queue sends again."""
    left = []
    for each in events:
        try:
            handler({"Records": [{"body": json.dumps({"source": "slackwater", "detail": each})}]}, None)
        except ClientError as error:
            if error.response["Error"]["Code"] != "TooManyInvalidationsInProgress":
                raise
            left.append(each)
    return left


def test_the_handler_uses_the_distribution_and_the_table_of_its_variables(deployed):
    assert refused(event(3)) == []
    assert deployed.versions == [3]


def test_hours_that_change_at_once_are_all_invalidated_in_the_end(deployed):
    """CloudFront refuses some of the hours of a day for longer than Lambda would repeat their events."""
    hours = [event(1, start=f"2026-11-27T{hour:02}:00:00Z") for hour in range(24)]
    left = refused(*hours)
    assert left == hours[15:]
    for _ in range(3):
        left = refused(*left)
    assert (left, len(deployed.batches)) == (hours[15:], 15)
    deployed.in_progress = []
    # A newer version comes before the older one is sent again.
    newer = {**hours[23], "version": 2}
    assert refused(newer, *left) == []
    assert set(deployed.batches) == {
        *(f"clicks/hour/{each['start']}/1" for each in hours[:23]),
        f"clicks/hour/{newer['start']}/2",
    }


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
def test_a_process_that_ends_at_a_call_invalidates_once_in_the_end(emptied, moment, operation):
    cloudfront = CloudFront()

    def crash(name: str) -> None:
        if name == operation:
            raise Crash

    setattr(emptied, moment, crash)
    with pytest.raises(Crash):
        handle(cloudfront, emptied, 5)
    setattr(emptied, moment, lambda _: None)
    handle(cloudfront, emptied, 5)
    assert cloudfront.versions == [5]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=3), st.lists(st.integers(0, 2), max_size=12))
def test_events_at_the_same_time_record_the_newest_version_after_its_invalidation(dynamodb, versions, order):
    empty(dynamodb)
    cloudfront = CloudFront()

    class Waiting:
        """The client of DynamoDB, whose calls wait for their turn."""

        exceptions = dynamodb.client.exceptions

        def __init__(self, port: Any) -> None:
            self.get_item, self.put_item = port.get_item, port.put_item

    def recorded() -> int:
        return max((int(item["version"]["N"]) for item in dynamodb.items(TABLE)), default=0)

    seen = [0]

    def what_is_recorded_was_invalidated() -> None:
        version = recorded()
        assert version >= seen[-1]
        assert version in {0, *cloudfront.versions}
        seen.append(version)

    works = [
        lambda wrap, version=version: invalidate(
            cloudfront.client, "E1", Waiting(wrap(dynamodb.client)), TABLE, event(version)
        )
        for version in versions
    ]
    take_turns(works, order, after_each=what_is_recorded_was_invalidated)
    assert recorded() == max(versions)
