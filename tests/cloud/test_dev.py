"""`slackwater dev` on samples of the deployed system: stored events, and published days of another pipeline."""

from __future__ import annotations

import pytest

from tests.conftest import DATES

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY = DATES[0]
DAILY = "origin, carrier, flights, cancelled"


def tried(cloud, pipeline, day, *options):
    """Return the document of a loop, and the rows of its last step by name of column."""
    document = cloud.json_of_process("dev", pipeline, "--date", day, "--once", "--show", "1000", *options)
    last = document["steps"][-1]
    return document, [
        dict(zip((column["name"] for column in last["columns"]), row, strict=True)) for row in last["rows"]
    ]


def test_a_sample_of_the_whole_day_gives_the_published_rows(cloud, published):
    document, rows = tried(cloud, "daily_delays", DAY, "--rows", "100000")
    read = {item["name"]: item["rows"] for item in document["inputs"]}
    assert sum(read.values()) == published[DAY]["input"]["rows"]
    assert all(item["from"].endswith(f"in {cloud.endpoint}") for item in document["inputs"])
    expected = cloud.query(f"SELECT {DAILY} FROM daily_delays WHERE date = '{DAY}' ORDER BY ALL")
    assert sorted([row[name] for name in DAILY.split(", ")] for row in rows) == expected


def test_published_days_are_a_sample_of_a_table(cloud, published):
    document, rows = tried(cloud, "weekly_delays", DAY, "--rows", "100000")
    (item,) = document["inputs"]
    assert (item["rows"], item["from"]) == (published[DAY]["publication"]["rows"], "1 published day of daily_delays")
    query = f"SELECT carrier, sum(flights) FROM daily_delays WHERE date = '{DAY}' GROUP BY ALL ORDER BY ALL"
    assert sorted([row["carrier"], row["flights"]] for row in rows) == cloud.query(query)
    few, _ = tried(cloud, "weekly_delays", DAY, "--rows", "3")
    assert few["steps"][0]["rows_in"] == {"days": 3}
