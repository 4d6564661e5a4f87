"""`slackwater run FILE.yaml`: a pipeline that is not deployed runs in a state machine of its own, which is deleted."""

from __future__ import annotations

import signal
import time

import pytest

from slackwater.client.client import Client
from tests.conftest import DATES, ROOT
from tests.independent import database

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

DATE, INTERRUPTED = DATES[:2]
"""Step Functions does not know executions of a deleted state machine, so their day stays claimed for two minutes."""
PIPELINE = """
pipeline: long_flights
timezone: America/New_York
sources: [flights]
steps:
  long:
    step: filter
    depends_on: [flights]
    with: {where: "distance > 2000"}
  by_carrier:
    step: aggregate
    depends_on: [long]
    with: {group_by: [carrier], measures: {flights: {function: count}, miles: {function: sum, column: distance}}}
publish: {step: by_carrier, key: [date, carrier]}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("undeployed") / "long_flights.yaml"
    path.write_text(PIPELINE, encoding="utf-8")
    return path


def temporary_state_machines(cloud) -> list[str]:
    machines = cloud.client("stepfunctions").list_state_machines()["stateMachines"]
    return [machine["name"] for machine in machines if "long_flights" in machine["name"]]


def test_a_run_that_is_interrupted_is_stopped_and_leaves_no_state_machine(cloud, received, file):
    running = cloud.process("run", str(file), "--date", INTERRUPTED)
    deadline = time.monotonic() + 120
    while not (machines := temporary_state_machines(cloud)):
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    assert machines[0].startswith("slackwater-pipeline-long_flights-")
    time.sleep(1)  # until the command follows the execution
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    assert (running.returncode, "The run was stopped" in errors) == (130, True), errors
    assert temporary_state_machines(cloud) == []


def test_a_file_is_run_and_its_table_can_be_read(cloud, received, file, tmp_path, monkeypatch):
    result = cloud.json("run", str(file), "--date", DATE)
    assert (result["pipeline"], result["outcome"]) == ("long_flights", "published")
    assert temporary_state_machines(cloud) == []
    tables = cloud.client("glue").get_tables(DatabaseName="slackwater_warehouse")["TableList"]
    assert "long_flights" in {table["Name"] for table in tables}
    year, month, day = (int(part) for part in DATE.split("-"))
    expected = database(tmp_path).execute(
        f"SELECT carrier, count(*), sum(distance) FROM flights WHERE distance > 2000 AND year = {year} "
        f"AND month = {month} AND day = {day} GROUP BY carrier ORDER BY carrier"
    )
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    with Client(cloud.project) as client, client.run_file(file, DATE) as run:
        # Nothing has changed since, so nothing runs.
        assert run.wait(timeout=300).outcome == "unchanged"
        rows = run.table().to_arrow().sort_by("carrier").select(["carrier", "flights", "miles"])
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected.fetchall()


def test_a_file_that_defines_a_deployed_pipeline_otherwise_is_refused_and_the_same_one_runs_deployed(
    cloud, published, tmp_path
):
    definition = (ROOT / "examples/nyc_flights/pipelines/daily_delays.yaml").read_text(encoding="utf-8")
    path = tmp_path / "daily_delays.yaml"
    path.write_text(definition.replace("max: 6000", "max: 7000"), encoding="utf-8")
    refused = cloud.slackwater("run", str(path), "--date", DATE, code=2)
    assert "daily_delays is deployed with another definition" in refused.err
    path.write_text(definition.replace("Delays of", "The delays of"), encoding="utf-8")
    result = cloud.json("run", str(path), "--date", DATE)
    assert ":execution:slackwater-pipeline-daily_delays:" in result["execution"]
