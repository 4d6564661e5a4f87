"""Airflow's own EMR Serverless operators, unmodified, against the local cloud's EMR Serverless."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.airflow.home import make_home
from tests.cloud.emr_fixtures import HELLO, ROLE, SLEEPER

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def results(bare, tmp_path_factory):
    """What the operators returned that created an application, ran jobs on it, stopped it and deleted it."""
    programs = {"succeeds": HELLO, "fails": "raise SystemExit('no such table')", "sleeps": SLEEPER}
    request = {"role": ROLE, **{name: bare.code(f"{name}.py", program) for name, program in programs.items()}}
    home = make_home(tmp_path_factory.mktemp("airflow"), **bare.cloud.environment())
    completed = home.python(str(Path(__file__).with_name("run_emr_operators.py")), stdin=json.dumps(request))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


def test_an_application_is_created_started_stopped_and_deleted_by_airflows_operators(bare, results):
    application = bare.emr.get_application(applicationId=results["application"])["application"]
    assert application["state"] == "TERMINATED"
    assert results["application"] not in [item["id"] for item in bare.emr.list_applications()["applications"]]


def test_jobs_are_started_awaited_and_cancelled_by_airflows_operators(bare, results):
    assert bare.log(results["succeeded"]) == "hello\n"
    assert results["failed"].startswith("Serverless Job failed: FAILED - Job failed")
    assert "no such table" in results["failed"]
    assert results["cancelled"] == "CANCELLED"


def test_operators_that_defer_wait_with_their_triggers(bare, results):
    assert bare.emr.get_application(applicationId=results["deferred"])["application"]["state"] == "STOPPED"
