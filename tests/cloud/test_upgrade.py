"""A deployment over the version before keeps its data. The shared cloud was deployed so (`deploy_previous_storage`)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cloud


def test_an_upgrade_keeps_buckets_tables_and_queues_with_what_is_in_them(cloud):
    stack = cloud.client("cloudformation").describe_stack_resources(StackName="slackwater-storage")["StackResources"]
    present = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in stack}
    assert cloud.previous.items() <= present.items()
    assert present.keys() > cloud.previous.keys(), "the project has more sources than the example of the version before"
    dynamodb, kinds = cloud.client("dynamodb"), {r["LogicalResourceId"]: r["ResourceType"] for r in stack}
    kept = []
    for name, physical in cloud.previous.items():
        if kinds[name] == "AWS::S3::Bucket":
            body = cloud.client("s3").get_object(Bucket=physical, Key=f"before/{name}")["Body"].read()
            kept.append(body == name.encode())
        if kinds[name] == "AWS::DynamoDB::Table":
            keys = dynamodb.describe_table(TableName=physical)["Table"]["KeySchema"]
            key = {item["AttributeName"]: {"S": "before"} for item in keys}
            kept.append(dynamodb.get_item(TableName=physical, Key=key)["Item"]["note"]["S"] == name)
    assert kept == [True] * 6, "three buckets, three tables"
