"""Job runs of the local EMR Serverless: states, queue, capacity, tokens, time limits."""

from __future__ import annotations

import threading

import pytest

from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import AttemptResult
from slackwater.local.emr.store import EmrStore
from slackwater.local.service_model import (
    EmrConflict,
    EmrResourceNotFound,
    EmrThrottled,
    EmrValidationError,
    check,
    service_model,
)
from tests.fakes_local import ELSEWHERE, SCOPE, Emr, FakeAttemptRunner, workers

pytestmark = pytest.mark.unit


def test_a_job_that_succeeds_starts_its_application_and_is_billed():
    emr = Emr()
    run = emr.ended(emr.start(parameters=""))
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


def test_an_error_of_the_local_cloud_fails_the_job_and_frees_its_slot(monkeypatch):
    emr, logged = Emr(), []
    monkeypatch.setattr(threading, "excepthook", logged.append)
    with monkeypatch.context() as broken:
        broken.setattr(emr.runner, "run", lambda *_, **__: {}["folder"])
        failed = emr.ended(emr.start())
    assert (failed.state, failed.state_details) == ("FAILED", "Job failed: KeyError: 'folder'")
    assert [item.exc_type for item in logged] == [KeyError]
    assert emr.ended(emr.start("next")).state == "SUCCESS"
    assert not emr.jobs.running()


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
        # It has never run, so nothing is billed.
        assert set(second.show("JobRun")["billedResourceUtilization"].values()) == {0.0}
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
        # A driver and an executor of 1 vCPU, for a minute.
        document = run.show("JobRun")
        assert document["billedResourceUtilization"]["vCPUHour"] == 0.033
        assert document["totalResourceUtilization"]["vCPUHour"] < 0.033
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


@pytest.mark.parametrize("more", [{"retryPolicy": {"maxAttempts": 3}}, {"mode": "STREAMING"}])
def test_a_job_with_several_attempts_or_a_streaming_job_is_refused(more):
    with pytest.raises(EmrValidationError, match="batch jobs, with one attempt"):
        Emr().start(**more)


def test_a_driver_larger_than_the_application_may_be_fails_and_frees_its_slot():
    emr = Emr(slots=1, maximumCapacity={"cpu": "4 vCPU", "memory": "16 GB"})
    big = emr.ended(emr.start("big", parameters="--conf spark.driver.cores=8 --conf spark.driver.memory=20g"))
    assert (big.state, emr.runner.submitted) == ("FAILED", [])
    assert "maximumCapacity" in big.state_details
    assert emr.ended(emr.start("small")).state == "SUCCESS"


class TestCapacity:
    """A new account has 16 vCPU in each region, and an application its maximumCapacity."""

    ACCOUNT_FULL = "Job failed as account has reached the service limit on the maximum vCPU it can use concurrently"
    APPLICATION_FULL = "Job failed as application has exceeded maximumCapacity settings"

    def test_executors_count_for_the_quota_of_the_account_and_a_job_without_a_driver_fails(self):
        emr = Emr()
        with emr.runner.holding():
            first = emr.start("first", parameters=workers(executor=4, executors=3))  # 13 vCPU
            emr.until(first, "RUNNING")
            second = emr.ended(emr.start("second", parameters=workers(driver=4)))
            assert (second.state, second.state_details) == ("FAILED", self.ACCOUNT_FULL)
        assert emr.ended(first).state == "SUCCESS"
        assert emr.ended(emr.start("third", parameters=workers(driver=4))).state == "SUCCESS"

    def test_the_quota_is_for_all_applications_of_the_account_in_a_region(self):
        emr = Emr()
        here, elsewhere = emr.create("here"), emr.create("elsewhere", scope=ELSEWHERE)
        with emr.runner.holding():
            emr.until(emr.start("first", parameters=workers(executor=4, executors=3)), "RUNNING")
            request = emr.request("second", parameters=workers(driver=4))
            refused = emr.ended(emr.jobs.start(SCOPE, {**request, "applicationId": here.id}))
            assert refused.state_details == self.ACCOUNT_FULL
            emr.until(emr.jobs.start(ELSEWHERE, {**request, "applicationId": elsewhere.id}), "RUNNING")

    @pytest.mark.parametrize(
        "maximum",
        [
            {"cpu": "2 vCPU", "memory": "64 GB"},
            {"cpu": "16 vCPU", "memory": "8 GB"},
            {"cpu": "16 vCPU", "memory": "64 GB", "disk": "59 GB"},
        ],
    )
    def test_vcpu_memory_and_disk_of_all_workers_count_for_the_maximum_of_the_application(self, maximum):
        emr = Emr(maximumCapacity=maximum)
        with emr.runner.holding():
            first = emr.start("first")  # 2 vCPU, 6 GB, 40 GB of disk
            emr.until(first, "RUNNING")
            second = emr.ended(emr.start("second"))
            assert (second.state, second.state_details) == ("FAILED", self.APPLICATION_FULL)
        assert emr.ended(first).state == "SUCCESS"
        assert emr.ended(emr.start("third")).state == "SUCCESS"

    def test_a_driver_waits_for_an_executor(self):
        emr = Emr(maximumCapacity={"cpu": "3 vCPU", "memory": "64 GB"})
        with emr.runner.holding():
            first = emr.start("first")
            emr.until(first, "RUNNING")
            second = emr.start("second")
            emr.until(second, "RUNNING")
            assert not emr.jobs.wait(second, 0.05)
            assert len(emr.runner.submitted) == 1
        assert [emr.ended(run).state for run in (first, second)] == ["SUCCESS", "SUCCESS"]

    def test_a_driver_that_gets_no_executor_fails(self):
        emr = Emr(minute=0.001, maximumCapacity={"cpu": "4 vCPU", "memory": "64 GB"})
        run = emr.ended(emr.start(parameters=workers(executor=4), executionTimeoutMinutes=0))
        assert (run.state, emr.runner.submitted) == ("FAILED", [])
        assert "Worker could not be allocated" in run.state_details

    def test_a_driver_that_waits_for_an_executor_can_be_cancelled(self):
        emr = Emr(maximumCapacity={"cpu": "4 vCPU", "memory": "64 GB"})
        run = emr.start(parameters=workers(executor=4))
        emr.until(run, "RUNNING")
        emr.jobs.cancel(run)
        assert (emr.ended(run).state, emr.runner.submitted) == ("CANCELLED", [])
        assert emr.ended(emr.start("next", parameters=workers(driver=2))).state == "SUCCESS"

    def test_a_job_runs_with_the_executors_that_fit_and_pays_for_those(self):
        emr = Emr(maximumCapacity={"cpu": "3 vCPU", "memory": "64 GB"})
        run = emr.ended(emr.start(parameters=workers(executors=5)))
        assert (run.state, run.billed["vCPUHour"]) == ("SUCCESS", 0.05)  # a minute of 3 vCPU

    def test_fifteen_jobs_run_at_the_same_time_unless_the_application_says_otherwise(self):
        emr = Emr(slots=20)
        with emr.runner.holding():
            runs = [emr.start(str(number), parameters=workers(executors=0)) for number in range(16)]
            for run in runs[:15]:
                emr.until(run, "RUNNING")
            emr.until(runs[15], "QUEUED")

    def test_an_account_starts_25_jobs_at_once_and_then_one_a_second(self):
        now = [100.0]
        emr = Emr(clock=lambda: now[0])

        def start(scope=SCOPE):
            # The same job each time: EMR counts every request.
            return emr.api.start_job_run(scope, emr.request("same"))

        for _ in range(25):
            start()
        with pytest.raises(EmrThrottled) as throttled:
            start()
        assert (throttled.value.code, throttled.value.status) == ("ThrottlingException", 400)
        now[0] += 1
        start()
        with pytest.raises(EmrThrottled):
            start()
        with pytest.raises(EmrResourceNotFound):  # not throttled: the application is in the other region
            start(ELSEWHERE)
        now[0] += 1000
        for _ in range(25):
            start()
        with pytest.raises(EmrThrottled):
            start()


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
    saved["job_runs"][0]["attempts"] = []  # an earlier version has saved it
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


def test_responses_have_the_shapes_of_the_model():
    emr = Emr(name="shapes", autoStopConfiguration={"enabled": True})
    run = emr.ended(emr.start(name="day", tags={"day": "2013-03-08"}))
    responses = {
        "GetApplication": emr.api.get_application(SCOPE, emr.id),
        "ListApplications": emr.api.list_applications(SCOPE, {}),
        "GetJobRun": emr.api.get_job_run(SCOPE, {**emr.id, "jobRunId": run.id}),
        "ListJobRuns": emr.api.list_job_runs(SCOPE, emr.id),
    }
    for operation, response in responses.items():
        check(service_model().operation_model(operation).output_shape, response)
    assert set(responses["GetJobRun"]["jobRun"]) <= set(service_model().shape_for("JobRun").members)
