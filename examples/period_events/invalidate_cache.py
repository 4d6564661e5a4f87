"""A Lambda function that removes the answers about changed periods from a CloudFront cache (README.md)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    """Handle messages of a queue, each with an event `Slackwater Period Changed`.

    After an error, the queue sends them again, which is safe. If 15 paths with `*` are in progress, CloudFront refuses
    another one for some minutes: Lambda itself repeats an event only twice, and the answers would stay in the cache.
    """
    cloudfront, dynamodb = boto3.client("cloudfront"), boto3.client("dynamodb")
    for message in event["Records"]:
        period = json.loads(message["body"])["detail"]
        invalidate(cloudfront, os.environ["DISTRIBUTION"], dynamodb, os.environ["VERSIONS_TABLE"], period)


def invalidate(cloudfront: Any, distribution: str, dynamodb: Any, table: str, period: dict[str, Any]) -> None:
    """Invalidate the answers about a period, unless those of this version or a newer one have been.

    The partition key of the table is `period`. Raises `ClientError` if AWS refuses a call.
    """
    name, version = f"{period['source']}/{period['unit']}/{period['start']}", period["version"]
    key = {"period": {"S": name}}
    done = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
    if done and int(done["version"]["N"]) >= version:
        return
    paths = paths_of(period)
    # CloudFront creates one invalidation for each reference, so that recording the version afterwards is safe.
    batch = {"CallerReference": f"{name}/{version}", "Paths": {"Quantity": len(paths), "Items": paths}}
    cloudfront.create_invalidation(DistributionId=distribution, InvalidationBatch=batch)
    # Otherwise a newer version was recorded meanwhile.
    with suppress(dynamodb.exceptions.ConditionalCheckFailedException):
        dynamodb.put_item(
            TableName=table,
            Item=key | {"version": {"N": str(version)}},
            ConditionExpression="attribute_not_exists(version) OR version < :version",
            ExpressionAttributeValues={":version": {"N": str(version)}},
        )


def paths_of(period: dict[str, Any]) -> list[str]:
    """Return the paths of the answers about a period: change this to the paths of your API."""
    start = period["start"]
    return [f"/{period['source']}/{start[:10]}", f"/{period['source']}/{start[:13]}*"]
