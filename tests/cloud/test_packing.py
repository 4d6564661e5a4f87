"""Small objects are packed and deleted: no run, check or query sees a difference, and late events are found."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.runs.packing.index import ENDING, INDEX
from slackwater.runs.packing.pack_hours import HourPacker
from slackwater.sources.definition import PackConfig
from tests.cloud.conftest import Inbox
from tests.cloud.roles import create_queue
from tests.fakes_receiver import a_source

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

NOW = datetime.now(UTC)
START = NOW.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
DATE = START.date().isoformat()
RUN = ("tap_totals", "--date", DATE)


def event(number, hour, value):
    return {"id": f"t{number}", "value": value, "at": (START + timedelta(hours=hour, seconds=number)).isoformat()}


# Each event in a batch of its own, a tenth of them twice, with another value the second time.
EVENTS = [event(number, number % 3, number) for number in range(60)]
AGAIN = [event(number, number % 3, 1000) for number in range(0, 60, 10)]


@pytest.fixture(scope="module")
def push(cloud):
    token = cloud.json("token", "create", "taps", "--source", "taps")["token"]
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/taps/events"
    with httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60) as client:

        def send(one):
            assert client.post(url, json=[one]).status_code == 202

        yield send


@pytest.fixture(scope="module")
def messages(cloud):
    """Return a function that returns the subjects of the messages about the day since its last call."""
    sqs = cloud.client("sqs")
    url, arn = create_queue(sqs, "messages-of-packing")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["ChangeTopicArn"], Protocol="sqs", Endpoint=arn)
    inbox = Inbox(sqs, url)
    return lambda: [each["Subject"] for each in inbox.take(DATE) if each["Subject"].startswith("tap_totals ")]


def keys(cloud):
    bucket, prefix = cloud.outputs()["RawBucket"], f"raw/source=taps/date={DATE}/"
    listed = cloud.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [item["Key"] for item in listed["Contents"]]


def expected(events):
    """Return the rows by hour in plain Python: of events with one id, the first one counts."""
    first = {each["id"]: each for each in reversed(events)}
    taps, total = Counter[int](), Counter[int]()
    for each in first.values():
        hour = datetime.fromisoformat(each["at"]).hour
        taps[hour] += 1
        total[hour] += each["value"]
    return [[hour, taps[hour], total[hour]] for hour in sorted(taps)]


def published(cloud):
    return cloud.query("SELECT hour, taps, total FROM tap_totals ORDER BY hour")


def queried(cloud):
    sql = "SELECT CAST(hour AS INT), count(*), CAST(sum(value) AS BIGINT) FROM raw.taps GROUP BY 1 ORDER BY 1"
    return cloud.query(sql)


def test_packing_changes_nothing_but_the_number_of_objects(cloud, push, messages):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(push, EVENTS))
        list(pool.map(push, AGAIN))
    assert cloud.json("run", *RUN)["outcome"] == "published"
    assert (len(keys(cloud)), published(cloud), queried(cloud)) == (66, *[expected([*EVENTS, *AGAIN])] * 2)

    answer = json.load(cloud.client("lambda").invoke(FunctionName="slackwater-pack-objects")["Payload"])
    assert answer == {"taps": {"packed": 66, "deleted": 0, "failed": {}}}
    # Three days later; the function's clock cannot be set.
    packer = HourPacker(
        store=S3ObjectStore(cloud.client("s3")),
        files=DynamoFileCache(cloud.client("dynamodb"), cloud.outputs()["FileTable"]),
        raw_bucket=cloud.outputs()["RawBucket"],
        update_table=lambda *_: None,
        now=lambda: datetime.now(UTC) + timedelta(days=4),
    )
    source = a_source(source="taps", pack=PackConfig(max_objects=10))
    assert packer.pack(source, limit=timedelta(minutes=10)).deleted == 66
    assert Counter(key.rpartition("/")[2][-len(INDEX) :][-7:] for key in keys(cloud)) == {INDEX[-7:]: 3, ENDING: 3}

    assert cloud.json("run", *RUN)["outcome"] == "unchanged"
    (check,) = (
        day
        for day in cloud.json("monitor", "tap_totals", "--as-of", NOW.date().isoformat())["pipelines"][0]["check"][
            "days"
        ]
        if day["date"] == DATE
    )
    assert check["rule"] == "unchanged"
    assert messages() == []
    assert queried(cloud) == expected([*EVENTS, *AGAIN])


def test_the_iceberg_table_has_the_packed_objects_in_the_places_of_their_members(cloud):
    cloud.json("source", "rebuild-table", "taps")
    settings = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    catalog = GlueCatalog("raw", client=cloud.client("glue"), **settings, **{"s3.region": "us-east-1"})
    table = catalog.load_table("slackwater_raw.taps")
    files = {task.file.file_path for task in table.scan().plan_files()}
    assert files == {f"s3://{cloud.outputs()['RawBucket']}/{key}" for key in keys(cloud) if key.endswith(ENDING)}
    values = sorted(each["value"] for each in [*EVENTS, *AGAIN])
    assert sorted(table.scan(selected_fields=("value",)).to_arrow()["value"].to_pylist()) == values


def test_late_events_of_a_packed_hour_run_the_day_again(cloud, push, messages):
    """A batch that is sent again is not late data, although its object was deleted."""
    push(EVENTS[0])
    late = [event(100, 1, 7), event(3, 0, 2000)]
    for each in late:
        push(each)
    report = cloud.json("monitor", "tap_totals", "--as-of", NOW.date().isoformat())
    (day,) = (day for day in report["pipelines"][0]["days"] if day["date"] == DATE)
    assert (day["outcome"], day["attempt"]) == ("published", 2)
    (subject,) = messages()
    assert subject.startswith(f"tap_totals {DATE} changed: ")
    wanted = expected([*EVENTS, *AGAIN, *late])
    assert (published(cloud), queried(cloud)) == (wanted, wanted)
    ledger = "SELECT source, rows FROM ledger WHERE pipeline = 'tap_totals'"
    assert cloud.query(ledger) == [["taps", 1]]
