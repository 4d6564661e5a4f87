"""The OpenLineage events of deployed runs: what a consumer gets that was slow, and one that was down."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.cloud.conftest import PAST
from tests.cloud.staged_runs import wait_for
from tests.conftest import LATE
from tests.independent import daily_delays
from tests.lineage_runs import validated

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY, SLOW = PAST
"""The first runs of these days: during the second one, the consumer was slow."""
STAGE = "daily_delays.delays_by_carrier"


def end_of(lineage, pipeline, date):
    """Return the event that the first run of a date has ended, as soon as it has arrived."""
    wait_for(lambda: bool(lineage.ends(pipeline, date)))
    return lineage.ends(pipeline, date)[0]


def table_versions(cloud, table):
    """Return the tags of an Iceberg table, from its metadata."""
    found = cloud.client("glue").get_table(DatabaseName=cloud.outputs()["WarehouseDatabase"], Name=table)
    bucket, _, key = found["Table"]["Parameters"]["metadata_location"].removeprefix("s3://").partition("/")
    metadata = json.loads(cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
    return {name for name, ref in metadata["refs"].items() if ref["type"] == "tag"}


def origins(event):
    """Return the origins of the columns of the published table: dataset, column and kind."""
    [output] = event["outputs"]
    return {
        column: {
            (read["name"], read["field"], each["subtype"])
            for read in found["inputFields"]
            for each in read["transformations"]
        }
        for column, found in output["facets"]["columnLineage"]["fields"].items()
    }


def test_a_slow_consumer_delays_no_run_and_gets_all_events_of_the_run_and_its_stages(cloud, published, lineage):
    # The run has published while no request about it was answered.
    assert published[SLOW]["outcome"] == "published"
    ended = end_of(lineage, "daily_delays", SLOW)
    assert ended["run"]["runId"] in {event["run"]["runId"] for event in lineage.delayed}
    events = validated(lineage.of_run(ended["run"]["runId"]))
    kinds = [(event["eventType"], event["job"]["name"]) for event in events]
    assert kinds[0] == ("START", "daily_delays")
    assert sorted(kinds[1:]) == [("COMPLETE", "daily_delays"), ("COMPLETE", STAGE), ("START", STAGE)]


def test_a_consumer_gets_versions_and_numbers_of_inputs_and_outputs_and_the_origins_of_columns(
    cloud, published, lineage, tmp_path
):
    # Events that were lost can be sent again.
    request = {"event": "ended", "pipeline": "daily_delays", "date": DAY, "attempt": published[DAY]["attempt"]}
    sender = cloud.outputs()["LineageFunction"]
    cloud.client("lambda").invoke(FunctionName=sender, InvocationType="Event", Payload=json.dumps(request))
    ended, raw = end_of(lineage, "daily_delays", DAY), cloud.outputs()["RawBucket"]
    rows, inputs = daily_delays(tmp_path, DAY), {each["name"]: each for each in ended["inputs"]}
    assert set(inputs) == {"raw/source=flights", "raw/source=weather"}
    for name, read in inputs.items():
        hours = [part["dimensions"] for part in read["inputFacets"]["subset"]["inputCondition"]["partitions"]]
        stored = [
            item
            for hour in hours
            for item in cloud.client("s3").list_objects_v2(
                Bucket=raw, Prefix=f"{name}/date={hour['date']}/hour={hour['hour']}/"
            )["Contents"]
        ]
        identities = "".join(
            f"s3://{raw}/{item['Key']}\t{item['ETag'].strip(chr(34))}\n"
            for item in sorted(stored, key=lambda item: item["Key"])
        )
        version = hashlib.sha256(identities.encode()).hexdigest()
        statistics = read["inputFacets"]["inputStatistics"]
        assert read["namespace"] == f"s3://{raw}"
        assert (statistics["fileCount"], statistics["size"]) == (len(stored), sum(item["Size"] for item in stored))
        assert version.startswith(read["facets"]["version"]["datasetVersion"])
        assert {"origin", "time_hour"} <= {field["name"] for field in read["facets"]["schema"]["fields"]}
    flights = inputs["raw/source=flights"]["inputFacets"]
    assert flights["inputStatistics"]["rowCount"] == sum(count for _, _, _, count, *_ in rows)
    # The rule of severity `fail` has passed: the run has published.
    checked = flights["dataQualityAssertions"]["assertions"][0]
    assert (checked["column"], checked["assertion"], checked["success"]) == ("distance", "range", True)
    [table] = ended["outputs"]
    assert table["name"] == "table/slackwater_warehouse/daily_delays"
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == len(rows)
    assert table["facets"]["version"]["datasetVersion"] in table_versions(cloud, "daily_delays")
    described = cloud.query("SELECT column_name FROM (DESCRIBE SELECT * FROM daily_delays)")
    assert {field["name"] for field in table["facets"]["schema"]["fields"]} == {name for (name,) in described}
    found = origins(ended)
    assert found["carrier"] == {("raw/source=flights", "carrier", "IDENTITY")}
    assert found["dep_delay_mean"] == {("raw/source=flights", "dep_delay", "AGGREGATION")}
    assert found["precip_mean"] == {("raw/source=weather", "precip", "AGGREGATION")}
    assert "flights" not in found, "a number of rows comes from no column"


def test_a_consumer_that_was_down_fails_no_run_and_gets_the_end_of_the_run_when_it_is_back(
    cloud, week, lineage, tmp_path
):
    assert week["outcome"] == "published"
    refused = [event for event in lineage.refused if event["job"]["name"] == "weekly_delays"]
    assert refused
    ended = end_of(lineage, "weekly_delays", LATE)
    assert ended["eventType"] == "COMPLETE"
    validated(lineage.of_run(ended["run"]["runId"]))
    [days] = ended["inputs"]
    assert days["name"] == "table/slackwater_warehouse/daily_delays"
    partitions = days["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert [part["dimensions"]["date"] for part in partitions] == list(PAST)
    assert {part["identifier"] for part in partitions} <= table_versions(cloud, "daily_delays")
    assert origins(ended) == {
        "carrier": {(days["name"], "carrier", "IDENTITY")},
        "flights": {(days["name"], "flights", "AGGREGATION")},
        "cancelled": {(days["name"], "cancelled", "AGGREGATION")},
        "days": {(days["name"], "date", "AGGREGATION")},
    }
