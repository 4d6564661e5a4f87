"""States that start job runs, in the emulator's state machines: results, errors, ends, and retries."""

from __future__ import annotations

import json
import time
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest
from ministack.services import iam, stepfunctions

from slackwater.local.emr import step_functions
from slackwater.local.emr.api import EmrServerlessApi, StartLimit
from slackwater.local.emr.runner import AttemptResult
from slackwater.local.service_model import EmrError, EmrThrottled
from slackwater.local.services import state_machines
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.retries import RETRIES, SPARK_JOB
from tests.fakes_local import SCOPE, Emr, FakeAttemptRunner, role_with_all_permissions, workers
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.unit

PIPELINE = two_stage_project().pipeline("daily_delays")
FRAME = json.loads(Path("step_functions/pipeline.asl.json").read_text())
STAGE = "Run flights_with_weather"
ROLE = "arn:aws:iam::000000000000:role/r"
RUN = {"run_id": "0" * 32, "attempt": 1, "date": "2013-03-10", "correlation_id": "c"}


class LosesAnswers(EmrServerlessApi):
    """Carries out the first `lost` requests for a job and answers with an internal error, as AWS may."""

    lost = 0

    def call(self, operation, parameters):
        answer = super().call(operation, parameters)
        if self.lost:
            self.lost -= 1
            raise EmrError("the answer was lost")
        return answer


@pytest.fixture
def integration(monkeypatch):
    """Register the integration of a service; the emulator's state machines behave as in the local cloud."""
    for name in (
        *("_execute_task", "_execute_choice", "_run_parallel_branches", "_apply_output_path", "_add_event"),
        *("_invoke_resource_with_timeout", "_run_execution", "_execute_map", "_execute_parallel"),
        "_invoke_nested_start_execution_sync",
    ):
        monkeypatch.setattr(stepfunctions, name, getattr(stepfunctions, name))
    monkeypatch.setattr(stepfunctions, "_SERVICE_DISPATCH", dict(stepfunctions._SERVICE_DISPATCH))
    monkeypatch.setattr(stepfunctions, "_scaled_sleep", lambda _seconds: None)
    monkeypatch.setitem(iam._roles, "r", role_with_all_permissions("states"))
    state_machines.complete_states()
    state_machines.stop_with_parents()
    yield step_functions.register
    stepfunctions.reset()


def machine(start, **states):
    definition = json.dumps({"QueryLanguage": "JSONata", "StartAt": start, "States": states})
    created = {"name": uuid4().hex, "definition": definition, "roleArn": ROLE, "type": "EXPRESS"}
    return json.loads(stepfunctions._create_state_machine(created)[2])["stateMachineArn"]


@pytest.fixture
def run_stage(integration):
    """Run the first stage's state of a pipeline's machine. Return the service and the state's output or error."""

    def run(*results, lost=0):
        emr = Emr(FakeAttemptRunner(*results))
        api = LosesAnswers(emr.store, emr.jobs)
        api.lost = lost
        integration(api, emr.store, emr.jobs)
        stage = json.dumps(compile_machine(PIPELINE, FRAME)["States"][STAGE])
        stage = stage.replace("${ApplicationId}", emr.application.id).replace("${JobRoleArn}", ROLE)
        stage = json.loads(stage)
        del stage["Next"], stage["Catch"]
        assigned = {"run": RUN, "restore": "", "spark_parameters": workers()}
        given = {"Type": "Pass", "Assign": assigned, "Next": STAGE}
        arn = machine("Given", Given=given, **{STAGE: {**stage, "End": True}})
        return emr, json.loads(stepfunctions._start_sync_execution({"stateMachineArn": arn, "input": "{}"})[2])

    return run


@pytest.fixture
def start_job(integration):
    """Start an execution with one task, a job of the fake service; return its ARN."""
    emr = Emr()
    integration(emr.api, emr.store, emr.jobs)

    def start(task=None, **request):
        job = {"ApplicationId": emr.application.id, "ExecutionRoleArn": ROLE}
        job["JobDriver"] = {"SparkSubmit": {"EntryPoint": "s3://code/job.py", "SparkSubmitParameters": workers()}}
        resource = "arn:aws:states:::emr-serverless:startJobRun.sync"
        task = {"Type": "Task", "Resource": resource, "Arguments": job | request, "End": True} | (task or {})
        started = stepfunctions._start_execution({"stateMachineArn": machine("Job", Job=task), "input": "{}"})
        return json.loads(started[2])["executionArn"]

    return emr, start


def ended(execution):
    until(lambda: stepfunctions._executions[execution]["status"] != "RUNNING")
    return stepfunctions._executions[execution]


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_state_returns_its_job_run(start_job):
    emr, start = start_job
    execution = ended(start(Tags={"day": "2013-03-08"}))
    [job], output = emr.store.job_runs.values(), json.loads(execution["output"])
    assert (execution["status"], output["State"], output["Arn"]) == ("SUCCEEDED", "SUCCESS", job.arn)
    assert (output["ApplicationId"], output["Tags"]) == (emr.application.id, {"day": "2013-03-08"})
    assert output["BilledResourceUtilization"]["VCPUHour"] > 0


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"ApplicationId": "00nothere"}, "EMRServerless.ResourceNotFoundException"),
        ({"ExecutionRoleArn": "x"}, "EMRServerless.ValidationException"),
    ],
)
def test_errors_of_the_api_have_their_names(start_job, request_, error):
    execution = ended(start_job[1](**request_))
    assert (execution["status"], execution["error"]) == ("FAILED", error)


def test_a_stopped_execution_cancels_its_job_and_stays_aborted(start_job):
    emr, start = start_job
    with emr.runner.holding():
        arn = start()
        until(lambda: [job.state for job in emr.store.job_runs.values()] == ["RUNNING"])
        stepfunctions._stop_execution({"executionArn": arn, "error": "Enough", "cause": "tests"})
        [job] = emr.store.job_runs.values()
        assert emr.ended(job).state == "CANCELLED"
    execution = ended(arn)
    assert (execution["status"], execution["error"]) == ("ABORTED", "Enough")
    # The history of the execution names the job, although its state has not ended: so its cost is known.
    [submission] = [event for event in execution["events"] if event["type"] == "TaskSubmitted"]
    assert json.loads(submission["taskSubmittedEventDetails"]["output"])["JobRunId"] == job.id


def test_a_state_that_times_out_cancels_its_job(start_job):
    emr, start = start_job
    with emr.runner.holding():
        execution = ended(start({"TimeoutSeconds": 1}))
        [job] = emr.store.job_runs.values()
        assert emr.ended(job).state == "CANCELLED"
    assert (execution["status"], execution["error"]) == ("FAILED", "States.Timeout")


def test_a_retry_after_a_lost_answer_waits_for_the_job_that_the_lost_call_started(run_stage):
    emr, execution = run_stage(lost=2)
    assert execution["status"] == "SUCCEEDED", execution
    assert [job.state for job in emr.store.job_runs.values()] == ["SUCCESS"]
    assert json.loads(execution["output"]) == {}
    assert len(emr.runner.submitted) == 1


def test_a_hundred_pipelines_that_start_at_the_same_time_get_their_jobs_started_within_the_retries():
    assert f"EMRServerless.{EmrThrottled.code}" in RETRIES[SPARK_JOB]["ErrorEquals"]
    retrier, random, now = RETRIES[SPARK_JOB], Random(2013), [0.0]  # noqa: S311 - not for secrets
    limit, failed = StartLimit(lambda: now[0]), 0
    requests = [(0.0, pipeline, 0) for pipeline in range(100)]
    while requests:
        now[0], pipeline, retries = heappop(requests)
        if limit.take(SCOPE):
            continue
        if retries == retrier["MaxAttempts"]:
            failed += 1
            continue
        pause = min(retrier["IntervalSeconds"] * retrier["BackoffRate"] ** retries, retrier["MaxDelaySeconds"])
        heappush(requests, (now[0] + random.uniform(0, pause), pipeline, retries + 1))
    assert failed == 0


def test_a_job_that_ran_and_failed_is_started_once_and_fails_the_state(run_stage):
    emr, execution = run_stage(AttemptResult(1, "AuditFailed: key is not unique"), lost=1)
    assert (execution["status"], execution["error"]) == ("FAILED", "States.TaskFailed")
    assert json.loads(execution["cause"])["StateDetails"].endswith("AuditFailed: key is not unique")
    assert len(emr.runner.submitted) == 1
