"""Late data passes through a chain of pipelines: the week that contains a late day is run again as well."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.cloud.conftest import AS_OF
from tests.conftest import DATES, LATE
from tests.independent import daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

COLUMNS = "carrier, flights, cancelled, days"


def weekly_delays(folder, days):
    """Return the rows of the week by carrier, from the partner's files."""
    total = defaultdict(lambda: [0, 0, 0])
    for day in days:
        carriers = set()
        for _, _, carrier, flights, cancelled, *_ in daily_delays(folder, day):
            total[carrier][0] += flights
            total[carrier][1] += cancelled
            carriers.add(carrier)
        for carrier in carriers:
            total[carrier][2] += 1
    return [[carrier, *values] for carrier, values in sorted(total.items())]


def test_a_change_of_a_day_runs_the_week_again_in_the_same_pass(cloud, week, monitored, inbox, tmp_path):
    assert week["input"] == {"files": 2, "rows": week["input"]["rows"], "bytes": 0}
    jobs = {job["id"] for job in cloud.jobs()}
    pipelines = cloud.json("monitor", "daily_delays", "weekly_delays", "--as-of", AS_OF)["pipelines"]
    daily, weekly = (pipeline["check"] for pipeline in pipelines)
    assert {day["decision"] for day in daily["days"]} == {"ignore"}, "the late day was run again before"
    (late,) = [day for day in weekly["days"] if day["decision"] == "rerun"] or pytest.fail(f"{weekly}")
    (change,) = [change for source in late["sources"] for change in source["changes"]]
    assert (late["date"], change["file"], change["change"]) == (LATE, f"daily_delays {LATE}", "changed")
    names = [job["name"] for job in cloud.jobs() if job["id"] not in jobs]
    assert [name.split()[:2] for name in names] == [["weekly_delays", LATE]] * 2, "a run and a comparison"
    rows = cloud.query(f"SELECT {COLUMNS} FROM weekly_delays WHERE date = '{LATE}' ORDER BY carrier")
    assert rows == weekly_delays(tmp_path, [day for day in DATES if day <= LATE])
    (message,) = inbox.take(LATE)
    assert message["Subject"].startswith(f"weekly_delays {LATE} changed: ")
    ids = {team: [item["MessageId"] for item in queue.take(LATE)] for team, queue in monitored.teams.items()}
    assert ids == {"operations": [], "finance": [message["MessageId"]]}
    [changed] = json.loads(message["Message"])["inputs"]
    assert [(file["file"], file["change"]) for file in changed["files"]] == [(f"daily_delays {LATE}", "changed")]
    assert changed["late_rows"] == changed["files"][0]["rows_after"] > 0


def test_lineage_names_the_objects_of_a_week_and_who_has_read_a_day(cloud, monitored):
    up = cloud.json("lineage", "weekly_delays", "--date", LATE, "--up")["up"]
    table, *days = up
    assert (table["pipeline"], table["is_newest"], table["sources"]) == ("weekly_delays", True, [])
    rows = cloud.query(f"SELECT count(*) FROM weekly_delays WHERE date = '{LATE}'")
    assert [[table["rows"]]] == rows
    assert sorted(day["date"] for day in days) == sorted(read["date"] for read in table["days"])
    s3, raw = cloud.client("s3"), cloud.outputs()["RawBucket"]
    for day in days:
        bucket, _, key = day["manifest"].removeprefix("s3://").partition("/")
        stored = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())["objects"]
        inputs = [item for source in day["sources"] for item in source["inputs"]]
        assert {item["uri"] for item in inputs} == {item["uri"] for item in stored}
        assert {source["name"] for source in day["sources"]} == {"flights", "weather"}
        for item in inputs[:3]:
            found = s3.head_object(Bucket=raw, Key=item["uri"].removeprefix(f"s3://{raw}/"))
            assert found["ContentLength"] == item["bytes"]
    [reader] = cloud.json("lineage", "daily_delays", "--date", LATE, "--down")["down"]
    read = next(item for item in table["days"] if item["date"] == LATE)
    assert (reader["pipeline"], reader["date"]) == ("weekly_delays", LATE)
    assert (reader["version"], reader["read"]["version"]) == (table["version"], read["version"])


def test_a_selection_of_a_chain_runs_no_day_twice(cloud, monitored):
    select = ("run", "--select", "daily_delays+", "--date", LATE)
    cloud.json(*select)  # the week, if no other test has run it with the late day
    jobs = len(cloud.jobs())
    selected = cloud.json(*select)
    assert selected["pipelines"] == ["daily_delays", "weekly_delays"]
    assert [(run["pipeline"], run["outcome"]) for run in selected["runs"]] == [
        ("daily_delays", "unchanged"),
        ("weekly_delays", "unchanged"),
    ]
    assert len(cloud.jobs()) == jobs
