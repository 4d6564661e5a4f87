"""Late data of a published day is handled when it arrives, without any command."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from examples.nyc_flights.feed import flights_files
from tests.cloud.conftest import Inbox, ended, start
from tests.cloud.roles import create_queue

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

PIPELINE, RULE = "daily_delays", "slackwater-arrivals"
MODEL = date(2013, 4, 20)
"""The day whose flights are used."""
# An object of a day before the window starts nothing. `test_alarms` uses later days.
DAY = (datetime.now(ZoneInfo("America/New_York")) - timedelta(days=6)).date()
LATE = f"flights-{DAY}-12.csv"


def files_of_day() -> dict[str, str]:
    """Return the files of `DAY` by name: those of `MODEL` with other dates."""

    def moved(text: str) -> str:
        for after in (0, 1):
            model, day = (str(first + timedelta(days=after)) for first in (MODEL, DAY))
            text = text.replace(model, day)
        return text

    return {moved(name): moved(content) for name, content in flights_files(MODEL).items()}


@pytest.fixture
def published(cloud, partner):
    """Run `DAY` without its late file. Return its files by name, and the later day as of which they are pulled."""
    files, as_of = files_of_day(), str(DAY + timedelta(days=1))
    for name in files.keys() - {LATE}:
        partner.put(name, files[name])
    cloud.json("pull", "flights", "--as-of", as_of)
    cloud.json("run", PIPELINE, "--date", str(DAY))
    return files, as_of


@pytest.fixture
def arrivals(cloud, published):
    """Lead new objects to checks during a test; then wait until nothing of it is left. Return the new monitorings."""
    rules, queues, states, s3 = (cloud.client(service) for service in ("events", "sqs", "stepfunctions", "s3"))
    outputs = cloud.outputs()

    def monitorings(status=None):
        of = {"stateMachineArn": outputs["MonitorMachineArn"], **({"statusFilter": status} if status else {})}
        return {item["executionArn"] for item in states.list_executions(**of)["executions"]}

    def messages():
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        read = queues.get_queue_attributes(QueueUrl=outputs["ArrivalQueueUrl"], AttributeNames=names)
        return sum(int(number) for number in read["Attributes"].values())

    # The deployment has the setting `collect_minutes` 0: the bucket sends no events, and the rule passes none.
    known, raw = monitorings(), outputs["RawBucket"]
    before = s3.get_bucket_notification_configuration(Bucket=raw)
    rules.enable_rule(Name=RULE)
    s3.put_bucket_notification_configuration(Bucket=raw, NotificationConfiguration={"EventBridgeConfiguration": {}})
    try:
        yield lambda: sorted(monitorings() - known)
    finally:
        before.pop("ResponseMetadata")
        s3.put_bucket_notification_configuration(Bucket=raw, NotificationConfiguration=before)
        rules.disable_rule(Name=RULE)
        wait(lambda: not messages() and not monitorings("RUNNING"))


def wait(condition):
    deadline = time.monotonic() + 300
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return result


def test_late_data_is_published_and_notified_once_although_another_check_runs(cloud, partner, published, arrivals):
    (files, as_of), sqs = published, cloud.client("sqs")
    url, queue = create_queue(sqs, "arrivals-inbox")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["ChangeTopicArn"], Protocol="sqs", Endpoint=queue)

    partner.put(LATE, files[LATE])
    cloud.json("pull", "flights", "--as-of", as_of)
    by_event = wait(arrivals)
    other = start(cloud, cloud.outputs()["MonitorMachineArn"], {"pipeline": PIPELINE, "days": [str(DAY)]})
    for execution in (*by_event, other):
        ended(cloud, execution)

    assert all(":arrival-" in execution for execution in by_event)
    rows = sum(len(content.splitlines()) - 1 for content in files.values())
    assert cloud.query(f"SELECT sum(flights) FROM {PIPELINE} WHERE date = '{DAY}'") == [[rows]]
    jobs = [job["name"] for job in cloud.jobs() if job["name"].startswith(f"{PIPELINE} {DAY} ")]
    run = f"{PIPELINE} {DAY} delays_by_carrier"
    assert sorted(jobs) == [f"{PIPELINE} {DAY} compare 1-2", run, run]
    (message,) = Inbox(sqs, url).take(str(DAY))
    assert message["Subject"].startswith(f"{PIPELINE} {DAY} changed: ")
