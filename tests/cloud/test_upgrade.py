"""A deployment over the version before keeps its data. The shared cloud was deployed so (`deploy_previous_storage`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cloud.staged_runs import wait_for

pytestmark = pytest.mark.cloud

PIPELINE = """
pipeline: previous_delays
timezone: America/New_York
sources: [previous_flights]
steps:
  delays: {step: sql, depends_on: [previous_flights], with: {query: SELECT count(*) AS flights FROM previous_flights}}
publish: {step: delays, key: [date]}
late: {on_removed: {previous_flights: hold}}
"""
"""Its runs and the files of its source are only in `tests/infra/previous/stored.json`."""


def test_an_upgrade_keeps_buckets_and_tables_with_what_is_in_them(cloud):
    stack = cloud.client("cloudformation").describe_stack_resources(StackName="slackwater-storage")["StackResources"]
    present = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in stack}
    # Nothing but the Hive tables of raw events goes: an Iceberg table takes the place of each.
    before = json.loads(Path("tests/infra/previous/storage.template.json").read_text())["Resources"]
    kept_resources = {item for item in cloud.previous.items() if before[item[0]]["Type"] != "AWS::Glue::Table"}
    assert kept_resources == cloud.previous.items() & present.items() != set()
    dynamodb, kinds = cloud.client("dynamodb"), {r["LogicalResourceId"]: r["ResourceType"] for r in stack}
    kept = []
    for name, physical in kept_resources:
        if kinds[name] == "AWS::S3::Bucket":
            body = cloud.client("s3").get_object(Bucket=physical, Key=f"before/{name}")["Body"].read()
            kept.append(body == name.encode())
        if kinds[name] == "AWS::DynamoDB::Table":
            keys = dynamodb.describe_table(TableName=physical)["Table"]["KeySchema"]
            key = {item["AttributeName"]: {"S": "before"} for item in keys}
            kept.append(dynamodb.get_item(TableName=physical, Key=key)["Item"]["note"]["S"] == name)
    assert kept == [True] * 6, "three buckets, three tables"


def test_runs_days_and_files_that_the_version_before_has_recorded_are_listed(cloud, tmp_path):
    flights = (cloud.project / "sources" / "flights.yaml").read_text()
    definitions = {"pipelines/previous_delays": PIPELINE, "sources/previous_flights": flights}
    for name, text in definitions.items():
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir()
        file.write_text(text.replace("source: flights", "source: previous_flights"))
    upgraded = replace(cloud, project=tmp_path)
    [run] = upgraded.json("runs", "previous_delays")["runs"]
    assert (run["date"], run["attempt"], run["state"], run["seconds"]) == ("1999-01-01", 1, "published", 90)
    assert (run["input"]["rows"], run["publication"]["rows"], run["stages"][0]["stage"]) == (120, 15, "delays")
    [day] = upgraded.json("late", "list", "previous_delays")["days"]
    assert (day["date"], day["rule"]) == ("1999-01-01", "removed")
    assert day["reason"].startswith("previous_flights: the partner has removed 1 file, flights-1999-01-01-08.csv, with")
    files = upgraded.json("files", "previous_flights", "--as-of", "1999-01-02")["files"]
    assert [(file["path"], file["state"], file["rows"], file["attempts"]) for file in files] == [
        ("flights-1999-01-01-12.csv", "failed", 0, 2),
        ("flights-1999-01-01-08.csv", "stored", 120, 0),
    ]


def test_events_that_waited_in_the_queue_during_the_upgrade_are_stored(cloud):
    raw, prefix = cloud.outputs()["RawBucket"], "raw/source=orders/date=1999-01-01/"
    wait_for(lambda: cloud.client("s3").list_objects_v2(Bucket=raw, Prefix=prefix)["KeyCount"] == 1)
    rows = cloud.query("SELECT amount, paid, city FROM raw.orders WHERE order_id = 'waited'")
    assert rows == [[1234.5, True, "Berlin"]]
