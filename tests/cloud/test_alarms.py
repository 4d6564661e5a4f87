"""Each alarm fires when its cause happens, as a client of CloudWatch sees it."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.late.check.rejects import EventCount
from slackwater.runs.record import NotificationClaim
from tests.cloud.alarm_fixtures import (
    DAY,
    DRILL,
    METRIC_ONLY,
    PAGE,
    PIPELINE,
    WARNING,
    causes,
    check,
    deployed_alarms,
    invoke,
    metric_of,
    observed,
    push_to,
    reset_alarm,
    state_of,
    subscribe,
    until,
)
from tests.cloud.conftest import ended, start
from tests.cloud.roles import create_queue
from tests.conftest import ROOT
from tests.fakes_comparison import comparison, version

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def metric(cloud):
    return metric_of(cloud)


@pytest.fixture(scope="module")
def state(cloud):
    return state_of(cloud)


@pytest.fixture(scope="module")
def messages(cloud):
    return subscribe(cloud)


@pytest.fixture(scope="module")
def push(cloud):
    return push_to(cloud)


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def published(cloud, metric, failed):
    """Run the day again until it is published. Return the change of the metric."""
    before = metric("RunsPublished", pipeline=PIPELINE)
    ended(cloud, start(cloud, cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, {"date": DAY}))
    return until(lambda: metric("RunsPublished", pipeline=PIPELINE) - before)


def test_events_are_counted_by_outcome(pushed):
    assert pushed == {"EventsAccepted": 4, "EventsDuplicate": 3, "EventsRejected": 1}


@causes("run-failed", "execution-failed")
def test_a_failed_run_pages_for_its_pipeline_and_the_message_names_the_runbook(failed, state, messages):
    assert failed == 1
    for alarm in ("run-failed", "execution-failed"):
        assert until(lambda of=alarm: state(f"{of}-{PIPELINE}") == "ALARM")
    [message] = until(lambda: messages.of(PAGE, f"pipeline-{PIPELINE}"))
    assert re.search(rf":slackwater-(run|execution)-failed-{PIPELINE} transitioned to ALARM", message["NewStateReason"])
    assert "docs/runbooks/run-failed.md" in message["AlarmDescription"]


def test_a_published_run_is_counted(published):
    assert published == 1


@causes("day-overdue")
def test_a_day_that_is_not_published_by_its_deadline_pages_no_second_time(cloud, published, metric, state, messages):
    check(cloud)
    assert until(lambda: metric("DaysOverdue", "Maximum", pipeline=PIPELINE)) >= 1
    assert until(lambda: state(f"day-overdue-{PIPELINE}") == "ALARM")
    assert len(messages.of(PAGE, f"pipeline-{PIPELINE}")) == 1


@causes("partner-silent", "partner-unusually-silent", "rejects-unusual")
def test_alarms_fire_for_a_silent_partner_and_for_rejected_events_of_another_one(
    cloud, published, push, metric, *, state, messages
):
    counts = DynamoEventCounts(cloud.client("dynamodb"), cloud.outputs()["FileTable"])
    for days in (2, 3):
        counts.add("weather", EventCount(100, 0), at=datetime.now(UTC) - timedelta(days=days))
    push(observed("EWR", hour=18), *[{"origin": "LGA"}] * 100)
    check(cloud)
    assert until(lambda: state("rejects-unusual-weather") == "ALARM")
    assert until(lambda: messages.of(WARNING, "rejects-unusual-weather"))
    assert state("rejects-unusual-flights") == "OK"
    assert until(lambda: metric("HoursSinceArrival", "Minimum", source="flights")) >= 48
    assert until(lambda: state("partner-silent-flights") == "ALARM")
    assert until(lambda: state("partner-silent-weather") == "OK")
    assert until(lambda: state("partner-unusually-silent-flights") == "ALARM")
    assert len(messages.of(PAGE, "partner-silent-flights")) == 1
    assert messages.of(WARNING, "partner-unusually-silent-flights")
    assert metric("HoursSinceArrival", "Minimum", source="weather") < 24


@causes("day-on-hold", "late-bytes-unprocessed")
def test_alarms_fire_for_unprocessed_late_bytes(cloud, published, push, metric, *, state, messages):
    s3, bucket = cloud.client("s3"), cloud.outputs()["RawBucket"]
    prefix = f"raw/source=weather/date={DAY}/hour=15/"
    [stored] = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
    before = metric("DaysOnHold", pipeline=PIPELINE)
    s3.delete_object(Bucket=bucket, Key=stored["Key"])
    push(observed("EWR", hour=17))
    check(cloud)
    # Other tests may leave days of the pipeline on hold, which count too.
    on_hold = [day["date"] for day in cloud.json("late", PIPELINE)["days"]]
    assert DAY in on_hold
    assert until(lambda: metric("DaysOnHold", pipeline=PIPELINE) - before) == len(on_hold)
    assert until(lambda: metric("LateBytesUnprocessed", "Maximum", pipeline=PIPELINE)) > 0
    assert until(lambda: state(f"day-on-hold-{PIPELINE}") == "ALARM")
    assert until(lambda: state(f"late-bytes-unprocessed-{PIPELINE}") == "ALARM")
    assert messages.of(WARNING, f"day-on-hold-{PIPELINE}")
    assert messages.of(PAGE, f"day-on-hold-{PIPELINE}") == []


@causes("late-days-older")
def test_an_alarm_fires_while_a_day_before_the_window_has_late_data(cloud, metric, state):
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])
    day, now = "2013-01-05", datetime.now(UTC)
    table.record_late_day(PIPELINE, day, at=now, keys=["an object"])
    try:
        check(cloud)
        assert until(lambda: metric("LateDaysOlder", "Maximum", pipeline=PIPELINE)) >= 1
        assert until(lambda: state(f"late-days-older-{PIPELINE}") == "ALARM")
    finally:
        table.remove_late_day(PIPELINE, day, read_at=now)


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


@causes("file-not-taken")
def test_an_alarm_fires_for_a_file_that_is_not_taken_for_a_day_until_a_person_gives_it_up(cloud, broken, metric, state):
    invoke(cloud, "list-files", source="flights", correlation_id="by-a-test")
    assert until(lambda: metric("HoursNotTaken", "Maximum", source="flights")) >= 30
    assert until(lambda: state("file-not-taken-flights") == "ALARM")
    failed = {file["path"]: file["reason"] for file in cloud.json("files", "flights", "--state", "failed")["files"]}
    assert "empty" in failed[broken]
    cloud.json("files", "give-up", "flights", broken, "--reason", "by a test")
    assert broken not in cloud.slackwater("files", "flights", "--state", "failed").out
    [given_up] = cloud.json("files", "flights", "--state", "given-up")["files"]
    assert (given_up["path"], given_up["reason"]) == (broken, "by a test")


@causes("files-doubtful")
def test_an_alarm_fires_when_the_partner_no_longer_lists_its_only_file(cloud, partner, state, messages):
    header = next(partner.folder.glob("*.csv")).read_bytes().partition(b"\n")[0]
    path = f"flights-{datetime.now(ZoneInfo('America/New_York')).date()}-moved.csv"
    partner.put(path, header + b"\n")
    cloud.json("pull", "flights")
    (partner.folder / path).unlink()
    assert cloud.json("pull", "flights")["doubtful"] == 1
    assert until(lambda: state("files-doubtful-flights") == "ALARM")
    assert until(lambda: messages.of(WARNING, "files-doubtful-flights"))
    accepted = cloud.json("pull", "flights", "--accept-removed", "1")
    assert (accepted["removed"], accepted["doubtful"]) == (1, 0)


@causes("files-left", metric_only=True)
@pytest.mark.parametrize(("third", "expected"), [(20, "ALARM"), (0, "OK")])
def test_an_alarm_fires_when_the_pulls_of_three_hours_leave_files(cloud, state, third, expected):
    # Other tests pull `flights` and leave nothing, so this source is an invented one, with a copy of the alarm.
    cloudwatch, source = cloud.client("cloudwatch"), f"left-{third}"
    [alarm] = cloudwatch.describe_alarms(AlarmNames=["slackwater-files-left-flights"])["MetricAlarms"]
    copied = (
        "Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold", "ComparisonOperator",
        "TreatMissingData",
    )  # fmt: skip
    dimensions, now = [{"Name": "source", "Value": source}], datetime.now(UTC)
    points = [
        {
            "MetricName": alarm["MetricName"],
            "Dimensions": dimensions,
            "Timestamp": now - timedelta(hours=ago),
            "Value": files,
        }
        for ago, files in ((2.5, third), (1.5, 40), (0.5, 30))
    ]
    cloudwatch.put_metric_data(Namespace=alarm["Namespace"], MetricData=points)
    cloudwatch.put_metric_alarm(
        AlarmName=f"slackwater-{source}", Dimensions=dimensions, **{key: alarm[key] for key in copied}
    )
    assert until(lambda: state(source) == expected)
    cloudwatch.delete_alarms(AlarmNames=[f"slackwater-{source}"])


@causes("monitor-missing")
@pytest.mark.parametrize(("pipeline", "expected"), [(PIPELINE, "OK"), ("never_checked", "ALARM")])
def test_an_alarm_fires_for_a_pipeline_without_checks(cloud, state, pipeline, expected):
    """This deployment starts no monitor and lacks the alarm, so the test creates it."""
    cloudwatch, name = cloud.client("cloudwatch"), f"missing-{pipeline}"
    check(cloud)
    cloudwatch.put_metric_alarm(
        AlarmName=f"slackwater-{name}",
        Namespace="Slackwater",
        MetricName="DaysOverdue",
        Dimensions=[{"Name": "pipeline", "Value": pipeline}],
        Statistic="SampleCount",
        Period=3600,
        EvaluationPeriods=26,
        Threshold=1,
        ComparisonOperator="LessThanThreshold",
        TreatMissingData="breaching",
    )
    assert until(lambda: state(name) == expected)
    cloudwatch.delete_alarms(AlarmNames=[f"slackwater-{name}"])


@causes("monitor-failed")
def test_a_failed_monitor_pages_and_the_message_names_the_runbook(cloud, metric, state, messages):
    machine = cloud.outputs()["MonitorMachineArn"]
    executions = {"namespace": "AWS/States", "StateMachineArn": machine}
    before = metric("ExecutionsFailed", **executions)
    reset_alarm(cloud, "monitor-failed")
    assert until(lambda: state("monitor") == "OK")
    start(cloud, machine, {"pipeline": "no_such_pipeline"})
    assert until(lambda: metric("ExecutionsFailed", **executions) - before) == 1
    assert until(lambda: state("monitor-failed") == "ALARM")
    message = until(lambda: messages.of(PAGE, "monitor"))[-1]
    assert "alarm:slackwater-monitor-failed transitioned to ALARM" in message["NewStateReason"]
    assert "docs/runbooks/monitor-failed.md" in message["AlarmDescription"]


@causes("machine-failed")
def test_an_alarm_fires_when_another_state_machine_fails(cloud, state, messages):
    reset_alarm(cloud, "machine-failed-backfill")
    start(cloud, cloud.outputs()["MonitorMachineArn"].replace("monitor-days", "backfill"), {})
    assert until(lambda: state("machine-failed-backfill") == "ALARM")
    assert until(lambda: messages.of(WARNING, "machine-failed-backfill"))


@causes("spark-queued", metric_only=True)
def test_an_alarm_fires_when_a_job_waits_for_an_hour(cloud, state):
    point = {
        "MetricName": "JobQueueMinutes",
        "Dimensions": [{"Name": "pipeline", "Value": PIPELINE}],
        "Value": 60,
    }
    cloud.client("cloudwatch").put_metric_data(Namespace="Slackwater", MetricData=[point])
    assert until(lambda: state(f"spark-queued-{PIPELINE}") == "ALARM")


@causes("notification-outcome-unknown")
def test_an_alarm_fires_when_the_outcome_of_a_notification_is_unknown(cloud, published, metric, state):
    outputs, before = cloud.outputs(), metric("NotificationOutcomeUnknown", pipeline=PIPELINE)
    table = DynamoRunTable(cloud.client("dynamodb"), outputs["RunTable"])
    attempt = table.day(PIPELINE, DAY).published.run.attempt
    cut_off = NotificationClaim(
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:cut-off",
        attempt=attempt,
        since=datetime.now(UTC) - timedelta(hours=1),
    )
    table.save_day(
        table.day(PIPELINE, DAY).model_copy(update={"notified_attempt": attempt - 1, "notification_claim": cut_off})
    )
    document = comparison(date=DAY, before=version(attempt - 1), after=version(attempt)).model_dump_json()
    key = f"comparisons/{PIPELINE}/{DAY}/{attempt - 1}-{attempt}/comparison.json"
    cloud.client("s3").put_object(Bucket=outputs["ExchangeBucket"], Key=key, Body=document.encode())
    result = invoke(
        cloud,
        "notify-change",
        pipeline=PIPELINE,
        date=DAY,
        comparison=f"s3://{outputs['ExchangeBucket']}/{key}",
        execution="arn:aws:states:us-east-1:000000000000:execution:slackwater-monitor-days:by-a-test",
        correlation_id="by-a-test",
    )
    assert not result["notified"]
    assert until(lambda: metric("NotificationOutcomeUnknown", pipeline=PIPELINE) - before) == 1
    assert until(lambda: state(f"notification-outcome-unknown-{PIPELINE}") == "ALARM")


@causes("dead-letters")
def test_an_alarm_fires_for_a_message_that_cannot_be_delivered(cloud, metric, state, messages):
    outputs, sns, sqs = cloud.outputs(), cloud.client("sns"), cloud.client("sqs")
    gone, arn = create_queue(sqs, "soon-gone")
    dead = outputs["DeadLetterQueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    subscription = sns.subscribe(
        TopicArn=outputs["ChangeTopicArn"],
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": dead_arn})},
    )["SubscriptionArn"]
    sqs.delete_queue(QueueUrl=gone)
    depth = {"namespace": "AWS/SQS", "QueueName": "slackwater-dead-letters"}
    try:
        sns.publish(TopicArn=outputs["ChangeTopicArn"], Subject="to nobody", Message="undeliverable")
        assert until(lambda: metric("ApproximateNumberOfMessagesVisible", "Maximum", **depth)) >= 1
        assert until(lambda: state("dead-letters") == "ALARM")
        assert until(lambda: messages.of(WARNING, "dead-letters"))
    finally:
        sns.unsubscribe(SubscriptionArn=subscription)
        sqs.purge_queue(QueueUrl=dead)


@causes("event-dead-letters", "arrival-dead-letters")
def test_alarms_fire_for_events_and_arrivals_that_could_not_be_handled(cloud, state, messages):
    sqs, outputs = cloud.client("sqs"), cloud.outputs()
    events = outputs["EventDeadLetterQueueUrl"]
    arrivals = sqs.get_queue_url(QueueName="slackwater-arrivals-dead-letters")["QueueUrl"]
    for alarm, url in (("event-dead-letters", events), ("arrival-dead-letters", arrivals)):
        reset_alarm(cloud, alarm)
        sqs.send_message(QueueUrl=url, MessageBody="a test")
        assert until(lambda of=alarm: state(of) == "ALARM")
        sqs.purge_queue(QueueUrl=url)
    assert until(lambda: messages.of(PAGE, "events"))
    assert until(lambda: messages.of(WARNING, "arrival-dead-letters"))


@causes("events-waiting", "arrivals-waiting", metric_only=True)
def test_alarms_fire_for_events_and_arrivals_that_wait(cloud, state, messages):
    """SQS writes the metric. A message would have to wait for 10 or 40 minutes."""
    events = cloud.outputs()["EventQueueUrl"].rpartition("/")[2]
    pages = len(messages.of(PAGE, "events"))
    for alarm, queue, minutes in (("events-waiting", events, 10), ("arrivals-waiting", "slackwater-arrivals", 40)):
        point = {
            "MetricName": "ApproximateAgeOfOldestMessage",
            "Dimensions": [{"Name": "QueueName", "Value": queue}],
            "Value": minutes * 60,
        }
        cloud.client("cloudwatch").put_metric_data(Namespace="AWS/SQS", MetricData=[point])
        assert until(lambda of=alarm: state(of) == "ALARM")
    assert until(lambda: messages.of(WARNING, "arrivals-waiting"))
    # The dead letters of the test before have the same cause.
    assert len(messages.of(PAGE, "events")) == pages


def runbook_commands():
    """Return the commands of all runbooks that the project's command line runs, in the order of the pages.

    `doctor` is left out: its exit code depends on this machine, and test_doctor.py runs it.
    """
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    blocks = re.findall(r"```\n(.*?)```", "\n".join(page.read_text(encoding="utf-8") for page in pages), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = dict.fromkeys(line for line in lines if line.startswith("slackwater "))
    return [command for command in commands if command != "slackwater doctor"]


def test_the_commands_of_the_runbooks_work_and_clear_the_alarm(cloud, received, published, broken, state):
    values = {"PIPELINE": PIPELINE, "SOURCE": "flights", "DATE": DAY, "PATH": broken, "NUMBER": "1"}
    # Other commands fail while the day is on hold, and while the broken file is tried.
    first = ("slackwater late release", "slackwater files give-up")
    commands = sorted(runbook_commands(), key=lambda command: not command.startswith(first))
    # The day is released by then.
    expected = {command: 2 if command.startswith("slackwater late reject") else 0 for command in commands}
    unexpected = {}
    for command in commands:
        words = shlex.split(re.sub("|".join(values), lambda match: values[match[0]], command))
        result = cloud.slackwater(*words[1:], code=None)
        if result.code != expected[command]:
            unexpected[command] = result.err or result.out
    assert unexpected == {}
    assert until(lambda: state("file-not-taken-flights") == "OK", seconds=90)


def test_every_alarm_of_the_deployment_has_a_test_that_causes_it(cloud):
    subjects = {f"-{path.stem}" for folder in ("pipelines", "sources") for path in (cloud.project / folder).iterdir()}
    subjects |= {"-pull-source", "-compare-day", "-backfill"}
    alarms = deployed_alarms(cloud)
    kinds = {next((name.removesuffix(of) for of in subjects if name.endswith(of)), name) for name in alarms}
    assert kinds | {"monitor-missing"} == set(DRILL)
    # The causes of all others are real.
    assert sorted(METRIC_ONLY) == ["arrivals-waiting", "events-waiting", "files-left", "spark-queued"]


def test_an_alarm_of_a_composite_alarm_sends_no_message_itself(cloud, messages):
    composites = cloud.client("cloudwatch").describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
    rules = " ".join(alarm["AlarmRule"] for alarm in composites)
    sent = Counter(message["AlarmName"] for _, message in messages.all())
    assert sent[f"slackwater-pipeline-{PIPELINE}"] == 1
    assert not [alarm for alarm in sent if f'ALARM("{alarm}")' in rules]


def test_the_dashboard_exists(cloud):
    dashboard = cloud.client("cloudwatch").get_dashboard(DashboardName=cloud.outputs()["DashboardName"])
    assert len(json.loads(dashboard["DashboardBody"])["widgets"]) > 10
