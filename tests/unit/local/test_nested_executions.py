"""Executions that wait for executions, in the emulator's state machines: stopped, timed out, failed and successful."""

from __future__ import annotations

import json
import threading
import time
from itertools import count
from uuid import uuid4

import pytest
from ministack.services import stepfunctions

from slackwater.local.services import state_machines

pytestmark = pytest.mark.unit

ROLE = "arn:aws:iam::000000000000:role/r"
RUN = "arn:aws:states:::states:startExecution.sync:2"
PATCHED = (
    "_run_execution",
    "_execute_task",
    "_invoke_resource_with_timeout",
    "_execute_map",
    "_execute_parallel",
    "_apply_output_path",
    "_add_event",
    "_scaled_sleep",
)
ENDED = set()
"""ARNs of the executions whose threads have ended, and with them those of their items."""


@pytest.fixture
def released(monkeypatch):
    """An event that ends the waits of all executions. The emulator behaves as in the local cloud."""
    for name in (*PATCHED, "_invoke_nested_start_execution_sync"):
        monkeypatch.setattr(stepfunctions, name, getattr(stepfunctions, name))
    state_machines.complete_states()
    state_machines.stop_with_parents()
    released, run_execution = threading.Event(), stepfunctions._run_execution

    def run_and_note(arn):
        try:
            run_execution(arn)
        finally:
            ENDED.add(arn)

    monkeypatch.setattr(stepfunctions, "_run_execution", run_and_note)
    monkeypatch.setattr(stepfunctions, "_scaled_sleep", lambda _seconds: released.wait(60))
    yield released
    released.set()
    until(lambda: not any(item["status"] == "RUNNING" for item in stepfunctions._executions.values()))
    stepfunctions.reset()


def machine(start, **states):
    """Create a state machine; return its ARN."""
    definition = {"QueryLanguage": "JSONata", "StartAt": start, "States": states}
    call = {"name": uuid4().hex, "definition": json.dumps(definition), "roleArn": ROLE}
    return json.loads(stepfunctions._create_state_machine(call)[2])["stateMachineArn"]


def waiting(end):
    """A machine that waits until the test releases it, and then ends with this state."""
    return machine("Wait", Wait={"Type": "Wait", "Seconds": 1, "Next": "End"}, End=end)


def running(child, **task):
    """A task that runs the machine `child`."""
    return {
        "Type": "Task",
        "Resource": RUN,
        "Arguments": {"StateMachineArn": child, "Input": {"a": 1}},
        "End": True,
        **task,
    }


def start(arn):
    """Start an execution; return the emulator's record of it."""
    started = json.loads(stepfunctions._start_execution({"stateMachineArn": arn, "input": "{}"})[2])
    return stepfunctions._executions[started["executionArn"]]


def children(child):
    """The executions of a machine, in the order in which they were started."""
    return [item for item in stepfunctions._executions.values() if item["stateMachineArn"] == child]


def until(condition):
    for attempt in count():
        if condition():
            return
        assert attempt < 1200
        time.sleep(0.05)


def test_stopping_an_execution_stops_those_that_it_waits_for_and_starts_no_other(released):
    child = waiting({"Type": "Pass", "End": True})
    items = {"StartAt": "Run", "States": {"Run": running(child)}}
    each = {"Type": "Map", "Items": [1, 2, 3], "MaxConcurrency": 2, "ItemProcessor": items, "Next": "After"}
    parent = start(machine("Each", Each=each, After={"Type": "Pass", "End": True}))
    until(lambda: len(children(child)) == 2)
    stepfunctions._stop_execution({"executionArn": parent["executionArn"], "cause": "enough"})
    until(lambda: {item["status"] for item in children(child)} == {"ABORTED"})
    released.set()
    until(lambda: parent["executionArn"] in ENDED)
    assert len(children(child)) == 2
    assert (parent["status"], parent["cause"], parent["output"]) == ("ABORTED", "enough", None)
    assert [event["type"] for event in parent["events"]].count("ExecutionAborted") == 1
    assert "ExecutionFailed" not in {event["type"] for event in parent["events"]}


def test_a_task_that_is_out_of_time_stops_the_execution_that_it_waits_for(released):
    child = waiting({"Type": "Pass", "End": True})
    catch = [{"ErrorEquals": ["States.Timeout"], "Next": "Late"}]
    parent = start(
        machine("Run", Run=running(child, TimeoutSeconds=1, Catch=catch), Late={"Type": "Pass", "End": True})
    )
    until(lambda: [item["status"] for item in children(child)] == ["ABORTED"])
    until(lambda: parent["status"] == "SUCCEEDED")


def test_a_task_that_notices_first_that_its_time_is_over_has_timed_out(released, monkeypatch):
    """As on a busy machine: the execution went on for ever, because nothing had failed in it."""
    monkeypatch.setattr(state_machines.TaskHandle, "abandoned", True)
    child = waiting({"Type": "Pass", "End": True})
    catch = [{"ErrorEquals": ["States.Timeout"], "Next": "Late"}]
    late = {"Type": "Pass", "End": True}
    parent = start(machine("Run", Run=running(child, TimeoutSeconds=60, Catch=catch), Late=late))
    until(lambda: parent["status"] == "SUCCEEDED")
    assert [item["status"] for item in children(child)] == ["ABORTED"]


def test_the_result_is_the_output_of_the_execution_and_a_failure_names_its_error_and_cause(released):
    released.set()
    good = waiting({"Type": "Pass", "Output": {"b": 2}, "End": True})
    bad = waiting({"Type": "Fail", "Error": "RunFailed", "Cause": 'it "broke"'})
    outputs = []
    for child in (good, bad):
        catch = [{"ErrorEquals": ["States.TaskFailed"], "Output": "{% $states.errorOutput %}", "Next": "Failed"}]
        run = running(child, Output="{% $states.result %}", Catch=catch)
        parent = start(machine("Run", Run=run, Failed={"Type": "Pass", "End": True}))
        until(lambda parent=parent: parent["status"] == "SUCCEEDED")
        outputs.append(json.loads(parent["output"]))
    assert (outputs[0]["Output"], outputs[0]["Status"], json.loads(outputs[0]["Input"])) == (
        {"b": 2},
        "SUCCEEDED",
        {"a": 1},
    )
    cause = json.loads(outputs[1]["Cause"])
    assert outputs[1]["Error"] == "States.TaskFailed"
    assert (cause["Error"], cause["Cause"], cause["Status"]) == ("RunFailed", 'it "broke"', "FAILED")
