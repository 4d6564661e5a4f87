"""The operators, over executions and histories as Step Functions returns them: a history has the newest event first."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

PUBLISHED = {
    "date": "2013-03-01",
    "outcome": "published",
    "run_id": "r-1",
    "attempt": 2,
    "differing": 12,
    "notified": True,
}
FAILED = {"date": "2013-03-02", "outcome": "failed", "failed_step": "run", "reason": "no such column"}
NOT_COMPARED = {
    "date": "2013-03-03",
    "outcome": "published",
    "run_id": "r-3",
    "attempt": 3,
    "failed_step": "compare",
    "reason": "published as attempt 3, but not compared: too large",
}
UNCHANGED = {"date": "2013-03-04", "outcome": "unchanged", "run_id": "r-4", "attempt": 1, "notified": False}
ONLY_NOTIFIED = {"date": "2013-03-05", "outcome": "published", "notified": True}
DAYS = [PUBLISHED, FAILED, NOT_COMPARED, UNCHANGED, ONLY_NOTIFIED]
DONE = {
    "type": "MapStateExited",
    "stateExitedEventDetails": {"output": json.dumps({"days": DAYS, "failed": 2})},
}
ENDED = {"type": "ExecutionFailed"}
# Runs in Airflow's own Python.
PROGRAM = """
import json, sys
from types import SimpleNamespace
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.execution_time.context import OutletEventAccessors
ExecutorSafeguard.test_mode = True
sys.path.insert(0, "dags")
from slackwater_operators import LateDayOperator, LateDaysOperator, RunStateMachineOperator

def outcome(operator, method="execute", *arguments):
    events = OutletEventAccessors()
    try:
        result = getattr(operator, method)({"outlet_events": events}, *arguments)
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    added = [event for accessor in events.values() for event in accessor.asset_alias_events]
    return [result, [[event.dest_asset_key.uri, event.extra] for event in added]]

class AlreadyExists(Exception):
    pass

class States:
    # Executions of one state machine, by name. Each has another input, for which Step Functions returns none of them.

    exceptions = SimpleNamespace(ExecutionAlreadyExists=AlreadyExists)

    def __init__(self, statuses, output):
        self.statuses, self.output, self.started = statuses, output, []

    def start_execution(self, stateMachineArn, name, input):
        if name in self.statuses:
            raise AlreadyExists
        self.started.append([name, json.loads(input)])
        return {"executionArn": f"arn:execution:m:{name}"}

    def describe_execution(self, executionArn):
        name = executionArn.removeprefix("arn:execution:m:")
        return {"status": self.statuses.get(name, "SUCCEEDED"), "output": json.dumps(self.output)}

def started(statuses):
    states = States(statuses, {})
    operator = RunStateMachineOperator(
        task_id="run",
        state_machine_arn="arn:stateMachine:m",
        name="run",
        state_machine_input={"date": "d"},
        aws_conn_id=None,
    )
    operator.hook.__dict__.update(conn=states, get_conn=lambda: states)
    return [operator.hook.start_execution(operator.state_machine_arn, operator.name, operator.input), states.started]

def days(history):
    pages = SimpleNamespace(paginate=lambda **_: [{"events": page} for page in history])
    operator = LateDaysOperator(task_id="days", execution_arn="arn", table="slackwater://p/t", aws_conn_id=None)
    operator.__dict__["hook"] = SimpleNamespace(conn=SimpleNamespace(get_paginator=lambda name: pages))
    return outcome(operator)

request = json.load(sys.stdin)
results = {
    "days": [days(history) for history in request["histories"]],
    "each": [outcome(LateDayOperator(task_id="d", day=day))[0] for day in request["each"]],
    "started": [started(statuses) for statuses in request["statuses"]],
}
sys.__stdout__.write("\\n" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def results(parser) -> dict[str, Any]:
    """What the operators return and raise, by one process: importing Airflow takes far longer than all of them."""
    request = {
        "histories": [[[ENDED, {"type": "FailStateEntered"}], [DONE]], [[ENDED]]],
        "each": [PUBLISHED, FAILED, NOT_COMPARED],
        "statuses": [{}, {"run-1": "RUNNING"}, {"run-1": "FAILED"}, {"run-1": "ABORTED", "run-2": "RUNNING"}],
    }
    completed = parser.python("-c", PROGRAM, stdin=json.dumps(request))
    assert completed.returncode == 0, completed.stderr
    read: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return read


def test_the_days_of_a_failed_execution_are_read_and_only_a_failed_day_fails(results):
    days, events = results["days"][0]
    assert days == DAYS
    # Of the days that this monitoring has published, also if a later step has failed.
    assert events == [
        ["slackwater://p/t", {"date": "2013-03-01", "version": 2, "run_id": "r-1"}],
        ["slackwater://p/t", {"date": "2013-03-03", "version": 3, "run_id": "r-3"}],
    ]
    assert results["each"] == [
        PUBLISHED,
        "AirflowFailException: 2013-03-02: no such column",
        "AirflowFailException: 2013-03-03: published as attempt 3, but not compared: too large",
    ]


def test_an_execution_that_ended_before_its_days_has_none_to_show(results):
    error, events = results["days"][1]
    assert error.startswith("AirflowFailException: arn ended before")
    assert events == []


def test_a_try_joins_the_running_execution_or_starts_the_next_one(results):
    first, joined, second, joined_second = results["started"]
    assert first == ["arn:execution:m:run-1", [["run-1", {"date": "d", "correlation_id": "run-1"}]]]
    assert joined == ["arn:execution:m:run-1", []]
    assert second == ["arn:execution:m:run-2", [["run-2", {"date": "d", "correlation_id": "run-2"}]]]
    assert joined_second == ["arn:execution:m:run-2", []]
