"""Operators that show the late days of a monitoring in Airflow. They only read what the state machine has done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow.exceptions import AirflowFailException
from airflow.providers.amazon.aws.hooks.step_function import StepFunctionHook
from airflow.providers.amazon.aws.operators.base_aws import AwsBaseOperator
from airflow.providers.amazon.aws.utils.mixins import aws_template_fields
from airflow.sdk import BaseOperator


class LateDaysOperator(AwsBaseOperator[StepFunctionHook]):
    """Return the outcome of each late day of an execution of `monitor-days`, as its state machine reports them.

    A failed execution has no output, so the outcomes are read from the history. Fails if the execution ended before all
    late days were done.
    """

    aws_hook_class = StepFunctionHook
    template_fields: Sequence[str] = aws_template_fields("execution_arn")

    def __init__(self, *, execution_arn: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.execution_arn = execution_arn

    def execute(self, context: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        """Read the outcomes, once all late days are done."""
        # The newest first: the state that handles the days is one of the last.
        pages = self.hook.conn.get_paginator("get_execution_history").paginate(
            executionArn=self.execution_arn, reverseOrder=True, PaginationConfig={"PageSize": 100}
        )
        for page in pages:
            for event in page["events"]:
                if event["type"] == "MapStateExited":
                    days: list[dict[str, Any]] = json.loads(event["stateExitedEventDetails"]["output"])["days"]
                    return days
        raise AirflowFailException(f"{self.execution_arn} ended before its late days were done: see the task before")


class LateDayOperator(BaseOperator):
    """Show the outcome of one late day: log it, return it, and fail if a step of the day has failed."""

    def __init__(self, *, day: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.day = day

    def execute(self, context: Any) -> dict[str, Any]:  # noqa: ARG002
        """Log and return the outcome. Raises `AirflowFailException`, which is not retried, for a failed step."""
        self.log.info("%s", json.dumps(self.day, indent=2))
        if "failed_step" in self.day:
            raise AirflowFailException(f"{self.day['date']}: {self.day['reason']}")
        return self.day
