"""Job runs of the local EMR Serverless: states, queue, tokens, time-outs."""

from __future__ import annotations

import pytest

from slackwater.local.emr.applications import Applications
from slackwater.local.emr.errors import Conflict, Invalid, NotFound
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import Outcome
from slackwater.local.emr.store import Scope, Store
from tests.fakes_local import FakeRunner

pytestmark = pytest.mark.unit

HERE = Scope("000000000000", "us-east-1")
ELSEWHERE = Scope("000000000000", "eu-west-1")


class World:
    """The service with a fake runner."""

    def __init__(self, runner: FakeRunner | None = None, *, slots: int = 8, minute: float = 60, **settings) -> None:
        self.store = Store()
        self.runner = runner or FakeRunner()
        self.applications = Applications(self.store)
        self.jobs = JobRuns(self.store, self.runner, slots=slots, seconds_per_minute=minute)
        request = {"releaseLabel": "emr-spark-8.0.0", "type": "SPARK", "clientToken": "app", **settings}
        self.application = self.applications.create(HERE, request)

    def start(self, token: str = "one", **request):  # noqa: S107
        return self.jobs.start(HERE, self.request(token, **request))

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
    world = World()
    run = world.ended(world.start())
    assert (run.state, world.application.state) == ("SUCCESS", "STARTED")
    document = run.document()
    # A driver and three executors of 4 vCPU and 16 GB, for the least that is billed: a minute.
    assert document["billedResourceUtilization"] == {"vCPUHour": 0.267, "memoryGBHour": 1.067, "storageGBHour": 0.0}
    assert document["endedAt"] >= document["startedAt"] >= document["createdAt"]


def test_a_failed_driver_is_told_in_the_state_details():
    world = World(FakeRunner(Outcome(1, "AuditFailed: key is not unique")))
    failed = world.ended(world.start())
    assert failed.state == "FAILED"
    assert failed.state_details == (
        "Job failed, please check complete logs in configured logging destination. "
        "ExitCode: 1. Last few exceptions: AuditFailed: key is not unique"
    )


def test_state_details_never_exceed_what_the_api_allows():
    world = World(FakeRunner(Outcome(1, "ValueError: " + "x" * 1000)))
    assert len(world.ended(world.start()).state_details) == 256


def test_the_same_token_with_the_same_request_is_the_same_job_run():
    world = World()
    assert world.start("same") is world.start("same")
    assert len(world.store.job_runs) == 1


def test_the_same_token_with_another_request_is_a_conflict():
    world = World()
    world.start("same")
    with pytest.raises(Conflict):
        world.start("same", name="other")


def test_a_token_belongs_to_its_application():
    world = World()
    first = world.start("same")
    request = {"releaseLabel": "emr-spark-8.0.0", "type": "SPARK", "clientToken": "second"}
    second = world.applications.create(HERE, request)
    assert world.jobs.start(HERE, {**world.request("same"), "applicationId": second.id}).id != first.id


def test_more_than_max_concurrent_runs_wait_in_the_queue_in_order():
    world = World(schedulerConfiguration={"maxConcurrentRuns": 1})
    with world.runner.holding():
        first = world.start("first")
        world.until(first, "RUNNING")
        second = world.start("second")
        world.until(second, "QUEUED")
        third = world.start("third")
        world.until(third, "QUEUED")
    for run in (first, second, third):
        assert world.ended(run).state == "SUCCESS"
    assert first.ended_at <= second.started_at <= second.ended_at <= third.started_at
    assert second.queued_seconds > 0
    assert first.queued_seconds == 0


def test_a_job_that_waits_longer_than_the_queue_allows_fails():
    world = World(minute=0.001, schedulerConfiguration={"maxConcurrentRuns": 1, "queueTimeoutMinutes": 15})
    with world.runner.holding():
        first = world.start("first", executionTimeoutMinutes=0)
        world.until(first, "RUNNING")
        second = world.start("second")
        assert world.ended(second).state == "FAILED"
        assert "queueTimeoutMinutes" in second.state_details


def test_a_queued_job_can_be_cancelled_and_the_next_one_still_runs():
    world = World(schedulerConfiguration={"maxConcurrentRuns": 1})
    with world.runner.holding():
        first = world.start("first")
        world.until(first, "RUNNING")
        second, third = world.start("second"), world.start("third")
        world.until(second, "QUEUED")
        world.jobs.cancel(HERE, world.application.id, second.id)
        assert world.ended(second).state == "CANCELLED"
    assert world.ended(third).state == "SUCCESS"
    assert len(world.runner.submitted) == 2


def test_jobs_beyond_the_machines_slots_are_scheduled_until_one_is_free():
    world = World(slots=1)
    with world.runner.holding():
        first = world.start("first")
        world.until(first, "RUNNING")
        second = world.start("second")
        world.until(second, "SCHEDULED")
    assert world.ended(second).state == "SUCCESS"


def test_a_running_job_is_cancelled_and_its_slot_is_free_again():
    world = World(slots=1)
    with world.runner.holding():
        run = world.start("first")
        world.until(run, "RUNNING")
        world.jobs.cancel(HERE, world.application.id, run.id)
        assert world.ended(run).state == "CANCELLED"
    assert world.ended(world.start("second")).state == "SUCCESS"


def test_a_job_that_has_ended_cannot_be_cancelled():
    world = World()
    run = world.ended(world.start())
    with pytest.raises(Invalid):
        world.jobs.cancel(HERE, world.application.id, run.id)


def test_a_job_that_runs_longer_than_it_may_is_cancelled():
    world = World(minute=0.01)
    with world.runner.holding():
        run = world.ended(world.start(executionTimeoutMinutes=1))
    assert (run.state, run.state_details) == ("CANCELLED", "The job run timed out after 1 minutes")


def test_a_retry_policy_runs_another_attempt():
    world = World(FakeRunner(Outcome(1, "IOError: flaky")))
    run = world.ended(world.start(retryPolicy={"maxAttempts": 3}))
    assert (run.state, run.attempt, len(run.attempts)) == ("SUCCESS", 2, 1)


def test_attempts_end_with_the_retry_policy():
    world = World(FakeRunner(*[Outcome(1, "IOError: broken")] * 5))
    run = world.ended(world.start(retryPolicy={"maxAttempts": 3}))
    assert (run.state, run.attempt, len(world.runner.submitted)) == ("FAILED", 3, 3)


def test_a_driver_larger_than_the_application_may_be_fails_and_frees_its_slot():
    world = World(slots=1, maximumCapacity={"cpu": "4 vCPU", "memory": "16 GB"})
    big = world.ended(world.start("big", parameters="--conf spark.driver.cores=8 --conf spark.driver.memory=20g"))
    assert (big.state, world.runner.submitted) == ("FAILED", [])
    assert "maximumCapacity" in big.state_details
    assert world.ended(world.start("small")).state == "SUCCESS"


def test_an_application_that_does_not_start_by_itself_refuses_jobs_until_it_is_started():
    world = World(autoStartConfiguration={"enabled": False})
    with pytest.raises(Invalid):
        world.start()
    world.applications.start(HERE, world.application.id)
    assert world.ended(world.start()).state == "SUCCESS"


def test_another_region_sees_nothing():
    world = World()
    run = world.start()
    with pytest.raises(NotFound):
        world.jobs.get(ELSEWHERE, world.application.id, run.id)
    with pytest.raises(NotFound):
        world.jobs.start(ELSEWHERE, world.request("other"))


def test_logs_go_where_emr_puts_them():
    world = World()
    monitoring = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://logs/emr/"}}}
    run = world.ended(world.start(configurationOverrides=monitoring))
    assert world.runner.log_prefixes == [f"s3://logs/emr/applications/{world.application.id}/jobs/{run.id}"]


def test_job_runs_are_listed_by_state_and_time_newest_first():
    world = World()
    first, second = world.ended(world.start("first")), world.ended(world.start("second"))
    listed = world.jobs.list(HERE, {"applicationId": world.application.id, "states": ["SUCCESS"]})
    assert [run.id for run in listed] == [second.id, first.id]
    assert world.jobs.list(HERE, {"applicationId": world.application.id, "states": ["FAILED"]}) == []
    after = {"applicationId": world.application.id, "createdAtAfter": second.created_at}
    assert [run.id for run in world.jobs.list(HERE, after)] == [second.id]


def test_a_new_process_finds_what_ended_and_fails_what_did_not():
    world = World()
    done = world.ended(world.start("done"))
    with world.runner.holding():
        running = world.start("running")
        world.until(running, "RUNNING")
        saved = world.store.saved()
    again = Store()
    again.restore(saved)
    assert again.job_runs[done.id].document() == done.document()
    assert again.job_runs[running.id].state == "FAILED"
    assert again.job_runs[running.id].state_details == "Job failed: the local cloud stopped while it ran"
    assert again.application(HERE, world.application.id).document() == world.application.document()


def test_a_lost_job_run_still_answers_for_its_token_after_a_restart():
    world = World()
    with world.runner.holding():
        lost = world.start("token")
        world.until(lost, "RUNNING")
        saved = world.store.saved()
    again = Store()
    again.restore(saved)
    jobs = JobRuns(again, FakeRunner(), slots=1)
    assert jobs.start(HERE, world.request("token")).id == lost.id
    assert jobs.wait(jobs.start(HERE, world.request("another")), 10)


class TestApplications:
    def test_deleting_needs_a_stopped_application_and_takes_its_job_runs(self):
        world = World()
        run = world.ended(world.start())
        with pytest.raises(Invalid):
            world.applications.delete(HERE, world.application.id)
        world.applications.stop(HERE, world.application.id)
        world.applications.delete(HERE, world.application.id)
        assert run.id not in world.store.job_runs
        with pytest.raises(NotFound):
            world.applications.get(HERE, world.application.id)

    def test_stopping_needs_all_job_runs_to_have_ended(self):
        world = World()
        with world.runner.holding():
            world.start()
            with pytest.raises(Invalid):
                world.applications.stop(HERE, world.application.id)

    def test_an_idle_application_stops_by_itself(self):
        world = World(autoStopConfiguration={"enabled": True, "idleTimeoutMinutes": 1})
        world.ended(world.start())
        assert world.applications.get(HERE, world.application.id).state == "STARTED"
        world.application.idle_since -= 61
        assert world.applications.get(HERE, world.application.id).state == "STOPPED"

    def test_a_started_application_cannot_be_updated(self):
        world = World()
        world.applications.start(HERE, world.application.id)
        request = {"applicationId": world.application.id, "clientToken": "u", "releaseLabel": "emr-spark-8.0.1"}
        with pytest.raises(Invalid):
            world.applications.update(HERE, request)
        world.applications.stop(HERE, world.application.id)
        assert world.applications.update(HERE, request).settings["releaseLabel"] == "emr-spark-8.0.1"

    def test_hive_is_refused(self):
        request = {"releaseLabel": "emr-7.0.0", "type": "HIVE", "clientToken": "hive"}
        with pytest.raises(Invalid):
            Applications(Store()).create(HERE, request)
