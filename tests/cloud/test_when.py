"""A run that waits for the counts of two sources, on the local cloud."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.project.project import load_definitions
from slackwater.project.schedule import ScheduledWork, schedule_of
from slackwater.project.scheduled_starts import ScheduledStart
from slackwater.runs.record import tagged_attempt
from tests.cloud.conftest import ended, entered, start
from tests.cloud.staged_runs import wait_for

pytestmark = pytest.mark.cloud

PIPELINE, WAIT, FREEZE = "beacon_signals", "Wait for the inputs", "Freeze inputs"
AFTER = "signal_totals"
"""A pipeline that reads the published day."""
END = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=3)
START = END - timedelta(days=1)
DATE = START.date().isoformat()


@pytest.fixture(scope="module")
def post(cloud, arrivals):
    """Post events of a source, a report that it has sent so many of them in a window, and no others, or a verdict about
    the first hour."""
    names = ("beacons", "signals")
    sources = [argument for name in names for argument in ("--source", name)]
    token = cloud.json("token", "create", "waiting", *sources)["token"]
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources"

    def post(source, *values, sent=None, quality=None, at=START + timedelta(minutes=2), window=START, through=END):
        at = at.isoformat()
        events = [{"id": f"w{value}", "value": value, "at": at} for value in values]
        report = {
            "as_of": datetime.now(UTC).isoformat(),
            "through": through.isoformat(),
            "counts": {window.isoformat(): sent},
        }
        path, body = ("events", events) if sent is None else ("counts", report)
        if quality:
            verdict = {"hour": f"{DATE}T00", "quality": quality, "reason": "a test system has sent it"}
            path, body = "verdicts", {**verdict, "as_of": datetime.now(UTC).isoformat()}
        headers = {"authorization": f"Bearer {token}"}
        response = httpx.post(f"{url}/{source}/{path}", json=body, headers=headers, timeout=60)
        assert response.status_code == 202, response.text

    return post


def test_a_scheduled_run_waits_and_goes_on_once_when_everything_is_there(cloud, post):
    machine, dynamodb = cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, cloud.client("dynamodb")
    for source in ("beacons", "signals"):
        post(source, 1, 2)
    post("signals", sent={"w1": 2, "w2": 0})
    tasks = schedule_of(load_definitions(cloud.project)).tasks
    [task] = [task for task in tasks if (task.work, task.subject) == (ScheduledWork.PROCESS, PIPELINE)]
    scheduled = ScheduledStart(task=task, scheduled_at=START + timedelta(days=1, hours=task.buffer_hours + 1))
    assert scheduled.input["date"] == DATE
    execution = start(cloud, machine, scheduled.input)
    after = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + AFTER, {"date": DATE, "wait": True})

    def unmet(pipeline=PIPELINE):
        """Return what the run waits for, as it was stored after the latest evaluation."""
        key = {":pk": {"S": f"{pipeline}#{DATE}"}}
        query = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": key}
        items = dynamodb.query(TableName=cloud.outputs()["StateTable"], **query)["Items"]
        return [f"{one['input']}: {one['text']}" for item in items for one in json.loads(item["unmet"]["S"])]

    # There are as many events as were sent, but one of the second value is not made up for by one of the first.
    by_value = "signals: sent 2, stored 2, rejected 0, missing 1, surplus 1"
    wait_for(lambda: unmet() == ["beacons: no counts of the source", by_value])
    post("signals", sent={"w1": 1, "w2": 1})
    wait_for(lambda: unmet() == ["beacons: no counts of the source"])
    [first, *_] = cloud.json("counts", "signals", "--date", DATE)["periods"]
    assert [(value["value"], value["state"], value["sent"], value["stored"]) for value in first["values"]] == [
        ("w1", "complete", 1, 1),
        ("w2", "complete", 1, 1),
        ("other", "complete", 0, 0),
    ]
    wait_for(lambda: unmet(AFTER) == [f"days: {PIPELINE} has not published {DATE} of 1 day"])
    post("beacons", sent=3)
    shown = cloud.slackwater("why", PIPELINE, "--date", DATE).out
    assert "  inputs        a run waits since 2" in shown
    assert "beacons: sent 3, stored 2, rejected 0, missing 1\n  waits for     when its inputs change" in shown
    # A run that a person starts does not wait.
    by_hand = start(cloud, machine, {"date": (START - timedelta(days=1)).date().isoformat(), "force": False})
    wait_for(lambda: FREEZE in entered(cloud, by_hand))
    assert WAIT not in entered(cloud, by_hand)
    cloud.client("stepfunctions").stop_execution(executionArn=by_hand)
    assert FREEZE not in entered(cloud, execution)
    hour = f"{DATE}T00"
    cloud.slackwater("verdict", "beacons", "--hour", hour, "fail", "--reason", "one is twice")
    post("beacons", 3)
    wait_for(lambda: "UTC: fail, by arn:" in unmet()[0])
    [failed] = cloud.json("state", "beacons", "--from", DATE, "--to", DATE)[0]["failed"]
    assert (failed["hour"], failed["verdicts"][0]["reason"]) == (hour, "one is twice")
    assert FREEZE not in entered(cloud, execution)
    given = cloud.json("verdict", "beacons", "--hour", hour, "pass", "--reason", "they are two")
    assert (given["obeyed_by"], given["note"]) == ([PIPELINE, AFTER], "")
    assert ended(cloud, execution)["outcome"] == "published"
    states = entered(cloud, execution)
    assert (states.count(WAIT), states.count(FREEZE)) == (1, 1)
    rows = cloud.query(f"SELECT kind, events, total FROM {PIPELINE} WHERE date = '{DATE}' ORDER BY kind")
    assert rows == [["beacons", 3, 6], ["signals", 2, 3]]
    assert unmet() == []
    # The published day wakes the run that reads it.
    assert ended(cloud, after)["outcome"] == "published"
    assert (entered(cloud, after).count(WAIT), unmet(AFTER)) == (1, [])
    assert cloud.query(f"SELECT events FROM {AFTER} WHERE date = '{DATE}'") == [[5]]
    # A verdict about an hour travels to what has read the day that has read it.
    cloud.slackwater("verdict", "beacons", "--hour", hour, "fail", "--reason", "bots")
    again = start(cloud, cloud.outputs()["PipelineMachinePrefix"] + AFTER, {"date": DATE, "wait": True})
    wait_for(lambda: [text.partition(":")[0] for text in unmet(AFTER)] == ["days"])
    assert "days: beacons" in unmet(AFTER)[0]
    [failed] = cloud.json("state", AFTER, "--from", DATE, "--to", DATE)[0]["failed"]
    assert (failed["pipeline"], failed["version"], failed["verdicts"][0]["hour"]) == (AFTER, 1, hour)
    cloud.slackwater("verdict", "beacons", "--hour", hour, "pass", "--reason", "none")
    assert ended(cloud, again)["outcome"] == "unchanged"
    # Of two more events that the source reports, one comes: the day waits for the other one.
    post("beacons", sent=5)
    post("beacons", 4)
    decision = cloud.json("why", PIPELINE, "--date", DATE)["decision"]
    assert (decision["decision"], decision["rule"]) == ("defer", "incomplete")
    assert decision["reasons"][1].startswith("beacons: sent 5, stored 4, rejected 0, missing 1")


def test_a_run_refuses_an_input_for_all_pipelines_until_it_is_corrected(cloud, post):
    """After the test before, in which both pipelines have published the day."""
    objects = {"Bucket": cloud.outputs()["RawBucket"], "Prefix": f"raw/source=beacons/date={DATE}/hour=00/"}

    def keys():
        return {item["Key"] for item in cloud.client("s3").list_objects_v2(**objects)["Contents"]}

    def failed(pipeline):
        found = cloud.json("state", pipeline, "--from", DATE, "--to", DATE)
        return [period for item in found for period in item["failed"]]

    good = keys()
    post("beacons", 5_000_000)
    error = cloud.json("run", PIPELINE, "--date", DATE, code=1)["error"]["message"]
    assert "steps.checked: range of value failed in 1 of 5 checked rows, such as" in error
    [period] = failed(AFTER)
    [verdict] = period["verdicts"]
    assert (verdict["hour"], verdict["principal"]) == (f"{DATE}T00", f"pipeline {PIPELINE} of {DATE}, attempt 2")
    assert verdict["reason"].startswith("steps.checked: range of value")
    # It stops no run of the pipeline itself.
    [bad] = keys() - good
    cloud.client("s3").delete_object(Bucket=objects["Bucket"], Key=bad)
    assert cloud.slackwater("run", PIPELINE, "--date", DATE).code == 0
    assert failed(AFTER) == []
    rows = cloud.query(f"SELECT kind, events FROM {PIPELINE} WHERE date = '{DATE}' ORDER BY kind")
    assert rows == [["beacons", 4], ["signals", 2]]
    # So may the partner.
    post("beacons", quality="fail")
    assert [item["principal"] for period in failed(AFTER) for item in period["verdicts"]] == ["push:waiting"]
    post("beacons", quality="pass")
    assert failed(AFTER) == []


def test_the_open_day_is_published_again_when_events_come(cloud, post):
    wait_for(lambda: (datetime.now(UTC) + timedelta(minutes=2)).date() == datetime.now(UTC).date())
    now = datetime.now(UTC)
    today, machine = now.date().isoformat(), cloud.outputs()["PipelineMachinePrefix"] + PIPELINE
    sql = f"SELECT kind, events, total FROM {PIPELINE} WHERE date = '{today}' ORDER BY kind"

    def run():
        return ended(cloud, start(cloud, machine, {"date": today, "live": True}))

    post("beacons", 10, 20, at=now)
    first = run()
    assert (first["outcome"], first["run"]["attempt"]) == ("published", 1)
    # The oracle: what was sent before the inputs were listed.
    assert datetime.fromisoformat(first["run"]["through"]) > now
    assert cloud.query(sql) == [["beacons", 2, 30], ["signals", 0, None]]
    jobs = len(cloud.jobs())
    again = run()
    assert (again["outcome"], again["run"], len(cloud.jobs())) == ("unchanged", first["run"], jobs)
    post("beacons", 30, at=now)
    post("signals", 5, at=now)
    second = run()
    assert cloud.query(sql) == [["beacons", 3, 60], ["signals", 1, 5]]
    [provisional] = cloud.json("query", sql)["provisional"]
    through = datetime.fromisoformat(provisional["through"])
    assert (provisional["date"], through) == (today, datetime.fromisoformat(second["run"]["through"]))
    assert f"provisional, through {through:%H:%M} UTC" in cloud.slackwater("why", PIPELINE, "--date", today).out
    keys = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    region = {"s3.region": cloud.environment["AWS_REGION"]}
    table = GlueCatalog("published", client=cloud.client("glue"), **keys, **region).load_table(
        f"{cloud.outputs()['WarehouseDatabase']}.{PIPELINE}"
    )
    # Only the latest version of them has a tag, and the property says until when it has events.
    tags = {name: table.snapshot_by_name(name) for name in table.refs() if name.startswith(today)}
    assert [tagged_attempt(name) for name in tags] == [2]
    assert {snapshot.summary["slackwater.through"] for snapshot in tags.values()} == {through.isoformat()}
    [missing] = cloud.json("why", AFTER, "--date", today)["wait"]["unmet"]
    assert missing["text"] == f"{PIPELINE} has not published {today} of 1 day"


def test_the_open_day_is_published_again_when_a_further_window_has_all_events(cloud, post):
    # Only this window of the day is reported.
    window = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    wait_for(lambda: timedelta(minutes=11) < datetime.now(UTC) - window < timedelta(hours=23, minutes=55), 700)
    of_window = {"window": window, "through": window + timedelta(minutes=10)}
    machine, states = cloud.outputs()["PipelineMachinePrefix"] + PIPELINE, cloud.client("stepfunctions")

    def executions():
        """Return those that no test has named."""
        found = states.list_executions(stateMachineArn=machine)["executions"]
        return [item["executionArn"] for item in found if "live" in item["name"]]

    def stored():
        """Return the beacons of the window by its stored state, with duplicates."""
        [found] = cloud.json("state", "beacons", "--from", f"{window:%Y-%m-%d}", "--to", f"{window:%Y-%m-%d}")
        windows = [item for period in found["periods"] for item in period["windows"]]
        return [item["stored"] for item in windows if datetime.fromisoformat(item["start"]) == window]

    post("signals", sent={"w1": 0, "w2": 0}, **of_window)
    post("beacons", 40, 50, at=window)
    post("beacons", sent=3, **of_window)
    wait_for(lambda: stored() == [2])
    assert executions() == []
    post("beacons", 60, at=window + timedelta(minutes=1))
    wait_for(executions)
    [execution] = executions()
    assert ended(cloud, execution)["outcome"] == "published"
    sql = f"SELECT kind, events, total FROM {PIPELINE} WHERE date = '{window.date()}' ORDER BY kind"
    # The day has the events of the test before, if it has run.
    events = "SELECT DISTINCT id, value FROM raw.{} WHERE date = '{}'"
    count = f"SELECT count(*), sum(value)::BIGINT FROM ({events})"
    expected = [[kind, *cloud.query(count.format(kind, window.date()))[0]] for kind in ("beacons", "signals")]
    assert cloud.query(sql) == expected
    assert expected[0][1] >= 3
    post("beacons", sent=3, **of_window)
    # More events of the window, and one of them again.
    post("beacons", 60, 70, at=window + timedelta(minutes=1))
    wait_for(lambda: stored() == [5])
    assert executions() == [execution]


def test_the_last_run_of_a_day_makes_its_provisional_version_the_published_one(cloud, post):
    """The day before was published by the tests before: its records get the state that the last live run leaves."""
    table = DynamoRunTable(cloud.client("dynamodb"), cloud.outputs()["RunTable"])
    day = table.day(PIPELINE, DATE)
    version, attempt = day.published, table.run(PIPELINE, DATE, day.published.run.attempt)
    marked = version.run.model_copy(update={"through": START + timedelta(hours=1)})
    open_day = {"published": None, "provisional": version.model_copy(update={"run": marked}), "notified_attempt": 0}
    table.save(day.model_copy(update=open_day), attempt.model_copy(update={"run": marked}))
    jobs = len(cloud.jobs())
    last = cloud.json("run", PIPELINE, "--date", DATE)
    assert (last["outcome"], last["attempt"], last["provisional"]) == ("published", version.run.attempt, False)
    assert (entered(cloud, last["execution"])[-1], len(cloud.jobs())) == ("Record the publication", jobs)
    finished = table.day(PIPELINE, DATE)
    assert (finished.published.run, finished.provisional) == (version.run, None)
    assert finished.notified_attempt == version.run.attempt
    assert table.run(PIPELINE, DATE, version.run.attempt).run.through is None
