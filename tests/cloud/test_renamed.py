"""A pipeline is renamed while it has versions, a comparison and a day on hold, and gets its name back."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.runs.record import Hold
from tests.conftest import LATE
from tests.fakes_cli import BEGIN

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

OLD, NEW, READER = "daily_delays", "delays_of_days", "weekly_delays"
HELD = "2013-06-01"
"""A day without data, which the tests of backfills have published before in a run of all tests."""


@contextmanager
def renamed(cloud):
    """Rename the pipeline in the files, with the table in the file of the pipeline that reads it."""
    folder = cloud.project / "pipelines"
    old, new, reader = (folder / f"{name}.yaml" for name in (OLD, NEW, READER))
    before = {path: path.read_text() for path in (old, reader)}
    new.write_text(f"renamed_from: {OLD}\n" + before[old].replace(f"pipeline: {OLD}", f"pipeline: {NEW}"))
    old.unlink()
    reader.write_text(before[reader].replace(f"table: {OLD}", f"table: {NEW}"))
    try:
        yield
    finally:
        new.unlink()
        for path, text in before.items():
            path.write_text(text)


def test_a_renamed_pipeline_keeps_its_table_history_and_holds(cloud, monitored):
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])
    cloud.json("run", "--select", f"{OLD}+", "--date", LATE)  # the week that reads the late day, if no test has run it
    cloud.json("run", OLD, "--date", HELD)
    rows = cloud.query(f"FROM {OLD} ORDER BY ALL")
    versions = cloud.json("history", OLD, "--date", LATE)["versions"]
    day = table.day(OLD, HELD)
    table.save(day.model_copy(update={"hold": Hold(rule="shrunk", reason="it is held", since=BEGIN)}))
    try:
        with renamed(cloud):
            (change,) = cloud.json("plan")["changes"]
            assert (change["change"], change["name"], change["renamed_from"]) == ("renamed", NEW, OLD)
            # It deploys the rename first, and both days have the same inputs and definitions as before.
            selected = cloud.json("run", "--select", f"{NEW}+", "--date", LATE)
            assert [(run["pipeline"], run["outcome"]) for run in selected["runs"]] == [
                (NEW, "unchanged"),
                (READER, "unchanged"),
            ]
            assert cloud.json("plan")["changes"] == []
            assert cloud.json("history", NEW, "--date", LATE)["versions"] == versions
            assert [(day["pipeline"], day["date"]) for day in cloud.json("late", NEW)["days"]] == [(NEW, HELD)]
            assert {run["pipeline"] for run in cloud.json("runs", NEW)["runs"]} == {NEW}
            assert cloud.query(f"FROM {NEW} ORDER BY ALL") == rows
            assert cloud.json("diff", NEW, "--date", LATE)["comparison"]["rows"]
            again = cloud.json("run", NEW, "--date", HELD, "--force")
            assert (again["attempt"], again["publication"]["table"].rpartition(".")[2]) == (day.attempts + 1, OLD)
            published = cloud.json("history", NEW, "--date", HELD)
            assert [item["version"] for item in published["versions"]][-2:] == [day.attempts, day.attempts + 1]
            assert published["hold"] is None
    finally:
        cloud.json("run", OLD, "--date", LATE)  # deploys the former name
    assert cloud.json("plan")["changes"] == []
