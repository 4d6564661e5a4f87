"""The local cloud is killed in the middle of a run; afterwards the day can be run again, with the right result."""

from __future__ import annotations

import os
import signal
import time
from datetime import date

import pytest

from examples.nyc_flights.feed import flights_files
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.local import cloud as local_cloud
from slackwater.runs.record import RunState
from slackwater.storage import split_uri
from tests.cloud.conftest import AS_OF, EMPTY_DAY, start_monitor
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

TWO_DAYS_LATER = "2013-05-03"


def test_a_day_is_run_again_after_the_cloud_was_killed_in_the_middle_of_it(cloud, received, tmp_path):
    running = cloud.process("run", "staged_delays", "--date", AS_OF)
    second_stage = f"staged_delays {AS_OF} delays_by_carrier"
    wait_for(lambda: any((job["name"], job["state"]) == (second_stage, "RUNNING") for job in cloud.jobs()))
    kill(cloud)
    running.communicate(timeout=300)
    assert running.returncode != 0
    start_again(cloud)
    result = cloud.json("run", "staged_delays", "--date", AS_OF)
    assert result["outcome"] == "published"
    rows = cloud.query(
        f"SELECT {', '.join(COLUMNS)} FROM staged_delays WHERE date = '{AS_OF}' ORDER BY origin, carrier"
    )
    assert_same_table(rows, daily_delays(tmp_path, AS_OF))
    states = [run["state"] for run in cloud.json("runs", "staged_delays")["runs"]]
    assert states == ["failed", "published"]
    bucket, key = split_uri(f"{cloud.outputs()['FilesPrefix']}reports/delays-{AS_OF}.csv")
    report = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert len(report.splitlines()) == 1 + len(rows)


def test_one_notification_is_sent_although_the_cloud_was_killed_between_publishing_and_notifying(
    cloud, partner, empty_day, inbox
):
    for name, content in flights_files(date.fromisoformat(EMPTY_DAY)).items():
        partner.put(name, content)
    cloud.json("pull", "flights", "--as-of", EMPTY_DAY)
    start_monitor(cloud, TWO_DAYS_LATER)
    wait_for(lambda: published(cloud, EMPTY_DAY) == 2)
    kill(cloud)
    start_again(cloud)
    assert inbox.take(EMPTY_DAY) == []
    for _ in range(2):
        cloud.json("monitor", "daily_delays", "--as-of", TWO_DAYS_LATER)
    (message,) = inbox.take(EMPTY_DAY)
    assert message["Subject"].startswith(f"daily_delays {EMPTY_DAY} changed: ")
    assert published(cloud, EMPTY_DAY) == 2


def published(cloud, day):
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])  # polled, so not by the command line
    return sum(run.state is RunState.PUBLISHED for run in table.runs("daily_delays", day))


def kill(cloud):
    running = local_cloud.status(cloud.root)
    os.kill(running.pid, signal.SIGKILL)
    wait_for(lambda: local_cloud.status(cloud.root) is None)


def start_again(cloud):
    again = local_cloud.up(cloud.root, port=int(cloud.endpoint.rpartition(":")[2]))
    assert again.endpoint == cloud.endpoint


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.2)
