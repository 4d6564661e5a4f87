"""Operators that start the state machines and show what they have done. They decide nothing and process no data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from airflow.exceptions import AirflowFailException
from airflow.providers.amazon.aws.hooks.step_function import StepFunctionHook
from airflow.providers.amazon.aws.operators.base_aws import AwsBaseOperator
from airflow.providers.amazon.aws.operators.step_function import StepFunctionStartExecutionOperator
from airflow.providers.amazon.aws.utils.mixins import aws_template_fields
from airflow.sdk import Asset, AssetAlias, BaseOperator


class NumberedExecutionHook(StepFunctionHook):
    """Starts the executions of a task one after the other: `NAME-1`, `NAME-2`, ..."""

    def start_execution(
        self,
        state_machine_arn: str,
        name: str | None = None,
        state_machine_input: Any = None,
        is_redrive_execution: bool = False,
    ) -> str:
        """Return the ARN of the execution of this name that is running; start the next one if none is.

        The input gets the execution's full name as its `correlation_id`.
        """
        execution_arn = state_machine_arn.replace(":stateMachine:", ":execution:")
        for number in count(1):
            numbered = f"{name}-{number}"
            document = {**state_machine_input, "correlation_id": numbered}
            try:
                started: str = super().start_execution(state_machine_arn, numbered, document, is_redrive_execution)
            except self.conn.exceptions.ExecutionAlreadyExists:
                # Step Functions returns a running execution only if it has the same input, which a deployment changes.
                existing = f"{execution_arn}:{numbered}"
                if self.describe_execution(existing)["status"] == "RUNNING":
                    self.log.info("Waiting for %s, which an earlier try of this task has started", existing)
                    return existing
            else:
                return started
        raise AssertionError("unreachable: count() has no end")


class RunStateMachineOperator(StepFunctionStartExecutionOperator):
    """Start a state machine and wait for its end, or for the execution that an earlier try of the task has started.

    `name` is the same for all tries of a task. With `table`, an execution that has published a day adds an event to
    that asset.
    """

    aws_hook_class = NumberedExecutionHook

    def __init__(self, *, table: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=_outlets(table), **kwargs)
        self.table = table

    def execute_complete(self, context: Any, event: dict[str, Any] | None = None) -> Any:
        """Return the ARN of the execution once it has succeeded. Raises `AirflowException` if it has failed."""
        execution_arn = super().execute_complete(context, event)
        if self.table:
            output = json.loads(self.hook.describe_execution(execution_arn)["output"])
            if output["outcome"] == "published":
                _add_event(context, self.table, output["run"])
        return execution_arn


class LateDaysOperator(AwsBaseOperator[StepFunctionHook]):
    """Return the outcome of each late day of an execution of `monitor-days`, as its state machine reports them.

    A failed execution has no output, so the outcomes are read from the history. Each day that was published again adds
    an event to the asset `table`. Fails if the execution ended before all late days were done.
    """

    aws_hook_class = StepFunctionHook
    template_fields: Sequence[str] = aws_template_fields("execution_arn")

    def __init__(self, *, execution_arn: str, table: str, **kwargs: Any) -> None:
        super().__init__(outlets=_outlets(table), **kwargs)
        self.execution_arn = execution_arn
        self.table = table

    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Read the outcomes, once all late days are done."""
        # The newest first: the state that handles the days is one of the last.
        pages = self.hook.conn.get_paginator("get_execution_history").paginate(
            executionArn=self.execution_arn, reverseOrder=True, PaginationConfig={"PageSize": 100}
        )
        for page in pages:
            for event in page["events"]:
                if event["type"] == "MapStateExited":
                    days: list[dict[str, Any]] = json.loads(event["stateExitedEventDetails"]["output"])["days"]
                    for day in days:
                        # A day that was only compared, or only notified of, has no attempt.
                        if day["outcome"] == "published" and "attempt" in day:
                            _add_event(context, self.table, day)
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


def _outlets(table: str | None) -> list[AssetAlias]:
    # Through an alias a task may add no event or several; as a plain outlet, a table would get one from each success.
    return [AssetAlias(table)] if table else []


def _add_event(context: Any, table: str, run: dict[str, Any]) -> None:
    """Add an event to the table's asset: which version of which day was published."""
    extra = {"date": run["date"], "version": run["attempt"], "run_id": run["run_id"]}
    context["outlet_events"][AssetAlias(table)].add(Asset(table), extra=extra)
