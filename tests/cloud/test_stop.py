"""A run that is stopped: its Spark job is cancelled, and the day runs again."""

from __future__ import annotations

import pytest

from tests.cloud.staged_runs import wait_for
from tests.conftest import Cloud
from tests.lineage_runs import validated

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

PIPELINE, DATE = "daily_delays", "2013-06-03"
"""A day without data, which no other test runs."""


def jobs(cloud: Cloud) -> list[str]:
    return [job["state"] for job in cloud.jobs() if job["name"].startswith(f"{PIPELINE} {DATE}")]


def test_a_run_is_stopped_with_its_job_and_the_day_runs_again(cloud, lineage):
    running = cloud.process("run", PIPELINE, "--date", DATE)
    wait_for(lambda: jobs(cloud) == ["RUNNING"])
    (run,) = cloud.json("runs", PIPELINE, "--date", DATE)["runs"]
    stopped = cloud.json("stop", run["run_id"][:12])
    assert (stopped["attempt"], stopped["state"], len(stopped["cancelled_jobs"])) == (1, "failed", 1)
    wait_for(lambda: jobs(cloud) == ["CANCELLED"])
    _, errors = running.communicate(timeout=120)
    assert (running.returncode, "Stopped: it was stopped with slackwater stop" in errors) == (1, True), errors
    again = cloud.json("run", PIPELINE, "--date", DATE)
    assert (again["outcome"], again["attempt"]) == ("published", 2)
    runs = cloud.json("runs", PIPELINE, "--date", DATE)["runs"]
    assert [(run["state"], run["error"]) for run in runs] == [("failed", stopped["error"]), ("published", None)]
    assert "attempt 2" in cloud.slackwater("stop", PIPELINE, "--date", DATE, code=2).err
    wait_for(lambda: len(lineage.ends(PIPELINE, DATE)) == len(runs))
    ends = validated(lineage.ends(PIPELINE, DATE))
    assert sorted(event["eventType"] for event in ends) == ["ABORT", "COMPLETE"]
