"""Late data on the deployed local cloud: the day is run again once, compared exactly, and notified once."""

from __future__ import annotations

import html
import json
from pathlib import Path

import jsonschema
import pytest

from tests.cloud.conftest import AS_OF, PAST
from tests.conftest import LATE
from tests.independent import daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
FIRST = "f.hour NOT BETWEEN 4 AND 7 AND f.hour NOT BETWEEN 20 AND 23"
"""The flights of the files that are not late."""
FIRST_WEATHER = "w.time_hour <> TIMESTAMPTZ '2013-03-10 20:00:00+00'"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """The late day computed from the CSVs, without and with the late data: rows by origin and carrier."""
    folder = tmp_path_factory.mktemp("independent")
    before = daily_delays(folder, LATE, where=FIRST, weather=FIRST_WEATHER)
    return tuple({row[1:3]: row[3:] for row in rows} for rows in (before, daily_delays(folder, LATE)))


@pytest.fixture(scope="module")
def comparison(cloud, monitored):
    return cloud.json("diff", "daily_delays", "--date", LATE)["comparison"]


def test_two_concurrent_monitor_runs_rerun_the_late_day_once_and_send_one_notification(cloud, monitored):
    days = [day for output in monitored.outputs for day in output["days"]]
    assert {day["date"] for day in days} == {LATE}
    assert [day["notified"] for day in days].count(True) == 1
    assert [name for name in monitored.jobs if "compare" not in name] == [f"daily_delays {LATE} delays_by_carrier"]
    runs = [run for run in cloud.json("runs", "daily_delays")["runs"] if run["date"] == LATE]
    assert [run["state"] for run in runs] == ["published", "published"]
    (message,) = monitored.messages
    assert len(message["Subject"]) <= 100
    assert message["Subject"].startswith(f"daily_delays {LATE} changed: ")


def test_the_queue_of_a_team_gets_the_messages_of_its_own_tables_only(monitored):
    (message,) = monitored.messages
    ids = {team: [item["MessageId"] for item in messages] for team, messages in monitored.filtered.items()}
    assert ids == {"operations": [message["MessageId"]], "finance": []}


def test_the_message_names_the_late_data_and_its_effect(cloud, monitored, versions):
    before, after = versions
    (message,) = monitored.messages
    document = json.loads(message["Message"])
    contract = json.loads((ROOT / "docs" / "contracts" / "change.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(contract).validate(document)
    assert {name: item["Value"] for name, item in message["MessageAttributes"].items()} == {
        "pipeline": "daily_delays", "date": LATE, "severity": "warning", "team": "operations",
    }  # fmt: skip
    assert document["causes"] == ["late_data"]
    bucket, _, key = document["report"].removeprefix("s3://").partition("/")
    body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    body = html.unescape(body)
    assert f"{sum(row[0] for row in before.values())} -> {sum(row[0] for row in after.values())}" in body
    assert f"flights-{LATE}-04.csv" in body
    assert f"slackwater diff daily_delays --date {LATE}" in body


def test_monitoring_again_finds_no_late_day_and_starts_no_job(cloud, monitored, inbox):
    jobs = len(cloud.jobs())
    (again,) = cloud.json("monitor", "daily_delays", "--as-of", AS_OF)["pipelines"]
    decisions = {day["date"]: day["rule"] for day in again["check"]["days"]}
    assert {decisions[day] for day in PAST} == {"unchanged"}
    assert decisions[AS_OF] == "current"
    assert (again["days"], len(cloud.jobs()), inbox.take(LATE)) == ([], jobs, [])


def test_a_stored_comparison_is_not_computed_again(cloud, comparison):
    jobs = len(cloud.jobs())
    again = cloud.json("diff", "daily_delays", "--date", LATE)["comparison"]
    # Only the costs may have become known since.
    costs = {"comparison_usd": again["comparison_usd"], "after": comparison["after"] | {"cost": again["after"]["cost"]}}
    assert again == comparison | costs
    assert len(cloud.jobs()) == jobs
