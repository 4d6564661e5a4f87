"""Operators that show a run's stages while they run. They read the history of its execution and process no data."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from airflow.exceptions import AirflowFailException, AirflowSkipException
from airflow.providers.amazon.aws.operators.base_aws import AwsBaseOperator
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from slackwater_operators import NumberedExecutionHook, RunStateMachineOperator, add_event, outlets

# Seconds between two looks at an execution: a fifth of the time that was waited, within these bounds. Each look is a
# process of a worker for some seconds.
_FIRST_PAUSE, _LONGEST_PAUSE, _SHARE = 10.0, 120.0, 0.2
LONGEST_WAIT = timedelta(hours=24)
"""How long a task waits: a run may wait for Spark capacity for hours."""
_WAITING = frozenset({"Decide whether to wait", "Wait for the inputs"})


class StartRunOperator(RunStateMachineOperator):
    """Start a run, or join the execution that an earlier try has started; the tasks after it wait for its end."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(deferrable=False, **kwargs)

    def execute(self, context: Any) -> dict[str, Any]:
        """Return the ARN of the execution, and the number of this try."""
        return {"execution_arn": super().execute(context), "try_number": context["ti"].try_number}


class FollowOperator(AwsBaseOperator[NumberedExecutionHook]):
    """Follow the execution that the task `start` has started. Between two looks the task occupies no worker.

    If the task is cleared after the execution has failed, the next execution is started: it keeps the stages that are
    finished, and runs the others.
    """

    aws_hook_class = NumberedExecutionHook
    longest = LONGEST_WAIT

    def execute(self, context: Any) -> Any:
        """Return the result once it is there."""
        started = context["ti"].xcom_pull(task_ids="start")
        execution_arn = self.hook.latest_execution(started["execution_arn"])
        # A failed run is not retried, so a task with more tries than `start` was cleared without it.
        if context["ti"].try_number > started["try_number"]:
            execution_arn = self.hook.start_again(execution_arn)
        return self.look(context, execution_arn=execution_arn)

    def look(self, context: Any, *, execution_arn: str, waited: float = 0.0, event: object = None) -> Any:  # noqa: ARG002
        """Return the result if it is there; defer otherwise. Raises `AirflowFailException` if the execution failed."""
        description = self.hook.describe_execution(execution_arn)
        if (result := self.result(context, description)) is not None:
            return result
        if description["status"] != "RUNNING":
            error, cause = description.get("error", ""), description.get("cause", "")
            # It is not retried: Airflow 3.0.6 would fail the retries with the first event (apache/airflow#62845).
            raise AirflowFailException(f"{execution_arn}: {description['status']}: {error}: {cause}")
        if waited > self.longest.total_seconds():
            raise AirflowFailException(f"{execution_arn} has not ended in {self.longest}")
        pause = min(max(_FIRST_PAUSE, waited * _SHARE), _LONGEST_PAUSE)
        next_look = {"execution_arn": execution_arn, "waited": waited + pause}
        return self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=pause)), method_name="look", kwargs=next_look)

    @abstractmethod
    def result(self, context: Any, description: Mapping[str, Any]) -> Any:
        """Return the result of the task for this description of the execution; None if it is not there yet."""


class WaitOperator(FollowOperator):
    """Show that a run waits for its inputs. If it has failed and is cleared, the next execution waits again."""

    def __init__(self, *, longest: timedelta, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.longest = longest

    def result(self, context: Any, description: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the execution once it has gone on. Log what it waits for."""
        pages = self.hook.conn.get_paginator("get_execution_history").paginate(
            executionArn=description["executionArn"], reverseOrder=True
        )
        entered = description["status"] == "SUCCEEDED"
        for event in (event for page in pages for event in page["events"]):
            name = event.get("stateEnteredEventDetails", {}).get("name")
            if name in _WAITING:
                break
            entered = entered or name is not None
            if event["type"] == "TaskSubmitted" and not entered:
                answer = json.loads(event["taskSubmittedEventDetails"]["output"])
                self.log.info("The run waits for:\n%s", "\n".join(answer["Payload"]["missing"]))
        return {"execution_arn": description["executionArn"]} if entered else None


class StageOperator(FollowOperator):
    """Show one stage: return how long it took. It is skipped if the execution has not run the stage."""

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage

    def result(self, context: Any, description: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Return the seconds of the stage once it has succeeded."""
        pages = self.hook.conn.get_paginator("get_execution_history").paginate(
            executionArn=description["executionArn"], includeExecutionData=False
        )
        seconds = stage_seconds((event for page in pages for event in page["events"]), self.stage)
        if seconds == 0:
            raise AirflowSkipException(f"{self.stage}: an earlier run has finished it, with the same inputs and steps")
        if seconds is None and description["status"] == "SUCCEEDED":
            raise AirflowSkipException("nothing was run: the published day has the same inputs and steps")
        if seconds is None:
            return None
        self.log.info("%s: %.1f s, in %s", self.stage, seconds, description["executionArn"])
        return {"execution_arn": description["executionArn"], "seconds": seconds}


class PublishOperator(FollowOperator):
    """Wait until the day is published, or unchanged. A published day adds an event to the asset `table`."""

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(outlets=outlets(table), **kwargs)
        self.table = table

    def result(self, context: Any, description: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the outcome, `published` or `unchanged`, with the run's attempt."""
        if description["status"] != "SUCCEEDED":
            return None
        output = json.loads(description["output"])
        if output["outcome"] == "published":
            add_event(context, self.table, output["run"])
        self.log.info("%s: attempt %s of %s", output["outcome"], output["run"]["attempt"], output["run"]["date"])
        return {"outcome": output["outcome"], "date": output["run"]["date"], "attempt": output["run"]["attempt"]}


def stage_seconds(events: Iterable[Mapping[str, Any]], stage: str) -> float | None:
    """Return how long a stage has run once it has succeeded; 0 if it was kept; None before, and if it failed.

    The latest run of the stage counts: an execution whose job has lost its workers runs the day once more.
    """
    run, check = f"Run {stage}", f"Is {stage} finished?"
    # By event, the event that has entered its state: branches write their events in any order.
    entered: dict[int, Mapping[str, Any]] = {}
    seconds, failed, checked = None, False, 0
    for event in events:
        kind, before = event["type"], event.get("previousEventId", 0)
        if kind.endswith("StateEntered"):
            entered[event["id"]] = event
            name = event["stateEnteredEventDetails"]["name"]
            if name == run:
                seconds, failed = None, False
            elif checked and before == checked:
                seconds = seconds or 0.0
            continue
        of = entered[event["id"]] = entered.get(before, {})
        name = of.get("stateEnteredEventDetails", {}).get("name")
        if kind.endswith("StateExited"):
            if name == run and not failed:
                seconds = max((event["timestamp"] - of["timestamp"]).total_seconds(), 0.001)
            checked = event["id"] if name == check else checked
        elif name == run:
            failed = kind.endswith(("Failed", "TimedOut"))
    return seconds
