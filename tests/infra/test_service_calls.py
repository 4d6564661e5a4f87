"""Calls of AWS services in state machines are compared with botocore's models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.lint import PLACEHOLDER_VALUE
from infra.service_calls import call_findings
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra

JOB: dict[str, Any] = {
    "Type": "Task",
    "Resource": "arn:aws:states:::emr-serverless:startJobRun.sync",
    "Arguments": {
        "ApplicationId": PLACEHOLDER_VALUE,
        "ClientToken": "{% $states.context.Execution.Name %}",
        "ExecutionRoleArn": "arn:aws:iam::123456789012:role/job",
        "ExecutionTimeoutMinutes": 60,
        "Tags": {"source": "{% $states.input.source %}"},
        "JobDriver": {"SparkSubmit": {"EntryPoint": "s3://code/job.py", "EntryPointArguments": ["--date", "{% $d %}"]}},
    },
    "Retry": [{"ErrorEquals": ["EMRServerless.InternalServerException", "EMRServerless.ThrottlingException"]}],
    "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "End"}],
}
FUNCTION: dict[str, Any] = {
    "Type": "Task",
    "Resource": "arn:aws:states:::lambda:invoke",
    "Arguments": {"FunctionName": PLACEHOLDER_VALUE, "Payload": {"any": ["thing"]}},
    "Retry": [
        {"ErrorEquals": ["Lambda.TooManyRequestsException", "Lambda.SdkClientException", "Throttled"]},
        {"ErrorEquals": ["Lambda.Unknown", "Runtime.ExitError"]},
    ],
}


def findings(state: dict[str, Any]) -> list[str]:
    return list(call_findings({"States": {"Call": state}}, unknown=PLACEHOLDER_VALUE))


def changed(state: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of the state with the value at a path such as `Arguments.JobDriver`; None removes it."""
    copied = json.loads(json.dumps(state))
    *parents, name = path.split(".")
    target = copied
    for parent in parents:
        target = target[parent]
    target[name] = value
    if value is None:
        del target[name]
    return copied


def test_all_calls_of_our_state_machines_fit_the_services(assembly: Assembly) -> None:
    for name, definition in assembly.machines().items():
        assert list(call_findings(json.loads(definition), unknown=PLACEHOLDER_VALUE, path=name)) == []


@pytest.mark.parametrize(
    "state",
    [
        JOB,
        FUNCTION,
        changed(JOB, "Arguments", "{% $states.input %}"),
        changed(JOB, "Arguments.JobDriver", "{% $driver %}"),
        {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Arguments": {"StateMachineArn": PLACEHOLDER_VALUE, "Input": {"date": "{% $date %}"}},
            "Retry": [{"ErrorEquals": ["StepFunctions.ExecutionLimitExceededException"]}],
        },
        {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:dynamodb:getItem",
            "Arguments": {"TableName": "runs", "Key": {"pipeline": {"S": "{% $pipeline %}"}}},
            "Retry": [
                {"ErrorEquals": ["DynamoDb.ProvisionedThroughputExceededException", "DynamoDb.DynamoDbException"]}
            ],
        },
    ],
)
def test_a_call_that_fits_its_service_is_accepted(state: dict[str, Any]) -> None:
    assert findings(state) == []


@pytest.mark.parametrize(
    ("path", "value", "finding"),
    [
        ("Resource", "arn:aws:states:::emr-serverless:runJob", "names no operation of a service"),
        ("Resource", "arn:aws:states:::aws-sdk:emr-serverless:startJobRun", "names no operation of a service"),
        ("Arguments.ExecutionTimeout", 60, "Arguments.ExecutionTimeout: there is no such argument"),
        ("Arguments.applicationId", "x", "Arguments.applicationId: there is no such argument"),
        ("Arguments.ClientToken", None, "Arguments.ClientToken: this argument is required"),
        ("Arguments.ClientToken", "x" * 65, "is not within 1 to 64"),
        ("Arguments.ClientToken", "two words", "does not match [A-Za-z0-9._-]+"),
        ("Arguments.ExecutionTimeoutMinutes", "60", "is not of type long"),
        ("Arguments.ExecutionTimeoutMinutes", True, "is not of type long"),
        ("Arguments.ExecutionTimeoutMinutes", 10**7, "is not within 0 to 1000000"),
        ("Arguments.Mode", "FAST", "is not one of BATCH, STREAMING"),
        ("Arguments.Tags", {"source": 1}, "Arguments.Tags.source: 1 is not of type string"),
        ("Arguments.Tags", {"a?": "b"}, "Arguments.Tags (key a?): 'a?' does not match"),
        ("Arguments.JobDriver.Hive", {"Query": "SELECT 1"}, "Arguments.JobDriver: exactly one of its members"),
        ("Arguments.JobDriver.SparkSubmit.EntryPoint", None, "SparkSubmit.EntryPoint: this argument is required"),
        ("Arguments.JobDriver.SparkSubmit.EntryPointArguments", [1], "EntryPointArguments[0]: 1 is not of type"),
        ("Retry", [{"ErrorEquals": ["EMRServerless.BusyException"]}], "EMRServerless.BusyException is no error"),
        ("Retry", [{"ErrorEquals": ["Emr.InternalServerException"]}], "Emr.InternalServerException is no error"),
        ("Retry", [{"ErrorEquals": ["Throttled"]}], "Throttled is no error of EMRServerless"),
        ("Retry", [{"ErrorEquals": ["Runtime.ExitError"]}], "Runtime.ExitError is no error of EMRServerless"),
        ("Catch", [{"ErrorEquals": ["States.Failed"]}], "Catch: States.Failed is no error"),
    ],
)
def test_a_call_that_step_functions_or_the_service_would_refuse_is_reported(
    path: str, value: Any, finding: str
) -> None:
    (found,) = findings(changed(JOB, path, value))
    assert found.startswith("/Call: ")
    assert finding in found


def test_a_function_s_errors_are_those_of_lambda_and_of_our_library() -> None:
    wrong = [{"ErrorEquals": ["Lambda.TooBusyException", "Trottled", "EMRServerless.InternalServerException"]}]
    assert len(findings(changed(FUNCTION, "Retry", wrong))) == 3


def test_calls_inside_of_map_and_parallel_states_are_checked() -> None:
    wrong = {"States": {"Call": changed(JOB, "Arguments.ClientToken", None)}}
    branches = {"Type": "Parallel", "Branches": [wrong, wrong]}
    outer = {"Type": "Map", "ItemProcessor": {"States": {"Both": branches}}}
    machine = {"States": {"Each": outer}}
    assert (
        list(call_findings(machine, unknown=PLACEHOLDER_VALUE, path="machine"))
        == ["machine/Each/Both/Call: Arguments.ClientToken: this argument is required"] * 2
    )
