"""What a run has used, from histories of executions as Step Functions returns them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.executions.run_usage import RunUsageReader
from slackwater.costs.cost import BilledHours
from slackwater.errors import CloudError, Throttled
from slackwater.runs.cost_recorder import UsageGone
from slackwater.runs.record import RunState
from tests.unit.runs.test_cost import a_comparison, a_record

pytestmark = pytest.mark.unit

_HOURS = ("vCPUHour", "memoryGBHour", "storageGBHour")
START = datetime(2013, 3, 12, 6, tzinfo=UTC)


class History:
    """The events of an execution, written as the machine runs."""

    def __init__(self):
        self.events, self.seconds = [], 0.0

    def add(self, event_type, *, after=0.0, **details):
        self.seconds += after
        number = len(self.events) + 1
        at = START + timedelta(seconds=self.seconds)
        self.events.append({"id": number, "previousEventId": number - 1, "type": event_type, "timestamp": at} | details)
        return self

    def enter(self, state, kind="Task"):
        return self.add(f"{kind}StateEntered", stateEnteredEventDetails={"name": state})

    def exit(self, state, output="{}", kind="Task"):
        return self.add(f"{kind}StateExited", stateExitedEventDetails={"name": state, "output": output})

    def scheduled(self, service):
        return self.add("TaskScheduled", taskScheduledEventDetails={"resourceType": service})

    def function(self, state, *, seconds, output="{}"):
        self.enter(state).scheduled("lambda")
        return self.add("TaskSucceeded", after=seconds, taskSucceededEventDetails={"output": "{}"}).exit(state, output)

    def freeze(self, *, seconds, action="run", attempt=1):
        output = json.dumps({"action": action, "run": {"attempt": attempt} if action == "run" else None})
        self.function("Freeze inputs", seconds=seconds, output=output)
        self.enter("Decide what to do", "Choice").exit("Decide what to do", kind="Choice")
        return self

    def job(self, job, *, end="Succeeded", application="app"):
        self.enter("Run main").scheduled("emr-serverless")
        ids = json.dumps({"ApplicationId": application, "JobRunId": job})
        self.add("TaskSubmitted", taskSubmittedEventDetails={"output": ids})
        if end == "Succeeded":
            self.add("TaskSucceeded", after=90, taskSucceededEventDetails={"output": ids})
        elif end == "Failed":
            self.add("TaskFailed", after=90, taskFailedEventDetails={"cause": ids})
        return self.exit("Run main") if end != "Aborted" else self

    def end(self, event_type="ExecutionSucceeded"):
        return self.add(event_type)


class States:
    """The part of Step Functions' client that is used: a paginator of one history."""

    def __init__(self, events):
        self.events = events

    def get_paginator(self, operation):
        assert operation == "get_execution_history"
        return self

    def paginate(self, **arguments):
        assert arguments["includeExecutionData"]
        if isinstance(self.events, str):
            raise ClientError({"Error": {"Code": self.events}}, "GetExecutionHistory")
        half = len(self.events) // 2
        yield {"events": self.events[:half]}
        yield {"events": self.events[half:]}


class Emr:
    """EMR Serverless with what it has billed for each job, or an error's code."""

    def __init__(self, queued=None, **billed):
        self.queued, self.billed, self.asked = queued or {}, billed, []

    def get_job_run(self, *, applicationId, jobRunId):  # noqa: N803 - the API's names
        assert applicationId == "app"
        self.asked.append(jobRunId)
        billed = self.billed[jobRunId]
        if isinstance(billed, str):
            raise ClientError({"Error": {"Code": billed}}, "GetJobRun")
        more = {"billedResourceUtilization": dict(zip(_HOURS, billed, strict=False))}
        if jobRunId in self.queued:
            more["queuedDurationMilliseconds"] = self.queued[jobRunId]
        return {"jobRun": {"jobRunId": jobRunId} | (more if billed else {})}


def read(history, *, emr=None, record=None):
    events = history if isinstance(history, str) else history.events
    function_mb = {"Freeze inputs": 1024, "Record the publication": 512, "Record the failure": 512}
    function_mb |= {"Choose the versions": 512, "Read the comparison": 512}
    reader = RunUsageReader(
        states=States(events), emr=emr or Emr(j1=(0.1, 0.4, 0.0)), application="app", function_mb=function_mb
    )
    return reader.usage(record or a_record())


def a_run(job="j1", **more):
    return History().freeze(seconds=2).job(job, **more)


def test_a_published_run():
    usage = read(a_run().function("Record the publication", seconds=0.5).end())
    assert usage.jobs == (BilledHours(0.1, 0.4, 0.0),)
    # Freeze, decide, run and record: four states.
    assert (usage.transitions, usage.ended) == (4, True)
    assert usage.lambda_seconds == pytest.approx(2.5)
    assert usage.lambda_gb_seconds == pytest.approx(2 * 1 + 0.5 * 0.5)


@pytest.mark.parametrize(("queued", "seconds"), [({}, 0), ({"j1": 1500, "j2": 90_000}, 90), ({"j2": 400}, 0.4)])
def test_the_job_that_has_waited_longest_in_the_queue_counts(queued, seconds):
    emr = Emr(queued, j1=(0.1, 0.4, 0.0), j2=(0.1, 0.4, 0.0))
    assert read(a_run("j1").job("j2").end(), emr=emr).queued_seconds == seconds


def test_a_run_is_not_over_while_its_execution_runs():
    assert read(a_run().enter("Record the publication").scheduled("lambda")).ended is False
    assert read(a_run().end(), record=a_record(ended=None, state=RunState.RUNNING)).ended is False


def test_a_run_without_jobs_of_its_own_asks_emr_for_nothing():
    emr = Emr()
    usage = read(History().freeze(seconds=2).function("Record the failure", seconds=1).end("ExecutionFailed"), emr=emr)
    assert (usage.jobs, emr.asked, usage.ended) == ((), [], True)


@pytest.mark.parametrize(("end", "final"), [("Failed", "ExecutionFailed"), ("Aborted", "ExecutionAborted")])
def test_a_job_that_failed_or_was_cancelled_costs(end, final):
    usage = read(a_run(end=end).end(final), record=a_record(state=RunState.FAILED))
    assert (usage.jobs, usage.ended) == ((BilledHours(0.1, 0.4, 0.0),), True)


def test_a_repeated_call_of_a_task_is_another_transition():
    history = History().enter("Freeze inputs").scheduled("lambda")
    history.add("TaskFailed", after=1, taskFailedEventDetails={"cause": "a timeout"}).scheduled("lambda")
    history.add("TaskSucceeded", after=2, taskSucceededEventDetails={"output": "{}"})
    usage = read(history.exit("Freeze inputs", json.dumps({"action": "run", "run": {"attempt": 1}})).end())
    assert (usage.transitions, usage.lambda_seconds) == (2, 3)


def test_a_run_pays_for_the_evaluation_of_its_inputs_and_not_for_the_time_that_it_waits():
    history, wait = History(), "Wait for the inputs"
    for end in ("TaskTimedOut", "TaskSucceeded"):
        history.enter(wait).scheduled("lambda").add(
            "TaskSubmitted", after=2, taskSubmittedEventDetails={"output": "{}"}
        )
        history.add(end, after=898).exit(wait)
    waited, plain = read(history.freeze(seconds=2).job("j1")), read(a_run())
    assert waited.lambda_seconds == plain.lambda_seconds + 4
    assert waited.transitions == plain.transitions + 2


def test_two_attempts_of_one_execution_pay_their_own_jobs():
    history = a_run("j1", end="Failed").function("Record the failure", seconds=1)
    history.enter("Decide whether to retry", "Choice").exit("Decide whether to retry", kind="Choice")
    history.freeze(seconds=3, attempt=2).job("j2").function("Record the publication", seconds=1).end()
    emr = Emr(j1=(0.1, 0.4, 0.0), j2=(0.2, 0.8, 0.5))
    first, second = (read(history, emr=emr, record=a_record(attempt)) for attempt in (1, 2))
    assert (first.jobs, second.jobs) == ((BilledHours(0.1, 0.4, 0.0),), (BilledHours(0.2, 0.8, 0.5),))
    assert (first.transitions, second.transitions) == (5, 4)
    assert (first.lambda_seconds, second.lambda_seconds) == (3, 4)
    assert first.ended
    assert second.ended


def test_waiting_for_another_execution_belongs_to_the_attempt_that_follows():
    history = History().freeze(seconds=1, action="wait").enter("Wait for the other execution", "Wait")
    history.exit("Wait for the other execution", kind="Wait").freeze(seconds=2, attempt=7).job("j1").end()
    usage = read(history, record=a_record(7))
    assert (usage.transitions, usage.lambda_seconds, len(usage.jobs)) == (6, 3, 1)


def test_a_comparison_pays_its_whole_execution():
    history = History().function("Choose the versions", seconds=1).enter("Decide whether to compare", "Choice")
    history.exit("Decide whether to compare", kind="Choice").job("j1")
    usage = read(history, record=a_comparison())
    assert (usage.jobs, usage.transitions, usage.ended) == ((BilledHours(0.1, 0.4, 0.0),), 3, False)
    usage = read(history.function("Read the comparison", seconds=0.5).end(), record=a_comparison())
    assert (usage.transitions, usage.lambda_gb_seconds, usage.ended) == (4, 0.75, True)


def test_a_job_that_is_not_billed_yet_is_unknown():
    assert read(a_run().end(), emr=Emr(j1=())).jobs == (None,)


def test_what_aws_does_not_know_any_more_is_gone():
    assert isinstance(read("ExecutionDoesNotExist"), UsageGone)
    assert isinstance(read(a_run().end(), emr=Emr(j1="ResourceNotFoundException")), UsageGone)
    gone = read(a_run(application="former").end())
    assert gone == UsageGone("its Spark application was deleted")


def test_errors_of_aws_are_translated():
    with pytest.raises(Throttled):
        read(a_run().end(), emr=Emr(j1="ThrottlingException"))
    with pytest.raises(Throttled):
        read("ThrottlingException")
    with pytest.raises(CloudError, match="does not know the history"):
        read(History())
