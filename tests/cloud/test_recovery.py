"""A job of each stage, or the local cloud, is killed; afterwards the day can be run again, with the right result."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from examples.nyc_flights.feed import flights_files
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.local import cloud as local_cloud
from slackwater.runs.record import RunState
from slackwater.storage import split_uri
from tests.cloud.conftest import AS_OF, EMPTY_DAY, PAST, start_monitor
from tests.conftest import LATE
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

TWO_DAYS_LATER = "2013-05-03"
*PARALLEL, LAST = "checked_flights", "hourly_weather", "delays_by_carrier"
"""The stages of `staged_delays`; the first two run in parallel."""
KILLED = {PAST[0]: "checked_flights", LATE: "hourly_weather"}
"""By day: the stage whose driver is killed in each run of the day but the last one."""


def test_a_day_that_is_run_again_with_the_same_rows_changes_nothing_downstream(cloud, monitored):
    cloud.json("monitor", "weekly_delays", "--as-of", AS_OF)
    again = cloud.json("run", "daily_delays", "--date", LATE, "--force")
    assert (again["outcome"], len(again["publication"]["content"])) == ("published", 64)
    assert cloud.json("run", "weekly_delays", "--date", LATE)["outcome"] == "unchanged"


@pytest.fixture(scope="module")
def recovered(cloud, monitored):
    """The results of two days, which run at the same time and lose their drivers.

    The first day loses a second one after it has started by itself once more, and is then started by hand.
    """
    running = {day: cloud.process("run", "staged_delays", "--date", day, "--json") for day in KILLED}
    stopped = set()

    def are_stopped():
        stopped.update(day for day, stage in KILLED.items() if signal_driver(signal.SIGSTOP, day, stage))
        return stopped == set(KILLED)

    wait_for(are_stopped)
    # The driver dies when the other stage has finished.
    others = {
        (job_name(day, other), "SUCCESS") for day, stage in KILLED.items() for other in PARALLEL if other != stage
    }
    wait_for(lambda: others <= set(jobs(cloud)))
    for day, stage in KILLED.items():
        signal_driver(signal.SIGKILL, day, stage)
    first = PAST[0]
    wait_for(lambda: Counter(name for name, _ in jobs(cloud))[job_name(first, KILLED[first])] == 2)
    wait_for(lambda: signal_driver(signal.SIGKILL, first, KILLED[first]))
    running[first].communicate(timeout=300)
    assert running[first].returncode == 1
    by_hand = cloud.json_of_process("run", "staged_delays", "--date", first)
    output, errors = running[LATE].communicate(timeout=300)
    assert running[LATE].returncode == 0, errors
    return {first: by_hand, LATE: json.loads(output)}


@pytest.mark.parametrize(("day", "attempt"), [(PAST[0], 3), (LATE, 2)])
def test_a_stage_that_is_killed_runs_again_and_a_finished_one_does_not(cloud, recovered, tmp_path, day, attempt):
    assert (recovered[day]["outcome"], recovered[day]["attempt"]) == ("published", attempt)
    expected = {(job_name(day, stage), "SUCCESS"): 1 for stage in (*PARALLEL, LAST)}
    expected[job_name(day, KILLED[day]), "FAILED"] = attempt - 1
    assert Counter(job for job in jobs(cloud) if day in job[0]) == expected
    assert_same_table(published_rows(cloud, day), daily_delays(tmp_path, day))


def test_a_day_is_run_again_after_the_cloud_was_killed_in_the_middle_of_it(cloud, received, tmp_path):
    running = cloud.process("run", "staged_delays", "--date", AS_OF)
    *first, last = (job_name(AS_OF, stage) for stage in (*PARALLEL, LAST))
    wait_for(lambda: (last, "RUNNING") in jobs(cloud))
    kill(cloud)
    running.communicate(timeout=300)
    assert running.returncode != 0
    start_again(cloud)
    # The second run loses its driver while it publishes, and runs once more by itself.
    running = cloud.process("run", "staged_delays", "--date", AS_OF, "--json")
    wait_for(lambda: stores_rows(cloud, attempt=2))
    assert signal_driver(signal.SIGKILL, AS_OF, LAST)
    output, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    result = json.loads(output)
    assert (result["outcome"], result["attempt"]) == ("published", 3)
    ran = Counter(name for name, _ in jobs(cloud))
    assert [ran[name] for name in first] == [1, 1], "a finished stage runs once"
    assert ran[last] >= 2  # the killed cloud may not have stored the first of the three
    rows = published_rows(cloud, AS_OF)
    assert_same_table(rows, daily_delays(tmp_path, AS_OF))
    states = [run["state"] for run in cloud.json("runs", "staged_delays", "--date", AS_OF)["runs"]]
    assert states == ["failed", "failed", "published"]
    versions = cloud.json("refs", "staged_delays", "--date", AS_OF)["versions"]
    kept = [version for version in versions if version["attempt"] == 3 and version["type"] == "stage"]
    assert [(version["name"], "/1/" in version["uri"]) for version in kept] == [
        ("checked_flights", True),
        ("hourly_weather", True),
        ("delays_by_carrier", False),
    ]
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


def published_rows(cloud, day):
    return cloud.query(f"SELECT {', '.join(COLUMNS)} FROM staged_delays WHERE date = '{day}' ORDER BY origin, carrier")


def job_name(day, stage):
    return f"staged_delays {day} {stage}"


def jobs(cloud):
    """Return the names and the states of the jobs of the pipeline `staged_delays`."""
    return [(job["name"], job["state"]) for job in cloud.jobs() if job["name"].startswith("staged_delays ")]


def stores_rows(cloud, *, attempt):
    """Return whether an attempt of the current day has stored the rows of the last stage, which it publishes next."""
    bucket, prefix = cloud.outputs()["ExchangeBucket"], f"runs/staged_delays/{AS_OF}/"
    listed = cloud.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return any(item["Key"].endswith(f"/{attempt}/{LAST}/reference.json") for item in listed)


def signal_driver(number, day, stage):
    """Send a signal to the processes of a job of `staged_delays`; return whether there were any.

    `SIGKILL` has the effect of a lost worker.
    """
    sent = False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode()
        except OSError:  # the process has ended
            continue
        if f"--stage\0{stage}\0" in command and "staged_delays" in command and f'"{day}"' in command:
            os.kill(int(folder.name), number)
            sent = True
    return sent


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
