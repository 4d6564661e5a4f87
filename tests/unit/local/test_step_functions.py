"""States that start job runs, in the emulator's state machines: retries of a call that has started a job."""

from __future__ import annotations

import json
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
def run_stage(monkeypatch):
    """Run the first stage's state of a pipeline's machine. Return the service and the state's output or error."""
    for name in (*("_execute_task", "_execute_choice"), "_run_parallel_branches", "_apply_output_path", "_add_event"):
        monkeypatch.setattr(stepfunctions, name, getattr(stepfunctions, name))
    monkeypatch.setattr(stepfunctions, "_SERVICE_DISPATCH", dict(stepfunctions._SERVICE_DISPATCH))
    monkeypatch.setattr(stepfunctions, "_scaled_sleep", lambda _seconds: None)
    monkeypatch.setitem(iam._roles, "r", role_with_all_permissions("states"))
    state_machines.complete_states()

    def run(*results, lost=0):
        emr = Emr(FakeAttemptRunner(*results))
        api = LosesAnswers(emr.store, emr.jobs)
        api.lost = lost
        step_functions.register(api, emr.store, emr.jobs)
        role = "arn:aws:iam::000000000000:role/r"
        stage = json.dumps(compile_machine(PIPELINE, FRAME)["States"][STAGE])
        stage = stage.replace("${ApplicationId}", emr.application.id).replace("${JobRoleArn}", role)
        stage = json.loads(stage)
        del stage["Next"], stage["Catch"]
        assigned = {"run": RUN, "restore": "", "spark_parameters": workers()}
        given = {"Type": "Pass", "Assign": assigned, "Next": STAGE}
        machine = {"QueryLanguage": "JSONata", "StartAt": "Given", "States": {"Given": given, STAGE: stage}}
        machine["States"][STAGE]["End"] = True
        created = stepfunctions._create_state_machine(
            {"name": uuid4().hex, "definition": json.dumps(machine), "roleArn": role, "type": "EXPRESS"}
        )
        arn = json.loads(created[2])["stateMachineArn"]
        return emr, json.loads(stepfunctions._start_sync_execution({"stateMachineArn": arn, "input": "{}"})[2])

    yield run
    stepfunctions.reset()


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
