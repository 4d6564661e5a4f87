"""Hours of a pipeline are run, run again, compared and rolled back, each without any effect on the others."""

from __future__ import annotations

import json

import pytest

from tests.cloud.conftest import ended, start
from tests.cloud.roles import create_queue
from tests.conftest import DATES
from tests.independent import database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

DATE = DATES[0]
FIRST, LAST = f"{DATE}T19", f"{DATE}T20"
HOUR = ("hourly_delays", "--date", LAST)


def expected(folder, *hours):
    """Return the rows of hours by DuckDB, from the package's data."""
    cursor = database(folder).execute(
        """
        SELECT CAST(CAST(time_hour AS DATE) AS VARCHAR), hour(time_hour), carrier, count(*), count_if(dep_time IS NULL),
            round(avg(dep_delay), 6)
        FROM flights WHERE strftime(time_hour, '%Y-%m-%dT%H') IN (SELECT unnest(?))
        GROUP BY ALL ORDER BY ALL
        """,
        [list(hours)],
    )
    return [list(row) for row in cursor.fetchall()]


def rows(cloud):
    table = "CAST(date AS VARCHAR), hour, carrier, flights, cancelled, round(dep_delay_mean, 6)"
    return [list(row) for row in cloud.query(f"SELECT {table} FROM hourly_delays ORDER BY ALL")]


def test_an_hour_is_published_again_without_the_others(cloud, received, tmp_path):
    backfill = cloud.json("run", "hourly_delays", "--from", FIRST, "--to", LAST, "--parallel", "2")
    assert [(day["date"], day["outcome"]) for day in backfill["days"]] == [(FIRST, "published"), (LAST, "published")]
    wanted = expected(tmp_path, FIRST, LAST)
    assert {row[1] for row in wanted} == {19, 20}
    assert rows(cloud) == wanted

    assert cloud.json("run", *HOUR)["outcome"] == "unchanged"
    again = cloud.json("run", *HOUR, "--force")
    assert (again["attempt"], again["publication"]["replaced"]) == (2, len(expected(tmp_path, LAST)))
    assert rows(cloud) == wanted
    compared = cloud.json("diff", *HOUR)["comparison"]
    assert (compared["before"]["attempt"], compared["after"]["attempt"]) == (1, 2)
    assert [compared["rows"][change] for change in ("added", "removed", "changed")] == [0, 0, 0]

    assert cloud.json("rollback", *HOUR, "--to", "1", "--reason", "wrong files")["attempt"] == 3
    assert [day["date"] for day in cloud.json("late", "hourly_delays")["days"]] == [LAST]
    refused = cloud.json("run", *HOUR, code=1)["error"]["message"]
    assert f"slackwater late release hourly_delays --date {LAST}" in refused
    assert cloud.json("why", *HOUR)["decision"]["rule"] == "rolled_back"
    again = cloud.json("run", "hourly_delays", "--from", FIRST, "--to", LAST)
    assert (again["days"], again["before"]["published"], again["before"]["held"]) == ([], 1, 1)
    [verdict] = cloud.json("verdict", "hourly_delays", "--hour", FIRST, "fail", "--reason", "bots")["verdicts"]
    assert (verdict["date"], verdict["version"]) == (FIRST, 1)
    assert [version["status"] for version in cloud.json("history", *HOUR)["versions"]] == [
        "readable", "readable", "published",
    ]  # fmt: skip
    assert rows(cloud) == wanted
    day = cloud.json("runs", "hourly_delays", "--date", DATE)["runs"]
    assert [(run["date"], run["attempt"]) for run in day] == [(FIRST, 1), *((LAST, number) for number in range(1, 4))]


def test_a_late_object_of_an_hour_runs_this_hour_again_and_people_get_one_message(cloud, tmp_path):
    sqs, s3, bucket = cloud.client("sqs"), cloud.client("s3"), cloud.outputs()["RawBucket"]
    url, arn = create_queue(sqs, "hours")
    topic = cloud.client("sns").subscribe(
        TopicArn=cloud.outputs()["ChangeTopicArn"], Protocol="sqs", Endpoint=arn, ReturnSubscriptionArn=True
    )["SubscriptionArn"]
    prefix = f"raw/source=flights/date={DATE}/hour=19/"
    (stored, *_) = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    late = f"{prefix}late-{stored['Key'].removeprefix(prefix)}"
    s3.copy_object(Bucket=bucket, Key=late, CopySource={"Bucket": bucket, "Key": stored["Key"]})
    try:
        dry = cloud.json("monitor", "hourly_delays", "--as-of", LAST, "--dry-run")["pipelines"][0]["check"]
        assert {day["date"]: day["rule"] for day in dry["days"] if day["attempt"]} == {
            FIRST: "grown", LAST: "current",
        }  # fmt: skip
        # As `check_arrivals` starts it: without the whole window, nothing else changes.
        payload = {"pipeline": "hourly_delays", "as_of": LAST, "days": [FIRST]}
        output = ended(cloud, start(cloud, cloud.outputs()["MonitorMachineArn"], payload))
    finally:
        s3.delete_object(Bucket=bucket, Key=late)
        cloud.client("sns").unsubscribe(SubscriptionArn=topic)
    (hour,) = output["days"]
    assert (hour["date"], hour["outcome"], hour["attempt"], hour["notified"]) == (FIRST, "published", 2, True)
    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    document = json.loads(json.loads(message["Body"])["Message"])
    assert (document["date"], document["timezone"]) == (DATE, "UTC")
    assert [(each["date"], each["attempt_before"], each["attempt_after"]) for each in document["hours"]] == [
        (FIRST, 1, 2)
    ]
    twice = {tuple(row[:3]): row[3] for row in rows(cloud) if row[1] == 19}
    assert twice == {tuple(row[:3]): 2 * row[3] for row in expected(tmp_path, FIRST)}
    ledger = "SELECT CAST(date AS VARCHAR), hour, rule, attempt, notified FROM ledger WHERE pipeline = 'hourly_delays'"
    assert cloud.query(ledger) == [[DATE, 19, "grown", 2, True]]
