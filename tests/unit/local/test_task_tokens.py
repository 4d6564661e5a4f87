"""States that wait for a task token, in the emulator's state machines: what AWS accepts, and what it refuses."""

from __future__ import annotations

import json
import threading
import time
from uuid import uuid4

import pytest
from ministack.core import iam_actions
from ministack.services import iam, stepfunctions

from slackwater.local.services import state_machines, task_tokens
from tests.fakes_local import role_with_all_permissions

pytestmark = pytest.mark.unit

ROLE = "arn:aws:iam::000000000000:role/r"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:f"


class Machine:
    """An execution of a state that waits; `call` is its function."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.call = lambda token: None

    def invoke(self, _resource, arguments):
        token = arguments["Payload"]["token"]
        self.tokens.append(token)
        self.call(token)
        return {"StatusCode": 200, "Payload": None}

    def start(self, **more):
        wait = {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
            "Arguments": {"FunctionName": FUNCTION, "Payload": {"token": "{% $states.context.Task.Token %}"}},
            "End": True,
            **more,
        }
        states = {"Wait": wait, "Over": {"Type": "Pass", "Output": {"over": True}, "End": True}}
        definition = json.dumps({"QueryLanguage": "JSONata", "StartAt": "Wait", "States": states})
        created = stepfunctions._create_state_machine({"name": uuid4().hex, "definition": definition, "roleArn": ROLE})
        self.arn = json.loads(created[2])["stateMachineArn"]
        self.execution = json.loads(stepfunctions._start_execution({"stateMachineArn": self.arn})[2])["executionArn"]

    def until(self, is_so):
        for _ in range(200):
            if is_so():
                return
            time.sleep(0.05)
        raise AssertionError(self.description)

    def wait_for_tokens(self, number):
        # The function has ended as well.
        self.until(lambda: self.events("TaskSubmitted") >= number)

    def events(self, kind):
        return [event["type"] for event in stepfunctions._executions[self.execution]["events"]].count(kind)

    @property
    def description(self):
        return json.loads(stepfunctions._describe_execution({"executionArn": self.execution})[2])

    def ended(self):
        self.until(lambda: self.description["status"] != "RUNNING")
        found = self.description
        return found["status"], json.loads(found.get("output") or "null"), found.get("error"), found.get("cause")


def succeed(token, output='{"a": 1}'):
    return refusal(stepfunctions._send_task_success({"taskToken": token, "output": output}))


def fail(token, **details):
    return refusal(stepfunctions._send_task_failure({"taskToken": token, **details}))


def refusal(response):
    status, _, body = response
    return "" if status == 200 else json.loads(body)["__type"]


@pytest.fixture
def machine(monkeypatch):
    for name in (
        *("_execute_task", "_execute_choice", "_run_parallel_branches", "_apply_output_path", "_add_event"),
        *("_invoke_resource_with_timeout", "_run_execution", "_execute_map", "_execute_parallel"),
        *("_invoke_nested_start_execution_sync", "_invoke_with_callback", "_send_task_success", "_send_task_failure"),
    ):
        monkeypatch.setattr(stepfunctions, name, getattr(stepfunctions, name))
    monkeypatch.setattr(iam_actions, "extract_resource_arn", iam_actions.extract_resource_arn)
    monkeypatch.setitem(iam._roles, "r", role_with_all_permissions("states"))
    machine = Machine()
    monkeypatch.setattr(stepfunctions, "_invoke_resource", machine.invoke)
    state_machines.complete_states()
    state_machines.stop_with_parents()
    task_tokens.register()
    yield machine
    stepfunctions.reset()


def test_a_token_is_accepted_once(machine):
    machine.start()
    machine.wait_for_tokens(1)
    [token] = machine.tokens
    assert succeed(token) == ""
    assert succeed(token) == "TaskTimedOut"
    assert machine.ended() == ("SUCCEEDED", {"a": 1}, None, None)
    assert succeed(token) == fail(token) == "TaskTimedOut"


def test_of_many_answers_at_the_same_time_one_is_accepted(machine):
    machine.start()
    machine.wait_for_tokens(1)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(succeed(machine.tokens[0]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["", *["TaskTimedOut"] * 7]


def test_the_function_may_return_the_token_itself(machine):
    machine.call = succeed
    machine.start()
    assert machine.ended()[:2] == ("SUCCEEDED", {"a": 1})


def test_an_unknown_token_and_an_output_that_is_no_json_are_refused(machine):
    machine.start()
    machine.wait_for_tokens(1)
    [token] = machine.tokens
    assert succeed("none") == fail("none") == "InvalidToken"
    assert succeed(token, "{") == "InvalidOutput"
    assert succeed(token, json.dumps("x" * 262_144)) == "ValidationException"
    assert fail(token, cause="x" * 32_769) == fail(token, error="x" * 257) == "ValidationException"
    assert succeed("x" * 2_049) == "ValidationException"
    assert succeed(token) == ""


def test_a_state_that_times_out_has_another_token_the_next_time(machine):
    again = {"ErrorEquals": ["States.Timeout"], "Output": {}, "Next": "Wait"}
    machine.start(TimeoutSeconds=1, Catch=[again])
    machine.wait_for_tokens(2)
    old, new = machine.tokens[:2]
    assert succeed(old) == "TaskTimedOut"
    assert succeed(new) == ""
    assert machine.ended()[0] == "SUCCEEDED"


def test_a_failure_has_its_error_and_cause(machine):
    machine.start()
    machine.wait_for_tokens(1)
    assert fail(machine.tokens[0], error="InputsMissing", cause="no clicks") == ""
    status, _, error, cause = machine.ended()
    assert (status, error, cause) == ("FAILED", "InputsMissing", "no clicks")


def test_an_error_of_the_function_fails_the_state(machine):
    def call(_token):
        state_machines.fail_state("CloudError", "S3 does not answer")

    machine.call = call
    machine.start(Catch=[{"ErrorEquals": ["CloudError"], "Next": "Over"}])
    assert machine.ended()[:2] == ("SUCCEEDED", {"over": True})
    assert succeed(machine.tokens[0]) == "TaskTimedOut"


def test_an_execution_that_was_stopped_accepts_no_token(machine):
    machine.start()
    machine.wait_for_tokens(1)
    stepfunctions._stop_execution({"executionArn": machine.execution})
    machine.until(lambda: succeed(machine.tokens[0]) == "TaskTimedOut")
    assert machine.ended()[0] == "ABORTED"


def test_a_token_belongs_to_its_state_machine(machine):
    machine.start()
    machine.wait_for_tokens(1)
    headers = {"x-amz-target": "AWSStepFunctions.SendTaskSuccess"}

    def resource(token):
        body = json.dumps({"taskToken": token, "output": "{}"}).encode()
        return iam_actions.extract_resource_arn("states", "POST", "/", headers, body, {}, "us-east-1", "0" * 12)

    assert resource(machine.tokens[0]) == machine.arn
    assert resource("none") == "*"
