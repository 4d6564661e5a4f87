"""Hours of a pipeline are run, run again, compared and rolled back, each without any effect on the others."""

from __future__ import annotations

import pytest

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

    refused = cloud.json("monitor", "hourly_delays", code=2)["error"]["message"]
    assert "no check looks at hours for late data yet" in refused
