"""A Lambda function that removes the answers about changed periods from a CloudFront cache (README.md)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import boto3


def handler(event: dict[str, Any], _context: object) -> None:
    """Handle an event `Slackwater Period Changed`. After an error, Lambda repeats it, which is safe."""
    cloudfront, dynamodb = boto3.client("cloudfront"), boto3.client("dynamodb")
    invalidate(cloudfront, os.environ["DISTRIBUTION"], dynamodb, os.environ["VERSIONS_TABLE"], event["detail"])


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
