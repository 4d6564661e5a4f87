"""What a run or a comparison has used of AWS: the history of its execution, and the hours that EMR has billed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from slackwater.aws.executions.execution_history import FINAL_EVENTS, Event, history_events, with_states
from slackwater.aws.failures import translated, unless_refused
from slackwater.costs.cost import BilledHours, RunUsage
from slackwater.errors import CloudError
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.cost_recorder import UsageGone
from slackwater.runs.record import RunRecord

# The first state of an attempt, in `step_functions/pipeline.asl.json`. An execution may have two attempts.
_FREEZE = "Freeze inputs"
_ANSWERED = frozenset({"TaskSubmitted", "TaskSucceeded", "TaskFailed", "TaskTimedOut"})


@dataclass(frozen=True, kw_only=True)
class RunUsageReader:
    """`slackwater.runs.cost_recorder.UsageReader` over Step Functions and EMR Serverless."""

    states: Any
    emr: Any
    application: str
    """The id of the EMR Serverless application."""
    function_mb: Mapping[str, int]
    """Memory of the function that a state calls, by the name of the state."""

    def usage(self, record: RunRecord | ComparisonRun) -> RunUsage | UsageGone:
        """Return what an attempt or a comparison has used: one read of the history, and one of each Spark job."""
        with translated(f"read the history of {record.execution}"):
            # With their data: the ids of jobs, and the number of the attempt.
            pages = partial(history_events, self.states, record.execution, with_data=True)
            events = unless_refused("ExecutionDoesNotExist", lambda: list(pages()))
        if events is None:
            return UsageGone("Step Functions keeps no history of its execution any more")
        if not events:  # the history is eventually consistent
            raise CloudError(f"Step Functions does not know the history of {record.execution} yet: try again")
        run = record if isinstance(record, RunRecord) else None
        part = _attempt_events(events, run.run.attempt) if run else events
        jobs, queued_seconds = list[BilledHours | None](), 0.0
        for application, job in _jobs(part):
            if application != self.application:
                return UsageGone("its Spark application was deleted")
            read_job = partial(self.emr.get_job_run, applicationId=self.application, jobRunId=job)
            with translated(f"read the Spark job {job}"):
                found = unless_refused("ResourceNotFoundException", read_job)
            if found is None:
                return UsageGone(f"EMR Serverless does not know its job {job} any more")
            job_run = found["jobRun"]
            jobs.append(_billed(job_run))
            queued_seconds = max(queued_seconds, job_run.get("queuedDurationMilliseconds", 0) / 1000)
        seconds = _function_seconds(part)
        has_ended = any(event["type"] in FINAL_EVENTS for event in events) or part[-1] is not events[-1]
        return RunUsage(
            jobs=tuple(jobs),
            transitions=_transitions(part),
            lambda_seconds=sum(duration for _, duration in seconds),
            lambda_gb_seconds=sum(self.function_mb.get(state, 0) / 1024 * duration for state, duration in seconds),
            ended=has_ended and (run is None or run.ended_at is not None),
            queued_seconds=queued_seconds,
        )


def _billed(job_run: Mapping[str, Any]) -> BilledHours | None:
    """Return what EMR Serverless has billed for a job, or None if that is not known yet."""
    billed = job_run.get("billedResourceUtilization")
    if not billed:
        return None
    return BilledHours(*(billed.get(key, 0.0) for key in ("vCPUHour", "memoryGBHour", "storageGBHour")))


def _attempt_events(events: list[Event], attempt: int) -> list[Event]:
    """Return the events of one attempt: from its first state to that of the next attempt, or to the end.

    Waiting for the execution that had the day before belongs to the attempt that follows.
    """
    parts: list[list[Event]] = [[]]
    claimed: list[int | None] = [None]
    for event in events:
        details = event.get("stateEnteredEventDetails") or event.get("stateExitedEventDetails") or {}
        if details.get("name") == _FREEZE:
            if event["type"] == "TaskStateEntered" and claimed[-1] is not None:
                parts.append([])
                claimed.append(None)
            elif event["type"] == "TaskStateExited":
                frozen = _loaded(details.get("output"))
                claimed[-1] = frozen["run"]["attempt"] if frozen.get("action") == "run" else None
        parts[-1].append(event)
    # An execution that was stopped while it froze the inputs may have claimed the day without an exit of the state.
    return parts[claimed.index(attempt)] if attempt in claimed else parts[-1]


def _jobs(events: Iterable[Event]) -> list[tuple[str, str]]:
    """Return application and id of each Spark job that was started, also of those that failed or were cancelled."""
    jobs: dict[str, str] = {}
    for event in events:
        for kind, field in (("Submitted", "output"), ("Succeeded", "output"), ("Failed", "cause")):
            details = event.get(f"task{kind}EventDetails")
            job = _loaded(details.get(field)) if details else {}
            if isinstance(job.get("JobRunId"), str):
                jobs[job["JobRunId"]] = str(job.get("ApplicationId"))
    return [(application, job) for job, application in jobs.items()]


def _function_seconds(events: Iterable[Event]) -> list[tuple[str, float]]:
    """Return for each call of a Lambda function its state, and the seconds from the request to the response.

    A state that waits for a token has an event when its function has answered.
    """
    calls: list[tuple[str, float]] = []
    names: list[str] = []
    started: dict[int, datetime] = {}
    for event, position in with_states(events):
        if event["type"].endswith("StateEntered"):
            names.append(event["stateEnteredEventDetails"]["name"])
        elif event.get("taskScheduledEventDetails", {}).get("resourceType") == "lambda":
            started[position] = event["timestamp"]
        elif position in started and event["type"] in _ANSWERED:
            calls.append((names[position], (event["timestamp"] - started.pop(position)).total_seconds()))
    return calls


def _transitions(events: Iterable[Event]) -> int:
    """Return how many states were entered, and how many times a task was repeated: Step Functions bills both."""
    entered, scheduled = 0, list[int]()
    for event, position in with_states(events):
        entered += event["type"].endswith("StateEntered")
        if event["type"] == "TaskScheduled":
            scheduled.append(position)
    return entered + len(scheduled) - len(set(scheduled))


def _loaded(value: Any) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else: a cause may be any text."""
    try:
        loaded = json.loads(value)
    except (TypeError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
