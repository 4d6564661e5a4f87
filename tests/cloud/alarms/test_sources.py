"""Alarms about partners and their files fire when their cause happens, as a client of CloudWatch sees it."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.plan import MAX_ITEMS
from slackwater.sources.partitions import Partition, object_name, object_uri
from tests.cloud.alarms.aws_commands import commands_of
from tests.cloud.alarms.drill import (
    DAY,
    PAGE,
    PIPELINE,
    WARNING,
    causes,
    changed_alarm,
    check,
    invoke,
    observed,
    reset_alarm,
    until,
    until_ok,
)

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@causes("partner-silent", "partner-unusually-silent", "rejects-unusual")
def test_alarms_fire_for_a_silent_partner_and_for_rejected_events_of_another_one(
    cloud, published_today, push, metric, *, state, messages, runbook
):
    """Without two weeks of history, `silent_hours` counts as the usual silence; test_silence.py has other histories."""
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
    # Nothing has pulled the source yet if this file is tested alone.
    runbook("partner-silent", MACHINE_ARN=cloud.outputs()["PullMachineArn"])


@causes("file-not-taken")
def test_an_alarm_fires_for_a_file_that_is_not_taken_for_a_day_until_a_person_gives_it_up(cloud, broken, metric, state):
    invoke(cloud, "list-files", source="flights", correlation_id="by-a-test")
    assert until(lambda: metric("HoursNotTaken", "Maximum", source="flights")) >= 30
    assert until(lambda: state("file-not-taken-flights") == "ALARM")
    commands = [
        shlex.split(line.replace("SOURCE", "flights").replace("PATH", broken))[1:]
        for line in commands_of("file-not-taken", "slackwater")
    ]
    # The highest value of a minute counts; this waits for some seconds instead.
    with changed_alarm(cloud, "file-not-taken-flights", Period=1, EvaluationPeriods=3):
        # The first pull fails, because nobody has repaired the file.
        codes = (0, 1, 0, 0, 0)
        before, _, _, after, _ = [
            cloud.json(*command, code=code) for command, code in zip(commands, codes, strict=True)
        ]
        assert until_ok(state, "file-not-taken-flights", lambda: cloud.json("pull", "flights"))
    failed = [{file["path"]: file["reason"] for file in listed["files"]} for listed in (before, after)]
    assert "empty" in failed[0][broken]
    assert broken not in failed[1]
    [given_up] = cloud.json("files", "flights", "--state", "given-up")["files"]
    assert (given_up["path"], given_up["reason"]) == (broken, "the partner cannot repair it")


@causes("files-doubtful")
def test_an_alarm_fires_when_the_partner_no_longer_lists_its_only_file(cloud, partner, state, messages):
    header = next(partner.folder.glob("flights-2013-*.csv")).read_bytes().partition(b"\n")[0]
    path = f"flights-{datetime.now(ZoneInfo('America/New_York')).date()}-moved.csv"
    partner.put(path, header + b"\n")
    cloud.json("pull", "flights")
    (partner.folder / path).unlink()
    assert cloud.json("pull", "flights")["doubtful"] == 1
    assert until(lambda: state("files-doubtful-flights") == "ALARM")
    assert until(lambda: messages.of(WARNING, "files-doubtful-flights"))
    accepted = cloud.json("pull", "flights", "--accept-removed", "1")
    assert (accepted["removed"], accepted["doubtful"]) == (1, 0)


@pytest.fixture
def too_many(cloud, partner):
    """One file of today more than a pull takes."""
    day = datetime.now(ZoneInfo("America/New_York")).date()
    paths = [f"flights-{day}-{number:03}.csv" for number in range(MAX_ITEMS + 1)]
    for path in paths:
        partner.put(path, b"")
    yield
    for path in paths:
        (partner.folder / path).unlink()
    keys = [{"source": {"S": "flights"}, "path": {"S": path}} for path in paths]
    for first in range(0, len(keys), 25):  # the limit of DynamoDB
        deletes = [{"DeleteRequest": {"Key": key}} for key in keys[first : first + 25]]
        cloud.client("dynamodb").batch_write_item(RequestItems={cloud.outputs()["FileTable"]: deletes})


@causes("files-left")
def test_an_alarm_fires_when_a_pull_leaves_files(cloud, too_many, state, messages):
    # The alarm needs the pulls of three hours: `test_missing_data_is_treated_as_cloudwatch_documents_it`. The maximum,
    # because other tests pull the source in the same minute and leave nothing.
    one_pull = {"EvaluationPeriods": 1, "DatapointsToAlarm": 1, "Period": 60, "Statistic": "Maximum"}
    with changed_alarm(cloud, "files-left-flights", **one_pull):
        assert invoke(cloud, "list-files", source="flights", correlation_id="by-a-test")["left"] >= 1
        assert until(lambda: state("files-left-flights") == "ALARM")
        assert until(lambda: messages.of(WARNING, "files-left-flights"))


@causes("stale-objects", artificial="the local cloud writes no metrics of functions")
def test_an_alarm_fires_when_objects_of_pulled_files_have_no_record(cloud, state, messages, runbook):
    s3, raw = cloud.client("s3"), cloud.outputs()["RawBucket"]
    key = f"raw/source=flights/date=1999-01-01/hour=00/{'a' * 32}-{'b' * 12}-1.parquet"
    s3.put_object(Bucket=raw, Key=key, Body=b"no record")
    try:
        response = cloud.client("lambda").invoke(FunctionName="slackwater-remove-stale")
        assert response["FunctionError"]
        assert s3.head_object(Bucket=raw, Key=key)
    finally:
        s3.delete_object(Bucket=raw, Key=key)
    failed = {"MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": "slackwater-remove-stale"}]}
    cloud.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[{**failed, "Value": 1}])
    assert until(lambda: state("stale-objects") == "ALARM")
    log, _ = runbook("stale-objects")
    assert f"1 objects of pulled files have no record in the file cache, such as s3://{raw}/{key}" in log
    assert until(lambda: messages.of(WARNING, "stale-objects"))
    assert invoke(cloud, "remove-stale")["unrecorded"] == 0


def test_a_silent_partner_pages_once_and_only_a_day_that_nobody_starts_is_overdue(
    cloud, partner, published_today, *, state, messages, runbook
):
    """No day of the window has flights. Of the days past their deadline, only `DAY` was run."""
    check(cloud)
    assert until(lambda: state("partner-silent-flights") == "ALARM")
    assert until(lambda: state(f"day-overdue-{PIPELINE}") == "ALARM")
    _, report = runbook("day-overdue", EXCHANGE_BUCKET=cloud.outputs()["ExchangeBucket"])
    overdue = json.loads(report)["overdue"]
    assert DAY not in overdue
    assert str(date.fromisoformat(DAY) + timedelta(days=1)) in overdue
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])
    assert table.day(PIPELINE, DAY).published.publication.rows == 0
    with (
        changed_alarm(cloud, f"run-failed-{PIPELINE}", Threshold=1000),
        changed_alarm(cloud, f"execution-failed-{PIPELINE}", Threshold=1000),
    ):
        for alarm in ("run-failed", "execution-failed"):
            assert until(lambda of=alarm: state(f"{of}-{PIPELINE}") == "OK")
        pages = len(messages.of(PAGE, f"pipeline-{PIPELINE}"))
        reset_alarm(cloud, f"day-overdue-{PIPELINE}")
        check(cloud)
        page = until(lambda: messages.of(PAGE, f"pipeline-{PIPELINE}")[pages:])[0]
        assert f":slackwater-day-overdue-{PIPELINE} transitioned to ALARM" in page["NewStateReason"]
    assert state("partner-silent-flights") == "ALARM"
    assert len(messages.of(PAGE, "partner-silent-flights")) == 1

    model = "2013-03-09"
    yesterday = str(datetime.now(ZoneInfo("America/New_York")).date() - timedelta(days=1))
    header, first, *_ = (partner.folder / f"flights-{model}-12.csv").read_text().splitlines(keepends=True)
    partner.put(f"flights-{yesterday}-12.csv", header + first.replace(model, yesterday))
    cloud.json("pull", "flights")
    # The lowest value of ten minutes counts; this waits for some seconds instead.
    with changed_alarm(cloud, "partner-silent-flights", Period=1, EvaluationPeriods=3):
        assert until_ok(state, "partner-silent-flights", lambda: check(cloud))


@causes("raw-tables", artificial="the local cloud writes no metrics of functions")
def test_an_alarm_fires_when_the_tables_of_raw_events_do_not_follow(cloud, state, messages, runbook):
    request = json.dumps({"source": "nowhere", "partitions": [["2013-03-08", "05"]]})
    response = cloud.client("lambda").invoke(FunctionName="slackwater-update-raw-tables", Payload=request)
    assert response["FunctionError"]
    failed = {"MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": "slackwater-update-raw-tables"}]}
    cloud.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[{**failed, "Value": 3}])
    assert until(lambda: state("raw-tables") == "ALARM")
    log, *_ = runbook("raw-tables")
    assert "nowhere" in log
    assert until(lambda: messages.of(WARNING, "raw-tables"))


@causes("pack-objects", artificial="the local cloud writes no metrics of functions")
def test_an_alarm_fires_when_objects_of_an_hour_cannot_be_packed(cloud, state, messages, runbook):
    s3, raw, function = cloud.client("s3"), cloud.outputs()["RawBucket"], "slackwater-pack-objects"
    partition = Partition((datetime.now(UTC) - timedelta(days=5)).date().isoformat(), "05")
    uris = [object_uri(raw, "taps", partition, object_name(f"{number:032x}", 1)) for number in range(11)]
    keys = [uri.removeprefix(f"s3://{raw}/") for uri in uris]
    for key in keys:
        s3.put_object(Bucket=raw, Key=key, Body=b"no Parquet")
    response = cloud.client("lambda").invoke(FunctionName=function)
    assert f"1 hours could not be packed: taps {partition.date}T05: " in json.load(response["Payload"])["errorMessage"]
    for key in keys:
        s3.delete_object(Bucket=raw, Key=key)
    failed = {"MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": function}]}
    cloud.client("cloudwatch").put_metric_data(Namespace="AWS/Lambda", MetricData=[{**failed, "Value": 3}])
    assert until(lambda: state("pack-objects") == "ALARM")
    log, *_ = runbook("pack-objects", SOURCE="taps")
    assert f"taps {partition.date}T05" in log
    assert until(lambda: messages.of(WARNING, "pack-objects"))


@pytest.fixture
def flights_report(partner):
    """A function with which the partner reports how many flights of an hour of the day it has sent."""
    path = f"flights-{DAY}-counts.json"

    def report(sent: int) -> None:
        now, hour = datetime.now(UTC), f"{DAY}T18:00Z"
        document = {"as_of": now.isoformat(), "through": now.isoformat(), "counts": {hour: sent}}
        partner.put(path, json.dumps(document).encode())

    yield report
    (partner.folder / path).unlink()


@causes("events-missing")
def test_an_alarm_fires_for_reported_events_that_are_missing(cloud, metric, flights_report, *, state, messages):
    flights_report(5)
    assert cloud.json("pull", "flights")["reports"] == 1
    check(cloud)
    assert until(lambda: metric("EventsMissing", "Maximum", source="flights")) == 5
    assert until(lambda: state("events-missing-flights") == "ALARM")
    assert until(lambda: messages.of(WARNING, "events-missing-flights"))
    assert cloud.json("counts", "flights", "--date", DAY)["total"]["missing"] == 5
    # The partner corrects its counts: nothing is missing.
    flights_report(0)
    assert cloud.json("pull", "flights")["reports"] == 1
    assert cloud.json("counts", "flights", "--date", DAY)["total"]["missing"] == 0
