"""Shared fixtures of the tests of alarms: pushed events, a failed run, and a published one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from tests.cloud.alarms.aws_commands import AwsCommands, commands_of
from tests.cloud.alarms.drill import (
    DAY,
    PIPELINE,
    metric_of,
    observed,
    push_to,
    reset_alarm,
    state_of,
    subscribe,
    until,
)
from tests.cloud.conftest import ended, start
from tests.cloud.queued_jobs import occupied_application


@pytest.fixture(scope="session")
def metric(cloud):
    return metric_of(cloud)


@pytest.fixture(scope="session")
def state(cloud):
    return state_of(cloud)


@pytest.fixture(scope="session")
def messages(cloud):
    return subscribe(cloud)


@pytest.fixture(scope="session")
def push(cloud):
    return push_to(cloud)


@pytest.fixture(scope="session")
def runbook(cloud):
    return AwsCommands(cloud=cloud)


@pytest.fixture(autouse=True)
def complete_drill(request, runbook):
    """Fail a test that causes alarms and leaves out the AWS commands of one of their runbooks."""
    runbook.run_pages.clear()
    yield
    for page in getattr(request.node.function, "causes", ()):
        assert not commands_of(page, "aws") or page in runbook.run_pages, page


@pytest.fixture(scope="session")
def pushed(metric, push):
    """Push three events, the same three again, then one new and one invalid event. Return the change of each metric."""
    names = ("EventsAccepted", "EventsDuplicate", "EventsRejected")
    before = {name: metric(name) for name in names}
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR"), observed("JFK"), observed("LGA"))
    push(observed("EWR", hour=16), {"origin": "LGA"})

    def changes():
        return {name: metric(name) - value for name, value in before.items()}

    until(lambda: changes()["EventsRejected"])
    return changes()


@pytest.fixture(scope="session")
def failed(cloud, metric, messages, pushed):
    """Run the day and cancel its Spark job. Return the change of the metric."""
    before = metric("RunsFailed", pipeline=PIPELINE)
    # The composite alarm last: other tests may have caused its alarms, which fire again at once.
    for alarm in ("day-overdue", "execution-failed", "run-failed", "pipeline"):
        reset_alarm(cloud, f"{alarm}-{PIPELINE}")
    messages.all().clear()
    execution = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY})
    [job] = until(lambda: [job for job in cloud.jobs() if job["name"].startswith(f"{PIPELINE} {DAY}")])
    cloud.client("emr-serverless").cancel_job_run(applicationId=job["applicationId"], jobRunId=job["id"])
    states = cloud.client("stepfunctions")
    until(lambda: states.describe_execution(executionArn=execution)["status"] == "FAILED")
    return until(lambda: metric("RunsFailed", pipeline=PIPELINE) - before)


@pytest.fixture(scope="session")
def published_today(cloud, metric, failed, tmp_path_factory):
    """Run the day again until it is published; its job first waits in the queue. Return the change of the metric."""
    before = metric("RunsPublished", pipeline=PIPELINE)
    with occupied_application(cloud, tmp_path_factory.mktemp("queue")):
        execution = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY})
        until(lambda: [job for job in cloud.jobs() if job["state"] == "QUEUED"])
    ended(cloud, execution)
    return until(lambda: metric("RunsPublished", pipeline=PIPELINE) - before)


@pytest.fixture
def broken(cloud, partner):
    """A file of today that the pull cannot read, and that was first tried 30 hours ago. Returns its path."""
    path = f"flights-{datetime.now(ZoneInfo('America/New_York')).date()}-broken.csv"
    partner.put(path, b"")
    assert "1 of " in cloud.json("pull", "flights", code=1)["error"]["message"]
    cache = DynamoFileCache(cloud.client("dynamodb"), cloud.outputs()["FileTable"])
    [entry] = cache.entries("flights", [path])
    cache.save(entry.model_copy(update={"not_taken_since": datetime.now(UTC) - timedelta(hours=30)}))
    yield path
    (partner.folder / path).unlink()
