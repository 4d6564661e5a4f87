"""A day is rolled back to its first version, waits until it is released, and its versions stay readable."""

from __future__ import annotations

import pytest

from tests.cloud.conftest import AS_OF
from tests.cloud.test_day_run import TABLE
from tests.cloud.test_monitoring import FIRST, FIRST_WEATHER
from tests.conftest import LATE
from tests.independent import assert_same_table, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY = ("daily_delays", "--date", LATE)


def history(cloud):
    return cloud.json("history", *DAY)["versions"]


def on_hold(cloud):
    """The rule of the day's hold. Other tests of the deployment leave other days on hold."""
    return [day["rule"] for day in cloud.json("late", "daily_delays")["days"] if day["date"] == LATE]


def rule_of(monitoring):
    (pipeline,) = monitoring["pipelines"]
    return {day["date"]: day["rule"] for day in pipeline["check"]["days"]}[LATE]


def test_a_rollback_is_kept_until_the_day_is_released(cloud, monitored, inbox, tmp_path):
    folder = tmp_path
    before = daily_delays(folder, LATE, where=FIRST, weather=FIRST_WEATHER)
    query = TABLE.format(date=LATE)
    versions = history(cloud)
    assert [version["reasons"] for version in versions] == [["first"], ["late_data"]]
    first, second = (version["version"] for version in versions)
    assert_same_table(cloud.json("query", query, "--date", LATE, "--version", str(first))["rows"], before)

    result = cloud.json("rollback", *DAY, "--to", str(first), "--reason", "wrong files")
    assert_same_table(cloud.query(query), before)
    assert result["run_id"] == versions[0]["run_id"]
    assert [version["status"] for version in history(cloud)] == ["readable", "readable", "published"]

    # People learn that the rows have changed, and the check does not run the day again.
    assert rule_of(cloud.json("monitor", "daily_delays", "--as-of", AS_OF)) == "rolled_back"
    assert len(inbox.take(LATE)) == 1
    assert "late release daily_delays" in cloud.json("run", *DAY, code=1)["error"]["message"]
    assert (
        "is the published one" in cloud.json("rollback", *DAY, "--to", "3", "--reason", "x", code=2)["error"]["message"]
    )
    assert on_hold(cloud) == ["rolled_back"]

    cloud.json("late", "release", *DAY, "--reason", "the files were right")
    assert_same_table(cloud.query(query), daily_delays(folder, LATE))
    assert_same_table(cloud.json("query", query, "--date", LATE, "--version", str(first))["rows"], before)
    assert on_hold(cloud) == []
    assert history(cloud)[-1]["run_id"] == versions[1]["run_id"]
    assert second == versions[1]["version"]


def test_a_day_that_is_run_again_with_the_same_rows_changes_nothing_downstream(cloud, monitored):
    cloud.json("run", "weekly_delays", "--date", LATE)  # with the version that the rollback's release has published
    again = cloud.json("run", "daily_delays", "--date", LATE, "--force")
    assert (again["outcome"], len(again["publication"]["content"])) == ("published", 64)
    assert cloud.json("run", "weekly_delays", "--date", LATE)["outcome"] == "unchanged"
