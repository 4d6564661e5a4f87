"""Three regions send their events in any order, with reports that are wrong first: runs start when all are there.

The states of all windows and hours, the local days of the regions, and the published rows equal what DuckDB counts in
the events that were sent. `REGION_HOURS=12` sends more of them, starts a run of each region too, and kills the process
of each function before and after each of its writes.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.dynamodb.period_table import DynamoPeriodTable
from slackwater.client.states import read_states
from slackwater.project.project import load_definitions
from slackwater.project.schedule import ScheduledWork, schedule_of
from slackwater.project.scheduled_starts import ScheduledStart
from slackwater.runs.record import RunState
from slackwater.state.completeness import total_counts, total_state
from slackwater.state.rollup import rolled_up
from tests.cloud.conftest import ended, entered, start
from tests.cloud.deaths import deaths
from tests.cloud.generated_regions import (
    COVERED,
    DATE,
    DAY,
    IS_LONG,
    MINUTES,
    ZONES,
    Region,
    good,
    messages_of,
    put_files,
)
from tests.cloud.staged_runs import wait_for

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = int(os.environ.get("REGION_SEED", "1"))
ON_THE_WAY = ("receive-events", "store-events", "list-files", "fetch-file", "fold-state", "await-inputs")
"""The functions between an event or a report and the start of a run: none of them dies with the last ones."""
WAIT, FREEZE = "Wait for the inputs", "Freeze inputs"


@pytest.fixture(scope="module")
def chance() -> random.Random:
    return random.Random(SEED)  # noqa: S311 - the same events each time


@pytest.fixture(scope="module")
def regions(chance) -> dict[str, Region]:
    return {name: Region(name, chance) for name in ZONES}


@pytest.fixture(scope="module")
def post(cloud):
    """Send events or a report to a source, again and again until it answers that it has them."""
    sources = [argument for name in ZONES for argument in ("--source", f"region_{name}")]
    headers = {"authorization": f"Bearer {cloud.json('token', 'create', 'regions', *sources)['token']}"}
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources"

    def post(source: str, path: str, body: object) -> None:
        for _ in range(30):
            response = httpx.post(f"{url}/{source}/{path}", json=body, headers=headers, timeout=60)
            if response.status_code == 202:
                return
            assert response.status_code >= 500, response.text
            time.sleep(0.2)
        raise AssertionError(response.text)

    return post


@pytest.fixture(scope="module")
def pipelines(cloud) -> dict[str, str]:
    """The pipelines by the region after whose last event they start: with `REGION_HOURS`, one for each, and all."""
    if IS_LONG:
        for name, zone in ZONES.items():
            query = f"SELECT count(*) AS events, sum(value) AS total, '{name}' AS region FROM region_{name}"
            steps = {"all": {"step": "sql", "depends_on": [f"region_{name}"], "with": {"query": query}}}
            definition = {
                "pipeline": f"of_{name}",
                "timezone": zone,
                "sources": [f"region_{name}"],
                "steps": steps,
                "publish": {"step": "all", "key": ["date", "region"], "metrics": {"events": "sum"}},
                "when": {
                    "inputs": {f"region_{name}": "complete"},
                    "unknown": {"after": "7d", "then": "fail"},
                    "incomplete": {"after": "7d", "then": "fail"},
                },
            }
            (cloud.project / "pipelines" / f"of_{name}.yaml").write_text(json.dumps(definition))
        cloud.slackwater("deploy")
    return {"regions": "eu"} | ({f"of_{name}": name for name in ZONES} if IS_LONG else {})


def scheduled(cloud, pipeline: str) -> dict[str, object]:
    """Return the input of the run of the day, as the scheduler starts it."""
    tasks = schedule_of(load_definitions(cloud.project)).tasks
    [task] = [task for task in tasks if (task.work, task.subject) == (ScheduledWork.PROCESS, pipeline)]
    zone = ZoneInfo(ZONES.get(pipeline.removeprefix("of_"), "UTC"))
    day = datetime(DAY.year, DAY.month, DAY.day, tzinfo=zone)
    at = (day + timedelta(days=1, hours=task.buffer_hours + 1)).astimezone(UTC)
    found = ScheduledStart(task=task, scheduled_at=at).input
    assert (found["date"], found["wait"]) == (DATE, True)
    return found


def pull(cloud, partner) -> bool:
    """Pull, and return whether all files are stored; a process may have died.

    What it was working on would wait for the end of its lease, and from the second time on for a Spark job.
    """
    result = cloud.slackwater("pull", "region_in", "--json", code=None)
    if not IS_LONG:
        return result.code == 0
    table = cloud.client("cloudformation").describe_stack_resources(StackName="slackwater-storage")["StackResources"]
    [table] = [each["PhysicalResourceId"] for each in table if each["LogicalResourceId"].startswith("FileTable")]
    cache = DynamoFileCache(cloud.client("dynamodb"), table)
    entries = cache.entries("region_in", [path.name for path in partner.folder.glob("region_in-*.csv")])
    now = datetime.now(UTC)
    for entry in [entry for entry in entries if entry.due]:
        lease = entry.lease and entry.lease.model_copy(update={"until": now})
        cache.save(entry.model_copy(update={"lease": lease, "attempts": 0, "due": now}))
    return result.code == 0 and not any(result.json[name] for name in ("busy", "waiting"))


@pytest.fixture(scope="module")
def sent(  # noqa: PLR0917 - fixtures
    cloud, partner, post, arrivals, pipelines, regions, chance, tmp_path_factory
):
    """Start the runs, send everything, and return the executions, and when the last event or report was sent."""
    machine = cloud.outputs()["PipelineMachinePrefix"]
    with ExitStack() as stack:
        killed = stack.enter_context(deaths(cloud, tmp_path_factory.mktemp("deaths"))) if IS_LONG else None
        executions = {name: start(cloud, machine + name, scheduled(cloud, name)) for name in pipelines}
        now = datetime.now(UTC)
        messages = [message for name in ("eu", "us") for message in messages_of(regions[name], chance, now)]
        chance.shuffle(messages)
        put_files(partner, regions["in"], is_first=True)
        counts = f"region_in-{DATE}-counts"
        partner.put(f"{counts}.json", json.dumps(regions["in"].report(chance, now - timedelta(minutes=9))))
        pulls = {len(messages) // 3, 2 * len(messages) // 3}
        for number, message in enumerate(messages):
            post(*message)
            if number in pulls:
                pull(cloud, partner)
        partner.put(f"{counts}-b.json", json.dumps(regions["in"].report(None, now - timedelta(minutes=8))))
        wait_for(lambda: pull(cloud, partner), 900)
        # Each region lacks one event, or its corrected report.
        post("region_us", "events", [regions["us"].row(regions["us"].held)])
        wait_for(lambda: stored_ids(cloud, "us") == len(good(regions["us"].events)), 900)
        wait_for(lambda: all(stored(cloud, name) == len(good(regions[name].others)) for name in ("eu", "in")), 900)
        assert all(FREEZE not in entered(cloud, execution) for execution in executions.values())
        if killed:
            killed.spare(*ON_THE_WAY)
        sent_at = {"us": datetime.now(UTC)}
        post("region_us", "counts", regions["us"].report(None, now))
        put_files(partner, regions["in"], is_first=False)
        sent_at["in"] = datetime.now(UTC)
        cloud.json("pull", "region_in")
        if IS_LONG:
            wait_for(lambda: all(FREEZE in entered(cloud, executions[f"of_{name}"]) for name in ("us", "in")))
        # Until nothing else is on its way, with which the last event could be handled earlier than alone.
        wait_for(lambda: stored(cloud, "in") == len(good(regions["in"].events)), 900)
        assert FREEZE not in entered(cloud, executions["regions"])
        sent_at["eu"] = datetime.now(UTC)
        post("region_eu", "events", [regions["eu"].row(regions["eu"].held)])
        outcomes = {name: ended(cloud, execution) for name, execution in executions.items()}
        died = killed.by_function() if killed else {}
        print(json.dumps({"died": died, "events": {name: len(it.events) for name, it in regions.items()}}))
    return executions, sent_at, outcomes


def periods(cloud, name: str):
    """Return the definition of a region's source, and its stored states."""
    source = load_definitions(cloud.project).source(f"region_{name}")
    table = DynamoPeriodTable(cloud.client("dynamodb"), cloud.outputs()["StateTable"])
    return source, read_states(table, source, *COVERED)


def stored(cloud, name: str) -> int:
    """Return the events of a region by its states: without duplicates, once everything is known."""
    return sum(state.stored for state in periods(cloud, name)[1])


def stored_ids(cloud, name: str) -> int:
    """Return the number of ids in the objects of a region."""
    s3, bucket, ids = cloud.client("s3"), cloud.outputs()["RawBucket"], set[str]()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"raw/source=region_{name}/")
    for item in [item for page in pages for item in page.get("Contents", [])]:
        body = s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
        ids.update(pq.read_table(io.BytesIO(body), columns=["id"])["id"].to_pylist())
    return len(ids)


@pytest.fixture(scope="module")
def duck(regions):
    """DuckDB with what was sent."""
    rows = [(name, e["id"], e["at"], e["value"]) for name, region in regions.items() for e in region.events]
    table = pa.table(
        {
            "region": [row[0] for row in rows],
            "id": [row[1] for row in rows],
            "happened": pa.array([row[2] for row in rows], pa.timestamp("us", "UTC")),
            "value": pa.array([row[3] if isinstance(row[3], int) else None for row in rows], pa.int64()),
        }
    )
    connection = duckdb.connect()
    connection.register("sent", table)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


COUNTS = "count(DISTINCT id), count(DISTINCT id) FILTER (value IS NOT NULL), count(DISTINCT id) FILTER (value IS NULL)"


def test_each_run_starts_once_and_never_before_the_last_event_or_report(cloud, sent, pipelines):
    executions, sent_at, outcomes = sent
    states = cloud.client("stepfunctions")
    for pipeline, region in pipelines.items():
        events = states.get_execution_history(executionArn=executions[pipeline], maxResults=1000)["events"]
        [left] = [
            event["timestamp"] for event in events if event.get("stateExitedEventDetails", {}).get("name") == WAIT
        ]
        assert left > sent_at[region]
        print(f"{pipeline}: {(left - sent_at[region]).total_seconds():.1f} s after the last event")
        assert outcomes[pipeline]["outcome"] == "published"
        entries = entered(cloud, executions[pipeline])
        assert (entries.count(WAIT), entries.count(FREEZE)) == (1, 1)
        runs = cloud.json("runs", pipeline, "--date", DATE)["runs"]
        assert [(run["attempt"], run["state"]) for run in runs] == [(1, RunState.PUBLISHED)]


@pytest.mark.parametrize("name", ZONES)
def test_windows_and_hours_are_those_of_duckdb(cloud, sent, duck, name):
    for minutes in (5, 60):
        query = (
            f"SELECT time_bucket(INTERVAL {minutes} MINUTE, happened), {COUNTS} FROM sent WHERE region = ? GROUP BY 1"
        )
        expected = {row[0]: row[1:] for row in duck.execute(query, [name]).fetchall()}
        wait_for(lambda: all(state.state == "complete" for state in periods(cloud, name)[1]))
        _, states = periods(cloud, name)
        items = states if minutes == 60 else [window for state in states for window in state.windows]
        assert {(item.end - item.start) // MINUTES * 5 for item in items} == {minutes}
        found = {item.start: (item.sent, item.stored, item.rejected) for item in items}
        assert {at: numbers for at, numbers in found.items() if numbers != (0, 0, 0)} == expected
        assert {item.state for item in items} == {"complete"}
        assert len(items) == (COVERED[1] - COVERED[0]) // timedelta(minutes=minutes)


def test_local_days_and_all_regions_are_those_of_duckdb(cloud, sent, duck):
    total = Counter()
    for name, zone in ZONES.items():
        start_of = datetime(DAY.year, DAY.month, DAY.day, tzinfo=ZoneInfo(zone))
        span = [at.astimezone(UTC) for at in (start_of, start_of + timedelta(days=1))]
        query = f"SELECT {COUNTS} FROM sent WHERE region = ? AND timezone(?, happened)::DATE = ?::DATE"
        source, states = periods(cloud, name)
        found = total_counts(source, rolled_up(source, states, *span))
        assert (found.sent, found.stored, found.rejected) == duck.execute(query, [name, zone, DATE]).fetchone()
        assert (found.state, found.missing) == ("complete", 0)
        total.update(sent=found.sent, stored=found.stored, rejected=found.rejected)
    assert total_state(state.state for name in ZONES for state in periods(cloud, name)[1]) == "complete"
    query = "".join(f" WHEN '{name}' THEN '{zone}'" for name, zone in ZONES.items())
    query = f"SELECT {COUNTS} FROM sent WHERE timezone(CASE region{query} END, happened)::DATE = ?::DATE"
    assert tuple(total.values()) == duck.execute(query, [DATE]).fetchone()


def test_published_rows_are_those_of_duckdb(cloud, sent, duck, pipelines):
    for pipeline in pipelines:
        zone = ZONES.get(pipeline.removeprefix("of_"), "UTC")
        query = (
            "SELECT region, count(DISTINCT id), sum(value)::BIGINT FROM sent WHERE value IS NOT NULL "
            "AND timezone(?, happened)::DATE = ?::DATE AND (? = 'regions' OR 'of_' || region = ?) GROUP BY 1 ORDER BY 1"
        )
        expected = [list(row) for row in duck.execute(query, [zone, DATE, pipeline, pipeline]).fetchall()]
        columns = f"region, events, total FROM {pipeline} WHERE date = '{DATE}' ORDER BY region"
        assert cloud.query(f"SELECT {columns}") == expected
