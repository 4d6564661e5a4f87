"""The operators that show late days, over histories as Step Functions returns them: newest event first."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

PUBLISHED = {"date": "2013-03-01", "outcome": "published", "attempt": 2, "differing": 12, "notified": True}
FAILED = {"date": "2013-03-02", "outcome": "failed", "failed_step": "run", "reason": "no such column"}
NOT_COMPARED = {
    "date": "2013-03-03",
    "outcome": "published",
    "failed_step": "compare",
    "reason": "published as attempt 3, but not compared: too large",
}
DONE = {
    "type": "MapStateExited",
    "stateExitedEventDetails": {"output": json.dumps({"days": [PUBLISHED, FAILED], "failed": 1})},
}
ENDED = {"type": "ExecutionFailed"}
# Runs in Airflow's own Python.
PROGRAM = """
import json, sys
from types import SimpleNamespace
from airflow.sdk.bases.operator import ExecutorSafeguard
ExecutorSafeguard.test_mode = True
sys.path.insert(0, "dags")
from slackwater_operators import LateDayOperator, LateDaysOperator

def outcome(operator):
    try:
        return operator.execute({})
    except Exception as error:
        return f"{type(error).__name__}: {error}"

request = json.load(sys.stdin)
pages = SimpleNamespace(paginate=lambda **_: [{"events": page} for page in request["pages"]])
days = LateDaysOperator(task_id="days", execution_arn="arn", aws_conn_id=None)
days.__dict__["hook"] = SimpleNamespace(conn=SimpleNamespace(get_paginator=lambda name: pages))
results = {"days": outcome(days), "each": [outcome(LateDayOperator(task_id="d", day=d)) for d in request["each"]]}
sys.__stdout__.write("\\n" + json.dumps(results))
"""


def results(parser, pages, each=()) -> dict[str, Any]:
    completed = parser.python("-c", PROGRAM, stdin=json.dumps({"pages": pages, "each": list(each)}))
    assert completed.returncode == 0, completed.stderr
    read: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return read


def test_the_days_of_a_failed_execution_are_read_and_only_a_failed_day_fails(parser):
    shown = results(parser, [[ENDED, {"type": "FailStateEntered"}], [DONE]], [PUBLISHED, FAILED, NOT_COMPARED])
    assert shown["days"] == [PUBLISHED, FAILED]
    assert shown["each"] == [
        PUBLISHED,
        "AirflowFailException: 2013-03-02: no such column",
        "AirflowFailException: 2013-03-03: published as attempt 3, but not compared: too large",
    ]


def test_an_execution_that_ended_before_its_days_has_none_to_show(parser):
    assert results(parser, [[ENDED]])["days"].startswith("AirflowFailException: arn ended before")
