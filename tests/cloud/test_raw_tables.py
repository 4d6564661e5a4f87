"""The Iceberg table of a source on the local cloud: it follows the listing, and pyiceberg, Spark and DuckDB read it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.cloud.roles import create_role

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY = "2013-03-08"
TABLE = "warehouse.slackwater_raw.visits"
DUCKDB = Path(".slackwater/peers/duckdb").resolve()
SPARK_JOB = """
import json
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
queries = [f"SELECT id, hour, _date, _hour FROM {{rows}}" for rows in ({table!r}, {view!r})]
print(json.dumps([[list(row) for row in session.sql(query).collect()] for query in queries]))
"""
DUCKDB_PROGRAM = """
import json, sys
import duckdb

metadata, endpoint, folder = sys.argv[1:]
connection = duckdb.connect(config={"extension_directory": folder})
connection.execute("LOAD httpfs; LOAD avro; LOAD iceberg")
connection.execute(
    "CREATE SECRET (TYPE s3, KEY_ID 'test', SECRET 'test', REGION 'us-east-1', URL_STYLE 'path', USE_SSL false, "
    f"ENDPOINT '{endpoint}')"
)
print(json.dumps(connection.execute(f"SELECT id, hour, _date, _hour FROM iceberg_scan('{metadata}')").fetchall()))
"""


@pytest.fixture(scope="module")
def catalog(cloud):
    keys = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    return GlueCatalog("raw", client=cloud.client("glue"), **keys, **{"s3.region": cloud.environment["AWS_REGION"]})


def rows_of(catalog, source, *columns):
    """The rows of a table, with these columns and those of the partition, in order."""
    try:
        table = catalog.load_table(f"slackwater_raw.{source}")
    except NoSuchTableError:
        return []
    columns = (*columns, "_date", "_hour")
    rows = table.scan(selected_fields=columns).to_arrow().to_pylist()
    return sorted([row[column] for column in columns] for row in rows)


def queried(cloud, source, *columns):
    """The same rows, as `slackwater query` reads them. There, a field `hour` is `_hour`."""
    return sorted(cloud.query(f"SELECT {', '.join((*columns, 'date', 'hour'))} FROM raw.{source}"))


def arrive(cloud, *messages):
    """Send messages to the queue of arrivals: this deployment has no rule that sends events of objects."""
    for message in messages:
        cloud.client("sqs").send_message(QueueUrl=cloud.outputs()["ArrivalQueueUrl"], MessageBody=json.dumps(message))


def written(cloud, source):
    """The messages that EventBridge sends of the objects of a source."""
    listed = cloud.client("s3").list_objects_v2(Bucket=cloud.outputs()["RawBucket"], Prefix=f"raw/source={source}/")
    return [{"id": item["Key"], "key": item["Key"]} for item in listed["Contents"]]


def push(cloud, *events):
    """Push events to the source `visits`."""
    token = cloud.json("token", "create", "visits", "--source", "visits")["token"]
    httpx.post(
        f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/visits/events",
        content="\n".join(map(json.dumps, events)).encode(),
        headers={"content-type": "application/x-ndjson", "authorization": f"Bearer {token}"},
        timeout=60,
    ).raise_for_status()


def until_equal(cloud, catalog):
    """Wait until the table has the rows of a query, and return them."""
    end = time.monotonic() + 90
    while (rows := rows_of(catalog, "visits", "id", "hour")) != queried(cloud, "visits", "id", "_hour"):
        assert time.monotonic() < end, rows
        time.sleep(0.5)
    return rows


@pytest.fixture(scope="module")
def followed(cloud, partner, catalog):
    """A table that has followed a push, a pull, and a changed file; its rows."""
    push(cloud, *({"id": f"p{n}", "hour": n, "at": f"{DAY}T05:0{n}:00Z"} for n in range(3)))
    arrive(cloud, *written(cloud, "visits"))
    assert len(until_equal(cloud, catalog)) == 3
    for content in ("a,7,2013-03-08T05:30:00Z\nb,8,2013-03-08T23:30:00Z\n", "c,9,2013-03-08T23:45:00Z\n"):
        partner.put(f"visits-{DAY}-1.csv", f"id,hour,at\n{content}")
        assert cloud.json("pull", "visits", "--as-of", DAY)["stored"] == 1
        arrive(
            cloud,
            *written(cloud, "visits"),
            {"id": content, "source": "visits", "date": DAY, "hours": ["05", "23"], "time": "2013-03-09T00:00:00Z"},
        )
        until_equal(cloud, catalog)
    return until_equal(cloud, catalog)


def test_the_table_follows_pushes_pulls_and_changed_files(followed):
    assert followed == [["c", 9, DAY, "23"], *([f"p{n}", n, DAY, "05"] for n in range(3))]


@pytest.mark.skipif(not DUCKDB.exists(), reason="no DuckDB with its Iceberg extension: `make peers` installs it")
def test_duckdb_reads_the_same_rows(cloud, catalog, followed):
    metadata = catalog.load_table("slackwater_raw.visits").metadata_location
    arguments = [metadata, cloud.endpoint.removeprefix("http://"), str(DUCKDB / "duckdb_ext" / "extensions")]
    program = f"import sys; sys.path.insert(0, {str(DUCKDB)!r})\n{DUCKDB_PROGRAM}"
    read = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    assert sorted(json.loads(read.stdout)) == followed


def test_the_check_of_a_pipeline_lets_the_tables_of_its_sources_follow_without_any_event(cloud, catalog, received):
    request = {"pipeline": "daily_delays", "as_of": "2013-03-11", "execution": "arn:test", "correlation_id": "t"}
    cloud.client("lambda").invoke(FunctionName="slackwater-check-days", Payload=json.dumps(request))
    window = [row for row in queried(cloud, "flights", "flight", "carrier") if "2013-03-05" <= row[2] < "2013-03-11"]
    assert window
    end = time.monotonic() + 90
    while True:
        rows = rows_of(catalog, "flights", "flight", "carrier")
        if [row for row in rows if "2013-03-05" <= row[2] < "2013-03-11"] == window:
            break
        assert time.monotonic() < end
        time.sleep(0.5)


def test_a_rebuilt_table_has_the_rows_of_a_query(cloud, catalog, followed):
    catalog.load_table("slackwater_raw.visits").delete("_hour = '05'")
    assert rows_of(catalog, "visits", "id", "hour") != followed
    assert cloud.json("source", "rebuild-table", "visits") == {"source": "visits", "objects": 2}
    assert until_equal(cloud, catalog) == followed


def test_a_role_without_the_tag_deletes_no_raw_object_whatever_its_policy_allows(cloud, followed):
    iam, sts, bucket = cloud.client("iam"), cloud.client("sts"), cloud.outputs()["RawBucket"]
    key = written(cloud, "visits")[0]["key"]
    arn = create_role(iam, "optimizer", "glue")
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "000000000000"}}
    iam.update_assume_role_policy(RoleName="optimizer", PolicyDocument=json.dumps({"Statement": [trust]}))

    def delete(key):
        keys = sts.assume_role(RoleArn=arn, RoleSessionName="optimizer")["Credentials"]
        session = {"aws_access_key_id": keys["AccessKeyId"], "aws_secret_access_key": keys["SecretAccessKey"]}
        s3 = boto3.session.Session(
            **session, aws_session_token=keys["SessionToken"], region_name=cloud.environment["AWS_REGION"]
        ).client("s3", endpoint_url=cloud.endpoint)
        s3.delete_object(Bucket=bucket, Key=key)

    with pytest.raises(ClientError, match="AccessDenied"):
        delete(key)
    cloud.client("s3").head_object(Bucket=bucket, Key=key)
    delete("landing/none")
    iam.tag_role(RoleName="optimizer", Tags=[{"Key": "slackwater-deletes-raw", "Value": "true"}])
    delete("raw/none")


def test_spark_reads_the_same_rows_and_the_documented_view_has_each_event_once(cloud, followed):
    # Last: from here on, the table has an event twice.
    push(cloud, {"id": "p0", "hour": 0, "at": f"{DAY}T05:00:00Z"})
    cloud.client("lambda").invoke(
        FunctionName="slackwater-update-raw-tables",
        Payload=json.dumps({"source": "visits", "partitions": [[DAY, "05"]]}),
    )
    page = Path("docs/receiver/stored-events.md").read_text()
    (view,) = re.findall(r"CREATE VIEW orders_events AS\n(.*?)```", page, re.DOTALL)
    view = view.replace("slackwater_raw.orders", TABLE).replace("order_id", "id").replace('"$path"', "_file")
    outputs, emr = cloud.outputs(), cloud.client("emr-serverless")
    job = SPARK_JOB.format(table=TABLE, view=f"({view})").encode()
    cloud.client("s3").put_object(Bucket=outputs["ExchangeBucket"], Key="read-raw.py", Body=job)
    job = emr.start_job_run(
        applicationId=outputs["ApplicationId"],
        clientToken="read-raw",
        name="read raw events",
        executionRoleArn=create_role(cloud.client("iam"), "read-raw", "emr-serverless"),
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"s3://{outputs['ExchangeBucket']}/read-raw.py",
                "sparkSubmitParameters": outputs["SparkSubmitParameters"],
            }
        },
    )["jobRunId"]
    end, state = time.monotonic() + 300, ""
    while state not in ("SUCCESS", "FAILED"):
        assert time.monotonic() < end
        time.sleep(1)
        state = emr.get_job_run(applicationId=outputs["ApplicationId"], jobRunId=job)["jobRun"]["state"]
    (output,) = (cloud.root / ".slackwater").rglob(f"{job}/stdout")
    assert state == "SUCCESS", output.with_name("stderr").read_text()[-3000:]
    rows, of_view = json.loads(output.read_text().splitlines()[-1])
    assert sorted(rows) == sorted([*followed, ["p0", 0, DAY, "05"]])
    assert sorted(of_view) == followed
