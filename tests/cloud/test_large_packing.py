"""A day of 86,400 objects with one event each, before and after they are packed, beside the same day in 24 objects.

`PACKED_OBJECTS` is another number of objects. Above `READ_UNPACKED` of them, the day runs only after it was packed:
before, a run of 86,400 objects took an hour.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from statistics import median

import pytest

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.local import cloud as local_cloud
from slackwater.project.project import load_project
from slackwater.runs.packing.pack_hours import HourPacker
from tests.cloud.conftest import Inbox
from tests.cloud.random_kills import DRIVERS, processes_of
from tests.cloud.raw_objects import patient_client, put_events
from tests.cloud.roles import create_queue

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(5400)]

OBJECTS = int(os.environ.get("PACKED_OBJECTS", "86400"))
READ_UNPACKED = 20_000
PAIRS = 9
"""So often both days run one after the other: the first runs start functions anew, and count ids."""
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
SMALL, LARGE = MIDNIGHT - timedelta(days=3), MIDNIGHT - timedelta(days=4)


def put_day(cloud, start, objects):
    """Store the same 86,400 events of a day in so many objects."""
    times = (start + timedelta(microseconds=number * 86_400 * 10**6 // OBJECTS) for number in range(OBJECTS))
    put_events(cloud, "taps", [(f"p{number}", number, time) for number, time in enumerate(times)], objects)


def timed(cloud, *command):
    """Run a command; return its document and the seconds that it took."""
    began = time.monotonic()
    document = cloud.json(*command)
    return document, time.monotonic() - began


def execution_seconds(cloud, execution):
    """Return the seconds of an execution, and of its state that freezes the inputs."""
    pages = cloud.client("stepfunctions").get_paginator("get_execution_history").paginate(executionArn=execution)
    events = [event for page in pages for event in page["events"]]
    entered, exited = (
        next(e["timestamp"] for e in events if e.get(f"state{kind}EventDetails", {}).get("name") == "Freeze inputs")
        for kind in ("Entered", "Exited")
    )
    ended = events[-1]["timestamp"] - events[0]["timestamp"]
    return ended.total_seconds(), (exited - entered).total_seconds()


def end_drivers(cloud):
    """End the drivers that the local cloud keeps for the next job: EMR has none when a run of the night begins."""

    def drivers():
        server = local_cloud.status(cloud.root).pid
        return [pid for pid, (folder, _) in processes_of(server).items() if DRIVERS in folder]

    for pid in drivers():
        os.kill(pid, signal.SIGKILL)
    while drivers():
        time.sleep(0.2)


def test_a_day_of_one_event_objects_is_read_like_one_of_large_objects(cloud, capsys):
    figures = defaultdict(list)

    def run(label, start):
        day = ("tap_totals", "--date", start.date().isoformat())
        document, seconds = timed(cloud, "run", *day, "--force")
        execution, freeze = execution_seconds(cloud, document["execution"])
        hours = "SELECT CAST(hour AS INT), count(*), sum(value)::BIGINT FROM raw.taps WHERE date = '{}' GROUP BY 1"
        rows, query = timed(cloud, "query", f"{hours.format(start.date())} ORDER BY 1")
        figures[label].append(
            {"run": seconds, "execution": execution, "freeze": freeze, "query": query}  # the client asks twice a second
        )
        published = f"SELECT hour, taps, total FROM tap_totals WHERE date = '{start.date()}' ORDER BY hour"
        each = OBJECTS // 24
        expected = [[hour, each, sum(range(hour * each, (hour + 1) * each))] for hour in range(24)]
        assert (cloud.query(published), rows["rows"]) == (expected, expected)

    def manifest_digest(start):
        document = cloud.json("history", "tap_totals", "--date", start.date().isoformat())
        return document["versions"][-1]["run_id"]

    sqs = cloud.client("sqs")
    queue, arn = create_queue(sqs, "messages-of-large-packing")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["ChangeTopicArn"], Protocol="sqs", Endpoint=arn)
    put_day(cloud, LARGE, 24)
    run("24 objects, first", LARGE)
    put_day(cloud, SMALL, OBJECTS)
    if OBJECTS <= READ_UNPACKED:
        run("small objects", SMALL)
        before = manifest_digest(SMALL)
    began = time.monotonic()
    function = patient_client(cloud)
    packed = 0
    while packed < OBJECTS:  # a call ends after 12 minutes, and the next one continues
        answer = json.load(function.invoke(FunctionName="slackwater-pack-objects")["Payload"])["taps"]
        assert answer["packed"] > 0
        packed += answer["packed"]
    packing = time.monotonic() - began
    for _ in range(2):
        run("packed", SMALL)
    if OBJECTS > READ_UNPACKED:
        before = manifest_digest(SMALL)
    packer = HourPacker(
        store=S3ObjectStore(cloud.client("s3")),
        files=DynamoFileCache(cloud.client("dynamodb"), cloud.outputs()["FileTable"]),
        raw_bucket=cloud.outputs()["RawBucket"],
        update_table=lambda *_: None,
        now=lambda: datetime.now(UTC) + timedelta(days=4),
    )
    assert packer.pack(load_project(cloud.project).source("taps"), limit=timedelta(hours=1)).deleted == OBJECTS
    day = SMALL.date().isoformat()
    assert cloud.json("run", "tap_totals", "--date", day)["outcome"] == "unchanged"
    report = cloud.json("monitor", "tap_totals", "--as-of", MIDNIGHT.date().isoformat())
    rules = {each["date"]: each["rule"] for each in report["pipelines"][0]["check"]["days"]}
    assert rules[day] == "unchanged"
    verified = cloud.json("refs", "tap_totals", "--date", day, "--verify")["versions"]
    runs = len(figures["packed"]) + len(figures.get("small objects", ()))
    assert [each["problems"] for each in verified if each["name"] == "input"] == [[]] * runs
    run("packed, first without members", SMALL)
    for _ in range(PAIRS):
        run("24 objects", LARGE)
        run("packed, members deleted", SMALL)
    for label, start in [
        ("24 objects, with start of the driver", LARGE),
        ("packed, members deleted, with start of the driver", SMALL),
    ] * 3:
        end_drivers(cloud)
        run(label, start)
    # The identity of a run has the digest of its inputs.
    assert manifest_digest(SMALL) == before
    assert Inbox(sqs, queue).take("tap_totals") == []
    with capsys.disabled():
        print(f"\n{OBJECTS:,} events, seconds; packing {packing:.1f}")
        for label, runs in figures.items():
            medians = {name: round(median(run[name] for run in runs), 2) for name in runs[0]}
            print(f"{label}, medians of {len(runs)}: {json.dumps(medians)}")
        for kind in ("", ", with start of the driver"):
            pairs = zip(figures[f"packed, members deleted{kind}"], figures[f"24 objects{kind}"], strict=False)
            ratios = [{name: packed[name] / large[name] for name in packed} for packed, large in pairs]
            medians = {name: round(median(ratio[name] for ratio in ratios), 2) for name in ratios[0]}
            print(f"packed to 24 objects{kind}, medians of the ratios of pairs: {json.dumps(medians)}")
