"""A pipeline reads an Iceberg table that pyiceberg writes, as another system would: another database and bucket."""

from __future__ import annotations

import json
import time

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY, AS_OF = "2013-03-08", "2013-03-09"
RUN = ("run", "carrier_rates", "--date", DAY)
FIRST = pd.DataFrame({"carrier": ["AA", "B6", "AA"], "rate": [1.5, 2.0, 0.25]})
SECOND = pd.DataFrame({"carrier": ["DL"], "rate": [4.0]})


@pytest.fixture(scope="module")
def catalog(cloud):
    cloud.client("s3").create_bucket(Bucket="finance-lake")
    cloud.client("glue").create_database(DatabaseInput={"Name": "finance"})
    keys = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    return GlueCatalog("finance", client=cloud.client("glue"), **keys, **{"s3.region": cloud.environment["AWS_REGION"]})


def compact(table):
    """Commit a snapshot of the same rows, as a compaction does."""
    table.refresh()
    current = table.current_snapshot()
    compacted = current.model_copy(
        update={
            "snapshot_id": current.snapshot_id - 1,
            "parent_snapshot_id": current.snapshot_id,
            "sequence_number": current.sequence_number + 1,
            "timestamp_ms": round(time.time() * 1000),
            "summary": Summary(Operation.REPLACE, **current.summary.additional_properties),
        }
    )
    branch = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=compacted.snapshot_id)
    with table.transaction() as transaction:
        transaction._apply((AddSnapshotUpdate(snapshot=compacted), branch))


def check(cloud):
    """Check the day, without running it again; return its decision."""
    request = {"pipeline": "carrier_rates", "as_of": AS_OF, "execution": "arn:test:foreign", "correlation_id": "t"}
    response = cloud.client("lambda").invoke(FunctionName="slackwater-check-days", Payload=json.dumps(request))
    report = read_json(cloud, json.loads(response["Payload"].read())["report"])
    (decision,) = [day for day in report["days"] if day["date"] == DAY]
    return decision


def test_a_table_of_another_system_is_read_and_its_changes_make_the_day_late(cloud, catalog):
    missing = cloud.slackwater(*RUN, code=1)
    assert "tables.rates: the Glue catalog of this account and region has no table finance.rates" in missing.err

    table = catalog.create_table("finance.rates", pa.Schema.from_pandas(FIRST), location="s3://finance-lake/rates")
    table.append(pa.Table.from_pandas(FIRST))
    frozen = table.current_snapshot()
    denial = {"Effect": "Deny", "Action": "glue:GetTable", "Resource": "*"}
    (role,) = [one["RoleName"] for one in roles(cloud) if "freezeinputs" in one["RoleName"]]
    policy = {"RoleName": role, "PolicyName": "deny"}
    cloud.client("iam").put_role_policy(**policy, PolicyDocument=json.dumps({"Statement": [denial]}))
    try:
        refused = cloud.slackwater(*RUN, code=1)
    finally:
        cloud.client("iam").delete_role_policy(**policy)
    assert "tables.rates: finance.rates may not be read" in refused.err
    assert "run slackwater deploy" in refused.err

    jobs = len(cloud.jobs())
    run = cloud.json(*RUN)
    size = int(frozen.summary["total-files-size"])
    assert (run["outcome"], run["input"]) == ("published", {"files": 1, "rows": len(FIRST), "bytes": size})
    expected = FIRST.groupby("carrier").agg(rate=("rate", "sum"), entries=("rate", "size")).reset_index()
    rows = cloud.query(f"SELECT carrier, rate, entries FROM carrier_rates WHERE date = '{DAY}' ORDER BY carrier")
    assert rows == [[one.carrier, 2 * one.rate, one.entries] for one in expected.itertuples()]
    (version, *_) = cloud.json("refs", "carrier_rates", "--date", DAY)["versions"]
    manifest = read_json(cloud, version["uri"])
    (item,) = manifest["objects"]
    assert (item["uri"], item["etag"], item["rows"]) == ("warehouse.finance.rates", str(frozen.snapshot_id), 3)
    assert pd.Timestamp(item["arrived"]).timestamp() == frozen.timestamp_ms / 1000

    assert check(cloud)["rule"] == "unchanged"
    compact(table)
    assert table.refresh().current_snapshot().snapshot_id != frozen.snapshot_id
    assert check(cloud)["rule"] == "unchanged"
    assert cloud.json(*RUN)["outcome"] == "unchanged"
    table.append(pa.Table.from_pandas(SECOND))
    late = check(cloud)
    assert (late["decision"], late["rule"]) == ("rerun", "grown")
    ((change,),) = [source["changes"] for source in late["sources"]]
    assert (change["file"], change["change"]) == ("finance.rates", "changed")
    assert (change["before"]["rows"], change["now"]["rows"]) == (3, 4)
    # The other tests of this cloud find the table as it was read.
    table.manage_snapshots().set_current_snapshot(snapshot_id=frozen.snapshot_id).commit()
    assert check(cloud)["rule"] == "unchanged"
    assert len(cloud.jobs()) == jobs + 1


def roles(cloud):
    pages = cloud.client("iam").get_paginator("list_roles").paginate()
    return [role for page in pages for role in page["Roles"]]


def read_json(cloud, uri):
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return json.loads(cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
