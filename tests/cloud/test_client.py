"""The recipes of docs/client.md, and the correlation id of a run in everything that it leaves."""

from __future__ import annotations

import os
import re
import shutil

import pyarrow.compute as pc
import pytest

from tests.cloud.conftest import PAST
from tests.conftest import ROOT

pytestmark = pytest.mark.cloud

DAY = PAST[0]
"""A day without late data: one run, and one job."""


@pytest.fixture
def in_project(cloud, project, weather, monkeypatch):
    """The process in the project's folder, with the environment of the cloud."""
    shutil.copy(weather, project / "weather.ndjson")
    for name in set(os.environ) - set(cloud.environment):
        monkeypatch.delenv(name)
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    yield
    (project / "weather.ndjson").unlink()


def test_the_recipes_of_the_documentation_work(cloud, monitored, received, in_project):
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    recipes = re.findall(r"^## (\d+)\. .*?\n```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert [int(number) for number, _ in recipes] == list(range(1, 12))
    names: dict = {}
    for number, code in recipes:
        exec(compile(code, f"docs/client.md, recipe {number}", "exec"), names)  # noqa: S102
    result, rows = names["result"], names["rows"]
    assert names["run"].state == "published"
    counted = cloud.query("SELECT count(*), sum(flights) FROM daily_delays WHERE date = '2013-03-09'")
    assert [[rows.num_rows, pc.sum(rows["flights"]).as_py()]] == counted
    assert rows.num_rows == len(names["frame"]) == result.publication.rows
    by_carrier = "SELECT sum(flights) AS flights FROM daily_delays GROUP BY date, carrier ORDER BY flights DESC LIMIT 3"
    assert [[flights] for _, _, flights in names["busiest"].rows] == cloud.query(by_carrier)
    assert names["busiest_table"].column_names == names["busiest"].columns
    pushed = received.pushed
    assert (names["pushed"].accepted, names["pushed"].duplicates) == (0, pushed["accepted"])
    assert (names["pulled"]["stored"], names["pulled"]["failed"]) == (0, 0)
    # Spark has compared the versions: it and pyiceberg read the same ones.
    flights = next(metric for metric in names["comparison"].metrics if metric.metric == "flights")
    sums = [pc.sum(names[version]["flights"]).as_py() for version in ("before", "after")]
    assert sums == [flights.before, flights.after]
    assert sums[0] < sums[1]
    assert names["monitored"].failure == ""
    assert names["monitored"].report.correlation_id == names["c"].correlation_id


def test_the_correlation_id_is_in_everything_that_a_run_leaves(cloud, published):
    run = published[DAY]
    correlation_id = run["correlation_id"]
    states, emr = cloud.client("stepfunctions"), cloud.client("emr-serverless")
    execution = states.describe_execution(executionArn=run["execution"])
    assert f'"correlation_id": "{correlation_id}"' in execution["input"]
    application = cloud.outputs()["ApplicationId"]
    jobs = [emr.get_job_run(applicationId=application, jobRunId=job["id"])["jobRun"] for job in cloud.jobs()]
    tagged = [job["name"] for job in jobs if job.get("tags", {}).get("slackwater:correlation") == correlation_id]
    assert tagged == [f"daily_delays {DAY} delays_by_carrier"]
    lines = cloud.json("logs", "daily_delays", "--date", DAY)["lines"]
    ids = {(line["source"], line["fields"]["correlation_id"]) for line in lines if line["fields"]}
    sources = ("freeze-inputs", "record-run", "job delays_by_carrier")
    assert ids == {(source, correlation_id) for source in sources}
    records = cloud.json("runs", "daily_delays", "--date", DAY)["runs"]
    assert records[0]["correlation_id"] == correlation_id
    [stage] = [v for v in cloud.json("refs", "daily_delays", "--date", DAY)["versions"][:3] if v["type"] == "stage"]
    bucket, _, key = stage["uri"].removeprefix("s3://").partition("/")
    manifest = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    assert f'"correlation_id":"{correlation_id}"' in manifest
