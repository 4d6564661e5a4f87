"""The retry policy of every task of every state machine.

The ASL files state no policy for transient failures. `with_retries` adds it when a pipeline is compiled and when the
other machines are synthesised, so all tasks of one service have the same policy. Bad input is not retried.
"""

from __future__ import annotations

import copy
from typing import Any

from slackwater.errors import DefinitionError

Machine = dict[str, Any]
"""A state machine's definition in Amazon States Language."""

LAMBDA = "arn:aws:states:::lambda:invoke"
LAMBDA_WITH_TOKEN = f"{LAMBDA}.waitForTaskToken"
SPARK_JOB = "arn:aws:states:::emr-serverless:startJobRun.sync"
EXECUTION = "arn:aws:states:::states:startExecution.sync:2"
DESCRIPTION = "arn:aws:states:::aws-sdk:sfn:describeExecution"

_OF_STEP_FUNCTIONS = {"IntervalSeconds": 5, "BackoffRate": 2, "MaxAttempts": 4, "JitterStrategy": "FULL"}
RETRIES: dict[str, dict[str, Any]] = {
    LAMBDA: {
        "Comment": "Lambda was busy, AWS throttled the function or failed it, its process ended, or another execution "
        "changed the day.",
        "ErrorEquals": [
            "Lambda.TooManyRequestsException",
            "Lambda.ServiceException",
            "Lambda.AWSLambdaException",
            "Lambda.SdkClientException",
            # Step Functions has waited too long for the answer: the first call may still work.
            "Lambda.ClientExecutionTimeoutException",
            # The process of the function has ended: AWS documents the first name, and Lambda reports the second one.
            "Lambda.Unknown",
            "Runtime.ExitError",
            # Errors of our own functions: Step Functions names a Python exception by its class.
            "Throttled",
            "Unavailable",
            "DayChanged",
        ],
        # Pauses of up to 2, 4, 8, 16 and 32 seconds: about a minute in total.
        "IntervalSeconds": 2,
        "BackoffRate": 2,
        "MaxAttempts": 5,
        # Each pause is a random part of that: executions that were throttled together do not retry together.
        "JitterStrategy": "FULL",
    },
    SPARK_JOB: {
        "Comment": "EMR Serverless was busy or failed to answer. A job that ran and failed is not retried. A retry has "
        "the same client token, so it finds the job if the failed call has started it.",
        "ErrorEquals": [
            "EMRServerless.ThrottlingException",
            "EMRServerless.InternalServerException",
            "EMRServerless.ServiceQuotaExceededException",
            # AWS documents no name for a throttled call. Where a service's model has no such error, Step Functions may
            # use the base exception of the SDK: SageMaker.AmazonSageMakerException. A missing permission may have the
            # same name; it is then reported after these retries.
            "EMRServerless.EmrServerlessException",
            "EMRServerless.AWSEMRServerlessException",
        ],
        # Pauses of up to 20, 60, 180 and 300 seconds: EMR Serverless starts 25 jobs at once and then one a second, and
        # 100 pipelines may start at the same time.
        "IntervalSeconds": 20,
        "BackoffRate": 3,
        "MaxDelaySeconds": 300,
        "MaxAttempts": 4,
        "JitterStrategy": "FULL",
    },
    EXECUTION: {
        "Comment": "Step Functions was busy. An execution that ran and failed is not retried.",
        "ErrorEquals": [
            # AWS's guide has the first name, and public machines the second one.
            "StepFunctions.ExecutionLimitExceeded",
            "StepFunctions.ExecutionLimitExceededException",
            # The model has no error for a throttled call. Solutions that AWS publishes retry the SDK's base exception.
            "StepFunctions.ThrottlingException",
            "StepFunctions.AWSStepFunctionsException",
        ],
        **_OF_STEP_FUNCTIONS,
    },
    DESCRIPTION: {
        "Comment": "Step Functions was busy, or does not know the execution yet.",
        "ErrorEquals": ["Sfn.ExecutionDoesNotExistException", "Sfn.SfnException"],
        **_OF_STEP_FUNCTIONS,
    },
}
"""The retrier of each service that our state machines call, by the resource of the task."""
# A retry has another token. The state's own time-out is none of these errors.
RETRIES[LAMBDA_WITH_TOKEN] = RETRIES[LAMBDA]


def with_retries(machine: Machine) -> Machine:
    """Return the state machine with the retrier of its service in every task.

    `machine` does not change; the result shares with it what is in both.
    Retriers that a task states itself, for errors of its own, stay in front of it. Tasks inside `Map` and `Parallel`
    states are included. Raises `DefinitionError` for a task whose resource has no retrier.
    """
    return {**machine, "States": {name: _with_retries(name, state) for name, state in machine["States"].items()}}


def _with_retries(name: str, state: Machine) -> Machine:
    result = dict(state)
    if state["Type"] == "Task":
        if state["Resource"] not in RETRIES:
            raise DefinitionError(
                f"state {name!r}: no retry policy for the resource {state['Resource']} "
                f"(add one to slackwater.pipeline.retries; there are: {', '.join(RETRIES)})"
            )
        # Step Functions applies the first retrier that names the error.
        result["Retry"] = [*state.get("Retry", []), copy.deepcopy(RETRIES[state["Resource"]])]
    if "ItemProcessor" in state:
        result["ItemProcessor"] = with_retries(state["ItemProcessor"])
    if "Branches" in state:
        result["Branches"] = [with_retries(branch) for branch in state["Branches"]]
    return result
