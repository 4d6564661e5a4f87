"""Job runs and applications of the local EMR Serverless: states, queue, tokens, time limits."""

from __future__ import annotations

import pytest

from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.model import EmrConflict, EmrResourceNotFound, EmrValidationError
from slackwater.local.emr.runner import AttemptResult
from slackwater.local.emr.store import EmrStore
from slackwater.local.emulator import Scope
from tests.fakes_local import FakeAttemptRunner

pytestmark = pytest.mark.unit

SCOPE = Scope("000000000000", "us-east-1")
ELSEWHERE = Scope("000000000000", "eu-west-1")


class Emr:
    """The service with one application and a fake runner."""

    def __init__(
        self, runner: FakeAttemptRunner | None = None, *, slots: int = 8, minute: float = 60, **settings
    ) -> None:
        self.store = EmrStore()
        self.runner = runner or FakeAttemptRunner()
        self.jobs = JobRuns(self.store, self.runner, slots=slots, seconds_per_minute=minute)
        self.api = EmrServerlessApi(self.store, self.jobs)
        self.application = self.create("app", **settings)
        self.id = {"applicationId": self.application.id}

    def create(self, token: str, **settings):
        request = {"releaseLabel": "emr-spark-8.0.0", "type": "SPARK", "clientToken": token, **settings}
        return self.store.applications[self.api.create_application(SCOPE, request)["applicationId"]]

    @property
    def state(self) -> str:
        return self.api.get_application(SCOPE, self.id)["application"]["state"]

    def start(self, token: str = "one", **request):  # noqa: S107
        return self.jobs.start(SCOPE, self.request(token, **request))

    def request(self, token: str, *, parameters: str = "", **more):
        driver = {"entryPoint": "s3://code/job.py"} | ({"sparkSubmitParameters": parameters} if parameters else {})
        return {
            "applicationId": self.application.id,
            "clientToken": token,
            "executionRoleArn": "arn:aws:iam::000000000000:role/job",
            "jobDriver": {"sparkSubmit": driver},
            **more,
        }

    def ended(self, run):
        assert self.jobs.wait(run, 10), f"still {run.state}"
        return run

    def until(self, run, state):
        with self.store.changed:
            assert self.store.changed.wait_for(lambda: run.state == state, 10), f"{run.state}, not {state}"


def test_a_job_that_succeeds_starts_its_application_and_is_billed():
    emr = Emr()
    run = emr.ended(emr.start())
    assert (run.state, emr.application.state) == ("SUCCESS", "STARTED")
    document = run.show("JobRun")
    # A driver and three executors of 4 vCPU and 16 GB, for the least that is billed: a minute.
    assert document["billedResourceUtilization"] == {"vCPUHour": 0.267, "memoryGBHour": 1.067, "storageGBHour": 0.0}
    assert document["endedAt"] >= document["startedAt"] >= document["createdAt"]


def test_the_state_details_contain_the_error_of_a_failed_driver():
    emr = Emr(FakeAttemptRunner(AttemptResult(1, "AuditFailed: key is not unique")))
    failed = emr.ended(emr.start())
    assert failed.state == "FAILED"
    assert failed.state_details == (
        "Job failed, please check complete logs in configured logging destination. "
        "ExitCode: 1. Last few exceptions: AuditFailed: key is not unique"
    )


def test_state_details_never_exceed_what_the_api_allows():
    emr = Emr(FakeAttemptRunner(AttemptResult(1, "ValueError: " + "x" * 1000)))
    assert len(emr.ended(emr.start()).state_details) == 256


def test_the_same_token_with_the_same_request_is_the_same_job_run():
    emr = Emr()
    assert emr.start("same") is emr.start("same")
    assert len(emr.store.job_runs) == 1


def test_the_same_token_with_another_request_is_a_conflict():
    emr = Emr()
    emr.start("same")
    with pytest.raises(EmrConflict):
        emr.start("same", name="other")


def test_a_token_belongs_to_its_application():
    emr = Emr()
    first = emr.start("same")
    second = emr.create("second")
    assert emr.jobs.start(SCOPE, {**emr.request("same"), "applicationId": second.id}).id != first.id


def test_more_than_max_concurrent_runs_wait_in_the_queue_in_order():
    emr = Emr(schedulerConfiguration={"maxConcurrentRuns": 1})
    with emr.runner.holding():
        first = emr.start("first")
        emr.until(first, "RUNNING")
        second = emr.start("second")
        emr.until(second, "QUEUED")
        third = emr.start("third")
        emr.until(third, "QUEUED")
    for run in (first, second, third):
        assert emr.ended(run).state == "SUCCESS"
    assert first.ended_at <= second.started_at <= second.ended_at <= third.started_at
    assert second.queued_seconds > 0
    assert first.queued_seconds == 0


def test_a_job_that_waits_longer_than_the_queue_allows_fails():
    emr = Emr(minute=0.001, schedulerConfiguration={"maxConcurrentRuns": 1, "queueTimeoutMinutes": 15})
    with emr.runner.holding():
        first = emr.start("first", executionTimeoutMinutes=0)
        emr.until(first, "RUNNING")
        second = emr.start("second")
        assert emr.ended(second).state == "FAILED"
        assert "queueTimeoutMinutes" in second.state_details


def test_a_queued_job_can_be_cancelled_and_the_next_one_still_runs():
    emr = Emr(schedulerConfiguration={"maxConcurrentRuns": 1})
    with emr.runner.holding():
        first = emr.start("first")
        emr.until(first, "RUNNING")
        second, third = emr.start("second"), emr.start("third")
        emr.until(second, "QUEUED")
        emr.jobs.cancel(second)
        assert emr.ended(second).state == "CANCELLED"
    assert emr.ended(third).state == "SUCCESS"
    assert len(emr.runner.submitted) == 2


def test_jobs_beyond_the_machines_slots_are_scheduled_until_one_is_free():
    emr = Emr(slots=1)
    with emr.runner.holding():
        first = emr.start("first")
        emr.until(first, "RUNNING")
        second = emr.start("second")
        emr.until(second, "SCHEDULED")
    assert emr.ended(second).state == "SUCCESS"


def test_a_running_job_is_cancelled_and_its_slot_is_free_again():
    emr = Emr(slots=1)
    with emr.runner.holding():
        run = emr.start("first")
        emr.until(run, "RUNNING")
        emr.jobs.cancel(run)
        assert emr.ended(run).state == "CANCELLED"
    assert emr.ended(emr.start("second")).state == "SUCCESS"


def test_a_job_that_has_ended_cannot_be_cancelled():
    emr = Emr()
    run = emr.ended(emr.start())
    with pytest.raises(EmrValidationError):
        emr.jobs.cancel(run)


def test_a_job_that_runs_longer_than_it_may_is_cancelled():
    emr = Emr(minute=0.01)
    with emr.runner.holding():
        run = emr.ended(emr.start(executionTimeoutMinutes=1))
    assert (run.state, run.state_details) == ("CANCELLED", "The job run timed out after 1 minutes")


def test_a_retry_policy_runs_another_attempt():
    emr = Emr(FakeAttemptRunner(AttemptResult(1, "IOError: flaky")))
    run = emr.ended(emr.start(retryPolicy={"maxAttempts": 3}))
    assert (run.state, run.attempt, len(run.attempts)) == ("SUCCESS", 2, 1)


def test_attempts_end_with_the_retry_policy():
    emr = Emr(FakeAttemptRunner(*[AttemptResult(1, "IOError: broken")] * 5))
    run = emr.ended(emr.start(retryPolicy={"maxAttempts": 3}))
    assert (run.state, run.attempt, len(emr.runner.submitted)) == ("FAILED", 3, 3)


def test_a_driver_larger_than_the_application_may_be_fails_and_frees_its_slot():
    emr = Emr(slots=1, maximumCapacity={"cpu": "4 vCPU", "memory": "16 GB"})
    big = emr.ended(emr.start("big", parameters="--conf spark.driver.cores=8 --conf spark.driver.memory=20g"))
    assert (big.state, emr.runner.submitted) == ("FAILED", [])
    assert "maximumCapacity" in big.state_details
    assert emr.ended(emr.start("small")).state == "SUCCESS"


def test_an_application_that_does_not_start_by_itself_refuses_jobs_until_it_is_started():
    emr = Emr(autoStartConfiguration={"enabled": False})
    with pytest.raises(EmrValidationError):
        emr.start()
    emr.api.start_application(SCOPE, emr.id)
    assert emr.ended(emr.start()).state == "SUCCESS"


def test_applications_are_not_visible_in_another_region():
    emr = Emr()
    run = emr.start()
    with pytest.raises(EmrResourceNotFound):
        emr.api.get_job_run(ELSEWHERE, {**emr.id, "jobRunId": run.id})
    with pytest.raises(EmrResourceNotFound):
        emr.jobs.start(ELSEWHERE, emr.request("other"))


def test_logs_are_written_to_the_paths_of_emr():
    emr = Emr()
    monitoring = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://logs/emr/"}}}
    run = emr.ended(emr.start(configurationOverrides=monitoring))
    assert emr.runner.log_prefixes == [f"s3://logs/emr/applications/{emr.application.id}/jobs/{run.id}"]


def test_job_runs_are_listed_by_state_and_time_newest_first():
    emr = Emr()
    first, second = emr.ended(emr.start("first")), emr.ended(emr.start("second"))

    def listed(**filters):
        return [run["id"] for run in emr.api.list_job_runs(SCOPE, {**emr.id, **filters})["jobRuns"]]

    assert listed(states=["SUCCESS"]) == [second.id, first.id]
    assert listed(states=["FAILED"]) == []
    assert listed(createdAtAfter=second.created_at) == [second.id]


def test_a_new_process_keeps_job_runs_that_ended_and_fails_the_others():
    emr = Emr()
    done = emr.ended(emr.start("done"))
    with emr.runner.holding():
        running = emr.start("running")
        emr.until(running, "RUNNING")
        saved = emr.store.to_json()
    again = EmrStore()
    again.load_json(saved)
    assert again.job_runs[done.id].show("JobRun") == done.show("JobRun")
    assert again.job_runs[running.id].state == "FAILED"
    assert again.job_runs[running.id].state_details == "Job failed: the local cloud stopped while it ran"
    assert again.applications[emr.application.id].show("Application") == emr.application.show("Application")


def test_the_token_of_a_lost_job_run_still_returns_it_after_a_restart():
    emr = Emr()
    with emr.runner.holding():
        lost = emr.start("token")
        emr.until(lost, "RUNNING")
        saved = emr.store.to_json()
    again = EmrStore()
    again.load_json(saved)
    jobs = JobRuns(again, FakeAttemptRunner(), slots=1)
    assert jobs.start(SCOPE, emr.request("token")).id == lost.id
    assert jobs.wait(jobs.start(SCOPE, emr.request("another")), 10)


class TestApplications:
    def test_deleting_needs_a_stopped_application_and_deletes_its_job_runs(self):
        emr = Emr()
        run = emr.ended(emr.start())
        with pytest.raises(EmrValidationError):
            emr.api.delete_application(SCOPE, emr.id)
        emr.api.stop_application(SCOPE, emr.id)
        emr.api.delete_application(SCOPE, emr.id)
        assert run.id not in emr.store.job_runs
        with pytest.raises(EmrResourceNotFound):
            emr.api.get_application(SCOPE, emr.id)

    def test_stopping_needs_all_job_runs_to_have_ended(self):
        emr = Emr()
        with emr.runner.holding():
            emr.start()
            with pytest.raises(EmrValidationError):
                emr.api.stop_application(SCOPE, emr.id)

    def test_an_idle_application_stops_by_itself(self):
        emr = Emr(autoStopConfiguration={"enabled": True, "idleTimeoutMinutes": 1})
        emr.ended(emr.start())
        assert emr.state == "STARTED"
        emr.application.idle_since -= 61
        assert emr.state == "STOPPED"

    def test_a_started_application_cannot_be_updated(self):
        emr = Emr()
        emr.api.start_application(SCOPE, emr.id)
        request = {"applicationId": emr.application.id, "clientToken": "u", "releaseLabel": "emr-spark-8.0.1"}
        with pytest.raises(EmrValidationError):
            emr.api.update_application(SCOPE, request)
        emr.api.stop_application(SCOPE, emr.id)
        assert emr.api.update_application(SCOPE, request)["application"]["releaseLabel"] == "emr-spark-8.0.1"

    def test_hive_is_refused(self):
        emr = Emr()
        with pytest.raises(EmrValidationError):
            emr.create("hive", releaseLabel="emr-7.0.0", type="HIVE")
