"""The tasks of a run, over executions and histories as Step Functions returns them: the oldest event first."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

# Runs in Airflow's own Python.
PROGRAM = """
import json, sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from airflow.exceptions import TaskDeferred
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.execution_time.context import OutletEventAccessors
ExecutorSafeguard.test_mode = True
sys.path.insert(0, "dags")
from slackwater_operators import RunStateMachineOperator, StopOperator
from slackwater_stages import PublishOperator, StageOperator, StartRunOperator, WaitOperator, stage_seconds

class AlreadyExists(Exception):
    pass

class DoesNotExist(Exception):
    pass

class States:
    # Executions of one state machine: status, error and history by name.

    exceptions = SimpleNamespace(ExecutionAlreadyExists=AlreadyExists, ExecutionDoesNotExist=DoesNotExist)
    meta = SimpleNamespace(region_name="r", partition="aws")
    meta.client = SimpleNamespace(meta=meta)

    def __init__(self, executions):
        self.executions, self.started, self.stopped = executions, [], []

    def start_execution(self, stateMachineArn, name, input):
        if name in self.executions:
            raise AlreadyExists
        self.executions[name] = {"status": "RUNNING"}
        self.started.append([name, json.loads(input)])
        return {"executionArn": f"arn:execution:m:{name}"}

    def describe_execution(self, executionArn):
        name = executionArn.removeprefix("arn:execution:m:")
        if name not in self.executions:
            raise DoesNotExist
        known = {"executionArn": executionArn, "stateMachineArn": "arn:stateMachine:m", "name": name}
        return {**known, "input": '{"date": "d", "correlation_id": "old"}', **self.executions[name]}

    def stop_execution(self, executionArn, error, cause):
        self.stopped.append([executionArn, error, cause])

    def get_paginator(self, name):
        def paginate(executionArn, reverseOrder=False, **_):
            read = list(events(self._history(executionArn)))
            return [{"events": read[::-1] if reverseOrder else read}]

        return SimpleNamespace(paginate=paginate)

    def _history(self, arn):
        return self.executions[arn.removeprefix("arn:execution:m:")].get("history", [])

def events(history):
    # An event: its type, the state that it enters or exits, and the number of the event before it in its branch.
    start = datetime(2013, 3, 9, tzinfo=UTC)
    for number, (kind, name, before) in enumerate(history, 1):
        event = {"id": number, "type": kind, "previousEventId": before, "timestamp": start + timedelta(seconds=number)}
        if name:
            event[f"state{'Entered' if kind.endswith('Entered') else 'Exited'}EventDetails"] = {"name": name}
        if kind == "TaskSubmitted":
            event["taskSubmittedEventDetails"] = {"output": '{"Payload": {"missing": ["clicks: no counts"]}}'}
        yield event

def run(kind, case):
    states, accessors = States(case["executions"]), OutletEventAccessors()
    options = {"task_id": "t", "aws_conn_id": None}
    machine = {"state_machine_arn": "arn:stateMachine:m", "name": case.get("name", "run")}
    machine["state_machine_input"] = {"date": "d"}
    operator = {
        "stage": lambda: StageOperator(stage="a", **options),
        "wait": lambda: WaitOperator(longest=timedelta(hours=48), **options),
        "publish": lambda: PublishOperator(table="slackwater://p/t", **options),
        "stop": lambda: StopOperator(execution_arn=case["arn"], restarts=True, **options),
        "stop check": lambda: StopOperator(execution_arn=case["arn"], restarts=False, **options),
        "start": lambda: StartRunOperator(**machine, **options),
        "check": lambda: RunStateMachineOperator(deferrable=True, **machine, **options),
    }[kind]()
    operator.__dict__["hook"] = operator.hook
    operator.hook.__dict__.update(conn=states, get_conn=lambda: states)
    started = {"execution_arn": "arn:execution:m:run-1", "try_number": case.get("start_try", 1)}
    ti = SimpleNamespace(
        try_number=case.get("try", 1), xcom_pull=lambda task_ids: started, xcom_push=lambda key, value: None
    )
    dag_run = SimpleNamespace(conf=case.get("conf"), run_id="manual-1")
    try:
        result = operator.execute({"ti": ti, "dag_run": dag_run, "outlet_events": accessors})
    except TaskDeferred as deferred:
        result = ["deferred", deferred.kwargs]
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    added = [event.extra for accessor in accessors.values() for event in accessor.asset_alias_events]
    return {"result": result, "started": states.started, "stopped": states.stopped, "events": added}

request = json.load(sys.stdin)
results = {name: run(kind, case) for name, (kind, case) in request["cases"].items()}
results["seconds"] = [stage_seconds(events(history), "a") for history in request["histories"]]
sys.__stdout__.write("\\n" + json.dumps(results))
"""

ENTERED, EXITED = "TaskStateEntered", "TaskStateExited"
DECIDED = [
    ("ExecutionStarted", "", 0),
    ("ChoiceStateEntered", "Decide whether to wait", 0),
    ("ChoiceStateExited", "Decide whether to wait", 2),
]
WAITING = [*DECIDED, (ENTERED, "Wait for the inputs", 3), ("TaskSubmitted", "", 4)]
WAITS_AGAIN = [*WAITING, ("TaskTimedOut", "", 5), (EXITED, "Wait for the inputs", 6), *WAITING[3:]]
GOES_ON = [*WAITS_AGAIN, (EXITED, "Wait for the inputs", 9), (ENTERED, "Freeze inputs", 10)]
BEGIN = [("ExecutionStarted", "", 0), (ENTERED, "Freeze inputs", 0), (EXITED, "Freeze inputs", 2)]
CHECK = [("ChoiceStateEntered", "Is a finished?", 3), ("ChoiceStateExited", "Is a finished?", 4)]
RUN = [(ENTERED, "Run a", 5), ("TaskScheduled", "", 6), ("TaskStarted", "", 7)]
RUNNING = [*BEGIN, *CHECK, *RUN]
FAILED = [*RUNNING, ("TaskFailed", "", 8), (EXITED, "Run a", 9)]
DONE = [*RUNNING, ("TaskSucceeded", "", 8), (EXITED, "Run a", 9)]
KEPT = [*BEGIN, *CHECK, (ENTERED, "Run b", 5)]
HISTORIES = {
    "before": (BEGIN, None),
    "running": (RUNNING, None),
    "succeeded": (DONE, 4),
    "failed": (FAILED, None),
    "repeated": ([*RUNNING, ("TaskFailed", "", 8), ("TaskScheduled", "", 9), (EXITED, "Run a", 10)], 5),
    "timed out": ([*RUNNING, ("TaskTimedOut", "", 8), (EXITED, "Run a", 9)], None),
    "kept": (KEPT, 0),
    "another attempt, running": ([*FAILED, (ENTERED, "Run a", 10)], None),
    "another attempt, succeeded": ([*FAILED, (ENTERED, "Run a", 10), (EXITED, "Run a", 11)], 1),
    # In an attempt of which another stage has failed.
    "another attempt, kept": (
        [
            *DONE,
            ("ChoiceStateEntered", "Is a finished?", 10),
            ("ChoiceStateExited", "Is a finished?", 11),
            ("PassStateEntered", "Keep a", 12),
        ],
        4,
    ),
    # Of two branches: the failure is that of the other one.
    "in parallel": (
        [
            *BEGIN,
            ("ParallelStateEntered", "Run 2 stages in parallel (1)", 3),
            (ENTERED, "Run a", 4),
            (ENTERED, "Run b", 4),
            ("TaskFailed", "", 6),
            (EXITED, "Run a", 5),
        ],
        3,
    ),
}
PUBLISHED = {"outcome": "published", "run": {"date": "2013-03-08", "attempt": 2, "run_id": "r-1"}}
ERROR = {"status": "FAILED", "error": "RunFailed", "cause": "no such column"}
ABORTED = {"status": "ABORTED", "error": "Stopped"}


def of(*executions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A case with the executions `run-1`, `run-2` ..."""
    return {"executions": {f"run-{number}": each for number, each in enumerate(executions, 1)}, **more}


CASES = {
    "decided": ("wait", of({"status": "RUNNING", "history": DECIDED})),
    "waiting": ("wait", of({"status": "RUNNING", "history": WAITS_AGAIN})),
    "goes on": ("wait", of({"status": "RUNNING", "history": GOES_ON})),
    "has waited in vain": ("wait", of({**ERROR, "history": WAITS_AGAIN})),
    "cleared, waiting": ("wait", of({**ERROR, "history": WAITS_AGAIN}, **{"try": 2})),
    "running": ("stage", of({"status": "RUNNING", "history": RUNNING})),
    "succeeded": ("stage", of({"status": "RUNNING", "history": DONE})),
    "failed, not ended": ("stage", of({"status": "RUNNING", "history": FAILED})),
    "failed": ("stage", of({**ERROR, "history": FAILED})),
    "not reached": ("stage", of({**ERROR, "history": BEGIN})),
    "kept": ("stage", of({"status": "RUNNING", "history": KEPT})),
    "unchanged": ("stage", of({"status": "SUCCEEDED", "history": BEGIN})),
    "cleared": ("stage", of({**ERROR, "history": FAILED}, **{"try": 2})),
    "cleared after a stop": ("stage", of(ERROR, {**ABORTED, "history": RUNNING}, **{"try": 3})),
    "cleared with start": ("stage", of({**ERROR, "history": FAILED}, start_try=2, **{"try": 2})),
    "cleared while it runs": ("stage", of({"status": "RUNNING", "history": RUNNING}, **{"try": 2})),
    "cleared after a success": ("stage", of({"status": "SUCCEEDED", "history": DONE}, **{"try": 2})),
    "after another stage was cleared": ("stage", of(ERROR, {"status": "RUNNING", "history": DONE})),
    "published": ("publish", of({"status": "SUCCEEDED", "output": json.dumps(PUBLISHED)})),
    "nothing to publish": (
        "publish",
        of({"status": "SUCCEEDED", "output": json.dumps({**PUBLISHED, "outcome": "unchanged"})}),
    ),
    "not published": ("publish", of(ERROR)),
    "stopped": ("stop", of({"status": "RUNNING"}, arn="arn:execution:m:run-1")),
    "stopped, second": ("stop", of(ERROR, {"status": "RUNNING"}, arn="arn:execution:m:run-1")),
    "stopped check": (
        "stop check",
        {"executions": {"arrival-1f": {"status": "RUNNING"}}, "arn": "arn:execution:m:arrival-1f"},
    ),
    "ended": ("stop", of({"status": "SUCCEEDED"}, arn="arn:execution:m:run-1")),
    "not started": ("stop", of(arn="")),
    "start": ("start", of()),
    "check": ("check", of(name="arrival-1f", conf={"days": ["2013-03-08"]})),
    "check again": (
        "check",
        {"executions": {"arrival-1f": ERROR}, "name": "arrival-1f", "conf": {"days": ["2013-03-08"]}},
    ),
    "check that Airflow has not answered": (
        "check",
        {"executions": {"arrival-1f": {"status": "RUNNING"}}, "name": "arrival-1f", "conf": {"days": ["2013-03-08"]}},
    ),
}


@pytest.fixture(scope="module")
def results(parser) -> dict[str, Any]:
    """What the operators return, raise and do, by one process: importing Airflow takes far longer than all of them."""
    request = {"cases": CASES, "histories": [history for history, _ in HISTORIES.values()]}
    completed = parser.python("-c", PROGRAM, stdin=json.dumps(request))
    assert completed.returncode == 0, completed.stderr
    read: dict[str, Any] = json.loads(completed.stdout.splitlines()[-1])
    return read


def test_a_history_says_how_long_each_stage_has_run(results):
    assert dict(zip(HISTORIES, results["seconds"], strict=True)) == {name: it for name, (_, it) in HISTORIES.items()}


def test_a_run_that_waits_for_its_inputs_is_shown_until_it_goes_on(results):
    for name in ("decided", "waiting"):
        assert results[name]["result"] == ["deferred", {"execution_arn": "arn:execution:m:run-1", "waited": 10.0}]
    assert results["goes on"]["result"] == {"execution_arn": "arn:execution:m:run-1"}
    assert results["has waited in vain"]["result"].startswith("AirflowFailException: arn:execution:m:run-1: FAILED")
    # The next execution waits again.
    assert results["cleared, waiting"]["started"] == [["run-2", {"date": "d", "correlation_id": "run-2"}]]
    assert results["cleared, waiting"]["result"][0] == "deferred"


def test_a_stage_waits_for_its_end_and_returns_how_long_it_took(results):
    assert results["running"]["result"] == ["deferred", {"execution_arn": "arn:execution:m:run-1", "waited": 10.0}]
    assert results["succeeded"]["result"] == {"execution_arn": "arn:execution:m:run-1", "seconds": 4}


def test_a_stage_fails_with_the_run_which_may_repeat_it(results):
    assert results["failed, not ended"]["result"][0] == "deferred"
    failure = "AirflowFailException: arn:execution:m:run-1: FAILED: RunFailed: no such column"
    assert results["failed"]["result"] == results["not reached"]["result"] == results["not published"]["result"]
    assert results["failed"]["result"] == failure


def test_a_stage_that_the_run_does_not_need_is_skipped(results):
    assert results["kept"]["result"].startswith("AirflowSkipException: a: an earlier run has finished it")
    assert results["unchanged"]["result"].startswith("AirflowSkipException: nothing was run")


@pytest.mark.parametrize(("name", "next_run"), [("cleared", "run-2"), ("cleared after a stop", "run-3")])
def test_a_cleared_stage_starts_the_next_execution_and_waits_for_it(results, name, next_run):
    assert results[name]["started"] == [[next_run, {"date": "d", "correlation_id": next_run}]]
    assert results[name]["result"] == ["deferred", {"execution_arn": f"arn:execution:m:{next_run}", "waited": 10.0}]


def test_a_cleared_stage_starts_nothing_if_nothing_has_failed_or_start_was_cleared_too(results):
    for name in ("cleared with start", "cleared while it runs", "cleared after a success"):
        assert results[name]["started"] == []
    assert results["after another stage was cleared"]["result"]["execution_arn"] == "arn:execution:m:run-2"


def test_a_run_adds_an_event_if_it_has_published_the_day(results):
    event = {"date": "2013-03-08", "version": 2, "run_id": "r-1"}
    assert (results["published"]["result"]["outcome"], results["published"]["events"]) == ("published", [event])
    assert results["nothing to publish"]["result"]["outcome"] == "unchanged"
    assert results["nothing to publish"]["events"] == []


def test_the_latest_execution_is_stopped_if_it_still_runs(results):
    cause = "the DAG run manual-1 was stopped in Airflow"
    for name, execution in (("stopped", "run-1"), ("stopped, second", "run-2"), ("stopped check", "arrival-1f")):
        assert results[name]["stopped"] == [[f"arn:execution:m:{execution}", "Stopped", cause]]
        # Or the run, whose other tasks are skipped, would succeed.
        assert results[name]["result"] == f"AirflowFailException: stopped arn:execution:m:{execution}"
    assert (results["ended"]["result"], results["ended"]["stopped"]) == ("SUCCEEDED", [])
    assert (results["not started"]["result"], results["not started"]["stopped"]) == ("not started", [])


def test_a_run_is_started_and_not_waited_for(results):
    assert results["start"]["result"] == {"execution_arn": "arn:execution:m:run-1", "try_number": 1}


def test_a_check_that_data_has_started_has_its_days_and_the_name_that_the_function_would_give_it(results):
    def started(name: str) -> list[Any]:
        return [[name, {"date": "d", "days": ["2013-03-08"], "correlation_id": name}]]

    assert results["check"]["started"] == started("arrival-1f")
    assert results["check again"]["started"] == started("arrival-1f-2")
    assert results["check that Airflow has not answered"]["started"] == []
