"""Each write of the function that packs small objects is the last one of a process, once before it and once after it.

Meanwhile late events come, and a pulled file changes. With `PACKED_OBJECTS`, the other hours of the day get so many
objects with one event each, one hour after the other.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count

import httpx
import pytest

from slackwater.runs.packing.index import ENDING, INDEX
from tests.cloud.deaths import deaths
from tests.cloud.raw_objects import patient_client, put_events

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(5400)]

SOURCE, PIPELINE, FUNCTION = "drops", "drop_totals", "slackwater-pack-objects"
START = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
DATE = START.date().isoformat()
HOURS, OBJECTS = range(21, 24), 5
"""The hours that the partner sends, and from how many objects on they are packed."""
WRITES = 2 * len(HOURS) + 1
"""A packed object and an index for each hour, and a message."""
LARGE = int(os.environ.get("PACKED_OBJECTS", "0")) // HOURS.start
OTHERS = range(HOURS.start if LARGE else 0)
"""The hours before, which are packed before them, and how many objects each has."""


def define(cloud, partner):
    fields = {"id": {"type": "string", "required": True}, "value": {"type": "int64", "required": True}}
    source = {
        "source": SOURCE,
        "timestamp": {"field": "at"},
        "event_id": "id",
        "fields": {**fields, "at": "timestamp"},
        "push": {},
        "pull": {"url": f"{partner.url}/", "files": f"{SOURCE}-{{date}}.csv", "lookback_days": 3},
        "pack": {"max_objects": OBJECTS},
    }
    query = f"SELECT hour(at) AS hour, count(*) AS drops, sum(value) AS total FROM {SOURCE} GROUP BY 1"
    pipeline = {
        "pipeline": PIPELINE,
        "timezone": "UTC",
        "sources": [SOURCE],
        "steps": {"totals": {"step": "sql", "depends_on": [SOURCE], "with": {"query": query}}},
        "publish": {"step": "totals", "key": ["date", "hour"]},
        "late": {"cool_down_hours": 0},
    }
    (cloud.project / "sources" / f"{SOURCE}.yaml").write_text(json.dumps(source))
    (cloud.project / "pipelines" / f"{PIPELINE}.yaml").write_text(json.dumps(pipeline))
    cloud.slackwater("deploy")


class Sent:
    """What the partner has sent: events in batches of one, and a file that it replaces."""

    def __init__(self, cloud, partner, client):
        self.cloud, self.partner, self.client, self.numbers = cloud, partner, client, count(1)
        token = cloud.json("token", "create", SOURCE, "--source", SOURCE)["token"]
        self.headers = {"authorization": f"Bearer {token}"}
        self.url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/{SOURCE}/events"
        self.pushed, self.file = [], []

    def event(self, hour):
        number = next(self.numbers)
        time = START + timedelta(hours=hour, milliseconds=number)
        return {"id": f"d{number}", "value": number, "at": time.isoformat()}

    def push(self):
        """Push more events of each hour than its objects may be, one of them twice."""
        events = [self.event(hour) for hour in HOURS for _ in range(OBJECTS + 1)]
        with ThreadPoolExecutor(4) as pool:
            for status in pool.map(self._post, [*events, events[0]]):
                assert status == 202
        self.pushed += events

    def put(self, hour):
        """Store the objects of another hour."""
        events = [self.event(hour) for _ in range(LARGE)]
        stored = [(event["id"], event["value"], datetime.fromisoformat(event["at"])) for event in events]
        put_events(self.cloud, SOURCE, stored, LARGE)
        self.pushed += events

    def _post(self, event):
        for _ in range(20):
            response = self.client.post(self.url, json=[event], headers=self.headers)
            if response.status_code < 500:  # otherwise its process has died
                break
        return response.status_code

    def replace_file(self):
        self.file = [self.event(hour) for hour in HOURS]
        lines = [f"{event['id']},{event['value']},{event['at']}\n" for event in self.file]
        self.partner.put(f"{SOURCE}-{DATE}.csv", f"id,value,at\n{''.join(lines)}".encode())
        assert self.cloud.json("pull", SOURCE)["stored"] == 1

    def rows(self):
        """Return the rows by hour, in plain Python."""
        events, total = Counter[int](), Counter[int]()
        for event in [*self.pushed, *self.file]:
            hour = datetime.fromisoformat(event["at"]).hour
            events[hour] += 1
            total[hour] += event["value"]
        return [[hour, events[hour], total[hour]] for hour in sorted(events)]


@pytest.fixture
def sent(cloud, partner):
    define(cloud, partner)
    with httpx.Client(timeout=60) as client:
        yield Sent(cloud, partner, client)


def test_no_event_is_lost_or_doubled_when_the_process_that_packs_dies_at_any_write(cloud, sent, tmp_path, capsys):
    run, hours = (PIPELINE, "--date", DATE), len(HOURS) + len(OTHERS)
    functions, prefix = patient_client(cloud), f"raw/source={SOURCE}/date={DATE}/"

    def pack():
        """Return whether the process has lived."""
        answer = functions.invoke(FunctionName=FUNCTION)
        answer["Payload"].read()
        return "FunctionError" not in answer

    def keys():
        listed = cloud.client("s3").get_paginator("list_objects_v2")
        pages = listed.paginate(Bucket=cloud.outputs()["RawBucket"], Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def published():
        return cloud.query(f"SELECT hour, drops, total FROM {PIPELINE} WHERE date = '{DATE}' ORDER BY hour")

    def queried():
        sql = f"SELECT CAST(hour AS INT), count(*), sum(value)::BIGINT FROM raw.{SOURCE} WHERE date = '{DATE}'"
        return cloud.query(f"{sql} GROUP BY 1 ORDER BY 1")

    sent.push()
    sent.replace_file()
    assert cloud.json("run", *run)["outcome"] == "published"
    assert published() == sent.rows()
    with deaths(cloud, tmp_path) as died:
        # A file whose process has died is fetched again when its lease has ended, which takes minutes.
        died.spare("list-files", "fetch-file")
        for number in range(6 * WRITES):
            sent.push()
            if number % 4 == 0:
                sent.replace_file()
            if number < len(OTHERS):
                sent.put(OTHERS[number])
            while not pack():
                assert queried() == sent.rows()
            if number >= len(OTHERS) and died.by_function()[FUNCTION] >= 2 * WRITES:
                break
        by_function = died.by_function()
    assert by_function[FUNCTION] >= 2 * WRITES
    assert sum(key.endswith(INDEX) for key in keys()) == hours
    # Packed objects without an index are left of processes that have died.
    assert sum(key.endswith(ENDING) for key in keys()) > hours
    assert queried() == sent.rows()
    # Late events and the changed file run the day again; what was packed does not.
    assert cloud.json("run", *run)["outcome"] == "published"
    assert published() == sent.rows()
    sent.push()
    assert cloud.json("run", *run)["outcome"] == "published"
    assert pack()
    assert cloud.json("run", *run)["outcome"] == "unchanged"
    assert (published(), queried()) == (sent.rows(), sent.rows())
    with capsys.disabled():
        print(f"\n{len(sent.pushed):,} objects in {hours} hours; processes killed: {dict(by_function)}")
