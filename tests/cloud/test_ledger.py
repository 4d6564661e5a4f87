"""The ledger on the deployed local cloud: its rows are the late data that DuckDB finds in the raw objects."""

from __future__ import annotations

import io
import json

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.aws.ledger_table import IcebergLedger
from tests.cloud.conftest import AS_OF, ended, start_monitor
from tests.conftest import LATE
from tests.unit.aws.test_ledger_table import ENTRY

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

ROWS = (
    "SELECT source, change, decision, count(*) AS objects, sum(rows)::BIGINT AS rows, sum(bytes)::BIGINT AS bytes "
    f"FROM ledger WHERE pipeline = 'daily_delays' AND date = '{LATE}' AND attempt = 2 GROUP BY ALL ORDER BY source"
)


def query(cloud, sql):
    return cloud.json("query", sql)["rows"]


def manifest(cloud, attempt):
    """The objects that an attempt has read, by URI."""
    runs = [run for run in cloud.json("runs", "daily_delays")["runs"] if run["date"] == LATE]
    (run,) = [run for run in runs if run["attempt"] == attempt]
    bucket, _, key = run["input"]["manifest"].removeprefix("s3://").partition("/")
    body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return {item["uri"]: item for item in json.loads(body)["objects"]}


def test_the_ledger_has_each_late_object_once_with_its_rows(cloud, monitored):
    before, after = manifest(cloud, 1), manifest(cloud, 2)
    late = []
    for uri in after.keys() - before.keys():
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        late.append((after[uri]["source"], pq.read_metadata(io.BytesIO(body)).num_rows, len(body)))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE late (source VARCHAR, rows BIGINT, bytes BIGINT)")
        connection.executemany("INSERT INTO late VALUES (?, ?, ?)", late)
        expected = connection.execute(
            "SELECT source, 'added', 'rerun', count(*), sum(rows)::BIGINT, sum(bytes)::BIGINT FROM late GROUP BY ALL "
            "ORDER BY 1"
        ).fetchall()
    assert expected
    assert [tuple(row) for row in query(cloud, ROWS)] == expected


def test_another_monitoring_adds_nothing(cloud, monitored):
    count = "SELECT count(*) FROM ledger"
    before = query(cloud, count)
    ended(cloud, start_monitor(cloud, AS_OF))
    assert query(cloud, count) == before


def test_the_deployed_maintenance_merges_the_small_files_and_changes_no_row(cloud):
    keys = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    region = {"s3.region": cloud.environment["AWS_REGION"]}
    catalog = GlueCatalog("ledger", client=cloud.client("glue"), **keys, **region)
    ledger = IcebergLedger(catalog=catalog, database="slackwater_warehouse")
    for number in range(20):
        version = ledger.read("maintained", {"2013-03-10"}).version
        entry = ENTRY._replace(pipeline="maintained", etag=str(number))
        assert ledger.write([entry], replaced=[], version=version)
    every = "SELECT * FROM ledger ORDER BY ALL"
    rows, files = query(cloud, every), len(list(catalog.load_table("slackwater_warehouse.ledger").scan().plan_files()))
    answer = cloud.client("lambda").invoke(FunctionName="slackwater-maintain-tables", Payload=b"{}")
    done = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, done
    assert done["ledger"]["files"] >= 20
    assert query(cloud, every) == rows
    left = len(list(catalog.load_table("slackwater_warehouse.ledger").scan().plan_files()))
    assert left <= files - 19
