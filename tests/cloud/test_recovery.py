"""A job of each stage, or the local cloud, is killed; afterwards the day can be run again, with the right result."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import date

import pytest

from examples.nyc_flights.feed import flights_files
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.local import cloud as local_cloud
from slackwater.runs.record import RunState
from slackwater.storage import split_uri
from tests.cloud.conftest import AS_OF, EMPTY_DAY, PAST, start_monitor
from tests.cloud.staged_runs import KILLED, LAST, PARALLEL, job_name, jobs, signal_drivers, wait_for
from tests.conftest import LATE
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

TWO_DAYS_LATER = "2013-05-03"


@pytest.mark.parametrize(("day", "attempt"), [(PAST[0], 3), (LATE, 2)])
def test_a_stage_that_is_killed_runs_again_and_a_finished_one_does_not(cloud, recovered, tmp_path, day, attempt):
    assert (recovered[day]["outcome"], recovered[day]["attempt"]) == ("published", attempt)
    expected = {(job_name(day, stage), "SUCCESS"): 1 for stage in (*PARALLEL, LAST)}
    expected[job_name(day, KILLED[day]), "FAILED"] = attempt - 1
    assert Counter(job for job in jobs(cloud) if day in job[0]) == expected
    assert_same_table(published_rows(cloud, day), daily_delays(tmp_path, day))


@pytest.fixture(scope="module")
def killed(cloud, received, partner, empty_day, inbox):
    """Kill the cloud once, in the middle of two days: one runs its last stage, and one is published and not notified.

    Start it again.
    """
    for name, content in flights_files(date.fromisoformat(EMPTY_DAY)).items():
        partner.put(name, content)
    cloud.json("pull", "flights", "--as-of", EMPTY_DAY)
    running = cloud.process("run", "staged_delays", "--date", AS_OF)
    # Stopped, so that it does not end before the other day is published.
    wait_for(lambda: signal_drivers(signal.SIGSTOP, AS_OF, LAST))
    wait_for(lambda: (job_name(AS_OF, LAST), "RUNNING") in jobs(cloud))
    start_monitor(cloud, TWO_DAYS_LATER)
    wait_for(lambda: published(cloud, EMPTY_DAY) == 2)
    server = local_cloud.status(cloud.root)
    # What DynamoDB has confirmed is on disk on AWS, and here after some seconds.
    local_cloud.save(cloud.endpoint)
    os.kill(server.pid, signal.SIGKILL)
    signal_drivers(signal.SIGCONT, AS_OF, LAST)
    wait_for(lambda: local_cloud.status(cloud.root) is None)
    running.communicate(timeout=300)
    assert running.returncode != 0
    again = local_cloud.up(cloud.root, port=int(cloud.endpoint.rpartition(":")[2]))
    assert again.endpoint == cloud.endpoint


def test_a_day_is_run_again_after_the_cloud_was_killed_in_the_middle_of_it(cloud, killed, tmp_path):
    *first, last = (job_name(AS_OF, stage) for stage in (*PARALLEL, LAST))
    result = cloud.json("run", "staged_delays", "--date", AS_OF)
    assert (result["outcome"], result["attempt"]) == ("published", 2)
    ran = Counter(name for name, _ in jobs(cloud))
    assert [ran[name] for name in first] == [1, 1], "a finished stage runs once"
    assert ran[last] in {1, 2}  # the killed cloud may not have stored the first of the two
    rows = published_rows(cloud, AS_OF)
    assert_same_table(rows, daily_delays(tmp_path, AS_OF))
    states = [run["state"] for run in cloud.json("runs", "staged_delays", "--date", AS_OF)["runs"]]
    assert states == ["failed", "published"]
    versions = cloud.json("refs", "staged_delays", "--date", AS_OF)["versions"]
    kept = [version for version in versions if version["attempt"] == 2 and version["type"] == "stage"]
    assert [(version["name"], "/1/" in version["uri"]) for version in kept] == [
        ("checked_flights", True),
        ("hourly_weather", True),
        ("delays_by_carrier", False),
    ]
    bucket, key = split_uri(f"{cloud.outputs()['FilesPrefix']}reports/delays-{AS_OF}.csv")
    report = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert len(report.splitlines()) == 1 + len(rows)


def test_one_notification_is_sent_although_the_cloud_was_killed_between_publishing_and_notifying(cloud, killed, inbox):
    assert inbox.take(EMPTY_DAY) == []
    for _ in range(2):
        cloud.json("monitor", "daily_delays", "--as-of", TWO_DAYS_LATER)
    (message,) = inbox.take(EMPTY_DAY)
    assert message["Subject"].startswith(f"daily_delays {EMPTY_DAY} changed: ")
    assert published(cloud, EMPTY_DAY) == 2


def published(cloud, day):
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])  # polled, so not by the command line
    return sum(run.state is RunState.PUBLISHED for run in table.runs("daily_delays", day))


def published_rows(cloud, day):
    return cloud.query(f"SELECT {', '.join(COLUMNS)} FROM staged_delays WHERE date = '{day}' ORDER BY origin, carrier")
