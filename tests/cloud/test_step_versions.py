"""`versions: all` on the local cloud: parallel branches and several steps in one job, `refs`, `refs --verify`."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from tests.conftest import DATES
from tests.independent import database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

GOOD, _, BAD = DATES
"""The rule of `first_days` fails on the last day."""
PIPELINE = """
pipeline: long_delays
timezone: America/New_York
versions: all
sources: [flights, weather]
steps:
  long:
    step: filter
    depends_on: [flights]
    with: {where: "distance > 1000"}
  delayed:
    step: filter
    depends_on: [long]
    with: {where: "dep_delay > 0"}
  windy:
    step: filter
    depends_on: [weather]
    with: {where: "wind_speed > 10"}
  joined:
    step: join
    depends_on: [delayed, windy]
    with: {keys: [origin, time_hour], how: left, take: [wind_speed]}
  first_days:
    step: data_quality
    depends_on: [joined]
    with: {rules: [{rule: range, column: day, max: 9}]}
  by_carrier:
    step: aggregate
    depends_on: [first_days]
    with: {group_by: [carrier], measures: {flights: {function: count}}}
publish: {step: by_carrier, key: [date, carrier]}
"""
STEPS = ["delayed", "joined", "long", "windy"]


@pytest.fixture(scope="module")
def stepwise(cloud, received, tmp_path_factory):
    """The project with one more pipeline, which is not deployed, and its runs of two days: one fails."""
    folder = tmp_path_factory.mktemp("stepwise") / "project"
    shutil.copytree(cloud.project, folder)
    file = folder / "pipelines" / "long_delays.yaml"
    file.write_text(PIPELINE, encoding="utf-8")
    ours = dataclasses.replace(cloud, project=folder)
    running = ours.process("run", str(file), "--date", BAD, "--json")
    assert ours.json("run", str(file), "--date", GOOD)["outcome"] == "published"
    output, _ = running.communicate(timeout=300)
    assert "steps.first_days: range of day failed" in output
    return ours


def refs(cloud, day, *options, code=0):
    return cloud.json("refs", "long_delays", "--date", day, *options, code=code)["versions"]


def test_each_step_of_a_failed_run_can_be_read_and_a_damaged_file_is_found(stepwise, tmp_path):
    first, *steps = refs(stepwise, BAD, "--verify")
    assert (first["type"], first["verified"], first["problems"]) == ("input", True, [])
    assert sorted(step["name"] for step in steps) == STEPS
    assert {(step["type"], step["stage"], step["state"], step["verified"]) for step in steps} == {
        ("step", "by_carrier", "present", True)
    }
    rows = {step["name"]: step["rows"] for step in steps}
    flights = f"FROM flights WHERE distance > 1000 AND make_date(year, month, day) = '{BAD}'"
    hours = f"time_hour >= '{BAD} 04:00' AND time_hour < '2013-03-12 04:00'"
    connection = database(tmp_path)

    def count(sql):
        return connection.execute(f"SELECT count(*) {sql}").fetchone()[0]

    assert rows == {
        "long": count(flights),
        "delayed": count(f"{flights} AND dep_delay > 0"),
        "joined": rows["delayed"],
        "windy": count(f"FROM weather WHERE wind_speed > 10 AND {hours}"),
    }
    joined = next(step for step in steps if step["name"] == "joined")
    assert {uri.split("/")[-2] for uri in joined["parents"]} == {"delayed", "windy"}
    bucket, _, prefix = joined["uri"].removeprefix("s3://").partition("/")
    folder = prefix.replace("runs/", "arrow/").removesuffix("manifest.json")
    s3 = stepwise.client("s3")
    key = s3.list_objects_v2(Bucket=bucket, Prefix=folder)["Contents"][0]["Key"]
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=bucket, Key=key, Body=body[:-1] + b"?")
    problems = {step["name"]: step["problems"] for step in refs(stepwise, BAD, "--verify", code=1) if step["problems"]}
    (problem,) = problems.pop("joined")
    assert (problems, key in problem, "another checksum" in problem) == ({}, True, True)


def test_the_versions_of_a_published_day_are_removed_and_stay_listed(stepwise, tmp_path):
    """The deployment of these tests has the setting `intermediate_days=0`."""
    first, *steps, stage, published = refs(stepwise, GOOD, "--verify")
    assert sorted(step["name"] for step in steps) == STEPS
    assert {(step["state"], step["verified"]) for step in (*steps, stage)} == {("removed", None)}
    assert [(version["type"], version["verified"]) for version in (first, published)] == [
        ("input", True),
        ("published", True),
    ]
    expected = database(tmp_path).execute(
        f"SELECT carrier, count(*) FROM flights WHERE distance > 1000 AND dep_delay > 0 AND "
        f"make_date(year, month, day) = '{GOOD}' GROUP BY carrier ORDER BY carrier"
    )
    rows = stepwise.query(f"SELECT carrier, flights FROM long_delays WHERE date = '{GOOD}' ORDER BY carrier")
    assert [tuple(row) for row in rows] == expected.fetchall()


def test_a_profiled_run_publishes_the_same_rows_and_has_the_seconds_and_bytes_of_each_step(stepwise, tmp_path):
    file = tmp_path / "long_delays.yaml"
    file.write_text(PIPELINE.replace("versions: all\n", ""), encoding="utf-8")
    first = stepwise.json("runs", "long_delays", "--date", GOOD)["runs"][0]
    profiled = stepwise.json("run", str(file), "--date", GOOD, "--profile")
    assert (profiled["outcome"], profiled["run_id"]) == ("published", first["run_id"])
    assert profiled["publication"]["content"] == first["publication"]["content"]
    assert all(step["seconds"] > 0 and step["bytes_out"] > 0 for step in profiled["steps"])
    assert {step["name"]: step["rows_out"] for step in profiled["steps"]} == {
        step["name"]: step["rows_out"] for step in first["steps"]
    }
    plain, recorded = stepwise.json("runs", "long_delays", "--date", GOOD)["runs"]
    assert (plain["profiled"], recorded["profiled"], recorded["steps"]) == (False, True, profiled["steps"])
    shown = stepwise.slackwater("runs", "long_delays", "--date", GOOD).out
    assert "attempt 2, profiled" in shown
