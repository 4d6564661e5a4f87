"""Operators that start and stop the state machines and show what they have done. They process no data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.providers.amazon.aws.hooks.step_function import StepFunctionHook
from airflow.providers.amazon.aws.operators.base_aws import AwsBaseOperator
from airflow.providers.amazon.aws.operators.step_function import StepFunctionStartExecutionOperator
from airflow.providers.amazon.aws.utils.mixins import aws_template_fields
from airflow.sdk import Asset, AssetAlias, BaseOperator


class NumberedExecutionHook(StepFunctionHook):
    """Starts the executions of a task one after the other: `NAME-1`, `NAME-2`, ...

    The first one of a check that arriving data has started is `NAME`: so it is called too if Airflow does not answer.
    """

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
            numbered = f"{name}" if number == 1 and f"{name}".startswith("arrival-") else f"{name}-{number}"
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

    def latest_execution(self, execution_arn: str) -> str:
        """Return the ARN of the execution with the highest number, of those of the same task."""
        base, _, number = execution_arn.rpartition("-")
        for following in count(int(number) + 1):
            try:
                self.describe_execution(f"{base}-{following}")
            except self.conn.exceptions.ExecutionDoesNotExist:
                return f"{base}-{following - 1}"
        raise AssertionError("unreachable: count() has no end")

    def start_again(self, execution_arn: str) -> str:
        """Start the next execution if this one has failed or was stopped; return the ARN of the latest one."""
        description = self.describe_execution(execution_arn)
        if description["status"] in {"RUNNING", "SUCCEEDED"}:
            return execution_arn
        name = description["name"].rpartition("-")[0]
        return self.start_execution(description["stateMachineArn"], name, json.loads(description["input"]))


class RunStateMachineOperator(StepFunctionStartExecutionOperator):
    """Start a state machine and wait for its end, or for the execution that an earlier try of the task has started.

    `name` is the same for all tries of a task. `days` in the configuration of the DAG run are added to the input.
    """

    aws_hook_class = NumberedExecutionHook
    input: dict[str, Any]

    def execute(self, context: Any) -> Any:
        """Start the execution, and return its ARN once it has succeeded."""
        if days := (context["dag_run"].conf or {}).get("days"):
            self.input = {**self.input, "days": days}
        return super().execute(context)

    def execute_complete(self, context: Any, event: dict[str, Any] | None = None) -> Any:
        """Return the ARN of the execution once it has succeeded. Raises `AirflowFailException` if it has failed."""
        try:
            return super().execute_complete(context, event)
        except AirflowException as error:
            # Not retried: Airflow 3.0.6 would fail the retries with the first event (apache/airflow#62845).
            raise AirflowFailException(str(error)) from error


class StopOperator(AwsBaseOperator[NumberedExecutionHook]):
    """Stop the execution that a task has started if it still runs: somebody has marked the run or a task as failed."""

    aws_hook_class = NumberedExecutionHook
    template_fields: Sequence[str] = aws_template_fields("execution_arn")

    def __init__(self, *, execution_arn: str, restarts: bool, **kwargs: Any) -> None:
        """`execution_arn` may be empty. With `restarts`, tasks after the first one may have started the next one."""
        super().__init__(**kwargs)
        self.execution_arn = execution_arn
        self.restarts = restarts

    def execute(self, context: Any) -> str:
        """Return the status of the execution. Raises `AirflowFailException` if it was stopped.

        The tasks after the stopped one are skipped, and without a failed task at its end the run would succeed.
        """
        if not self.execution_arn:
            return "not started"
        arn = self.hook.latest_execution(self.execution_arn) if self.restarts else self.execution_arn
        status: str = self.hook.describe_execution(arn)["status"]
        if status == "RUNNING":
            cause = f"the DAG run {context['dag_run'].run_id} was stopped in Airflow"
            self.hook.conn.stop_execution(executionArn=arn, error="Stopped", cause=cause)
            raise AirflowFailException(f"stopped {arn}")
        return status


class LateDaysOperator(AwsBaseOperator[StepFunctionHook]):
    """Return the outcome of each late day of an execution of `monitor-days`, as its state machine reports them.

    A failed execution has no output, so the outcomes are read from the history. Each day that was published again adds
    an event to the asset `table`. Fails if the execution ended before all late days were done.
    """

    aws_hook_class = StepFunctionHook
    template_fields: Sequence[str] = aws_template_fields("execution_arn")

    def __init__(self, *, execution_arn: str, table: str, **kwargs: Any) -> None:
        super().__init__(outlets=outlets(table), **kwargs)
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
                            add_event(context, self.table, day)
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


def outlets(table: str) -> list[AssetAlias]:
    """Return the outlets of a task that adds events to the asset of a table."""
    # Through an alias a task may add no event or several; as a plain outlet, a table would get one from each success.
    return [AssetAlias(table)]


def add_event(context: Any, table: str, run: dict[str, Any]) -> None:
    """Add an event to the table's asset: which version of which day was published."""
    extra = {"date": run["date"], "version": run["attempt"], "run_id": run["run_id"]}
    context["outlet_events"][AssetAlias(table)].add(Asset(table), extra=extra)
