"""Late data of a published day is handled when it arrives, without any command."""

from __future__ import annotations

import json
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
# An object of a day before the window starts nothing. `tests/cloud/alarms` uses later days.
DAY = (datetime.now(ZoneInfo("America/New_York")) - timedelta(days=6)).date()
LATE = f"flights-{DAY}-12.csv"
FIRST = f"flights-{DAY}-12-first.csv"
"""One row of the late file, which comes before the rest: too little to run the day again."""


def files_of_day() -> dict[str, str]:
    """Return the files of `DAY` by name: those of `MODEL` with other dates. The late one is divided."""

    def moved(text: str) -> str:
        for after in (0, 1):
            model, day = (str(first + timedelta(days=after)) for first in (MODEL, DAY))
            text = text.replace(model, day)
        return text

    files = {moved(name): moved(content) for name, content in flights_files(MODEL).items()}
    header, first, *rest = files[LATE].splitlines(keepends=True)
    return {**files, FIRST: header + first, LATE: "".join([header, *rest])}


@pytest.fixture(scope="module")
def published(cloud, partner):
    """Run `DAY` without its late files. Return its files by name, and the later day as of which they are pulled."""
    files, as_of = files_of_day(), str(DAY + timedelta(days=1))
    for name in files.keys() - {FIRST, LATE}:
        partner.put(name, files[name])
    cloud.json("pull", "flights", "--as-of", as_of)
    cloud.json("run", PIPELINE, "--date", str(DAY))
    return files, as_of


@pytest.fixture(scope="module")
def monitorings(cloud):
    """Return a function that returns the ARNs of the monitorings, all or with a status."""
    states, machine = cloud.client("stepfunctions"), cloud.outputs()["MonitorMachineArn"]

    def monitorings(**of):
        return {item["executionArn"] for item in states.list_executions(stateMachineArn=machine, **of)["executions"]}

    return monitorings


@pytest.fixture(params=["slackwater-fetch-file"])
def messages(cloud, request):
    """Have a function send messages to the queue of arrivals, as it does if `collect_minutes` is not 0."""
    functions, name = cloud.client("lambda"), request.param
    account = cloud.client("sts").get_caller_identity()["Account"]
    # As in the template, where no resource of the queue's stack is referred to.
    url = f"https://sqs.us-east-1.amazonaws.com/{account}/slackwater-arrivals"
    variables = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    assert variables["ARRIVAL_QUEUE_URL"] == ""
    sending = {"Variables": {**variables, "ARRIVAL_QUEUE_URL": url}}
    functions.update_function_configuration(FunctionName=name, Environment=sending)
    yield
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})


@pytest.fixture
def arrivals(cloud, published, monitorings):
    """Lead new objects to checks during a test; then wait until nothing of it is left. Return the new monitorings."""
    rules, queues, s3 = (cloud.client(service) for service in ("events", "sqs", "s3"))
    outputs = cloud.outputs()

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
        wait(lambda: not messages() and not monitorings(statusFilter="RUNNING"))


def wait(condition):
    deadline = time.monotonic() + 300
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return result


def test_a_committed_file_leads_to_a_check_although_no_event_names_its_objects(
    cloud, partner, published, monitorings, messages
):
    (files, as_of), known = published, monitorings()
    partner.put(FIRST, files[FIRST])
    cloud.json("pull", "flights", "--as-of", as_of)
    [execution] = wait(lambda: monitorings() - known)
    assert ended(cloud, execution)["days"] == []
    started = cloud.client("stepfunctions").describe_execution(executionArn=execution)
    assert json.loads(started["input"])["days"] == [str(DAY)]


@pytest.mark.parametrize("messages", ["slackwater-await-inputs"], indirect=True)
def test_a_verdict_leads_to_a_check_of_the_days_that_have_read_its_hour(cloud, published, monitorings, messages):
    def rules():
        return [item["rule"] for item in cloud.json("late", "list", PIPELINE)["days"] if item["date"] == str(DAY)]

    verdict = ("verdict", "flights", "--hour", f"{DAY}T13", "--reason", "twice")
    assert PIPELINE in cloud.json(*verdict, "fail")["read_by"]
    wait(lambda: rules() == ["invalid"])
    assert f"flights {DAY} 13:00 UTC: fail" in cloud.slackwater("why", PIPELINE, "--date", str(DAY)).out
    cloud.json(*verdict, "pass")
    wait(lambda: rules() == [])
    wait(lambda: not monitorings(statusFilter="RUNNING"))


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
