"""Executions of state machines."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated


class StepFunctionsExecutions:
    """`slackwater.runs.table.Executions` over Step Functions."""

    def __init__(self, states: Any) -> None:
        self._states = states

    def is_running(self, execution: str) -> bool | None:
        """Say whether the execution of that ARN still runs; None when it is not known, as one that has just begun."""
        with translated(f"describe {execution}"):
            try:
                status = self._states.describe_execution(executionArn=execution)["status"]
            except ClientError as error:
                if code_of(error) == "ExecutionDoesNotExist":
                    return None
                raise
        return bool(status in {"RUNNING", "PENDING_REDRIVE"})
