"""Fifty thousand events of five minutes are pushed into a running day while its processes are killed at random.

Each provisional version has the events that were stored before its `through`, and the published one has all. The
module waits for the end of the day, which is the next full hour, in a timezone that is chosen for it. `LIVE_KILLS=no`
kills nothing, for the figures of docs/benchmarks.md, `LIVE_PACKS=no` packs no objects of the open hour, and
`LIVE_SECONDS` is for how long events are sent.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median, quantiles
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.project.project import load_definitions
from slackwater.project.schedule import ScheduledWork, schedule_of
from slackwater.project.scheduled_starts import ScheduledStart
from tests.cloud.conftest import ended, start
from tests.cloud.deaths import deaths
from tests.cloud.random_kills import RandomKills
from tests.cloud.requests_counted import counted_requests
from tests.cloud.staged_runs import wait_for

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(6000)]

NAME, FREEZE = "strokes", "Freeze inputs"
EVENTS, BATCH, SENDERS = 50_000, 100, 4
SECONDS = float(os.environ.get("LIVE_SECONDS", "300"))
EVERY = 15
"""Seconds between two starts of a run. A scheduler starts one each minute at most."""
KILLS = os.environ.get("LIVE_KILLS") != "no"
PACKS = os.environ.get("LIVE_PACKS") != "no"
MINUTE = timedelta(minutes=1)


def zone_of(end: datetime) -> str:
    """Return a timezone in which a day ends at a full hour of UTC."""
    if end.hour <= 12:
        return f"Etc/GMT+{end.hour}" if end.hour else "UTC"
    return f"Etc/GMT-{24 - end.hour}"


@dataclass
class Sent:
    """The bodies that were sent, and when each was confirmed."""

    url: str
    client: httpx.Client
    """One for all requests: one for each would take as much processor time as the versions."""
    events: list[tuple[str, int, int]] = field(default_factory=list)
    """The id, the batch and the value of each event, once for each time that it was sent."""
    begun: dict[int, datetime] = field(default_factory=dict)
    """By batch: when it was sent first."""
    confirmed: dict[int, datetime] = field(default_factory=dict)
    repeated: int = 0
    """Requests that were sent again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, batch: int) -> None:
        """Send a batch, again and again until it is confirmed. Its events have the same time, so one object has them.

        Each tenth batch is followed by a fifth of its events in another body.
        """
        now = datetime.now(UTC)
        numbers = range(batch * BATCH, (batch + 1) * BATCH)
        rows = [{"id": f"e{n}", "batch": batch, "value": n % 1009, "at": now.isoformat()} for n in numbers]
        self.begun[batch] = now
        self._post(rows)
        self.confirmed[batch] = datetime.now(UTC)
        if batch % 10 == 0:
            self._post(rows[::5])

    def _post(self, rows: list[dict[str, Any]]) -> None:
        with self._lock:
            self.events += [(row["id"], row["batch"], row["value"]) for row in rows]
        for _ in range(100):
            try:
                response = self.client.post(self.url, json=rows)
            except httpx.TransportError:
                pass
            else:
                if response.status_code == 202:
                    return
                assert response.status_code >= 500, response.text
            self.repeated += 1
            time.sleep(0.2)
        raise AssertionError("a batch was not confirmed")

    def rows(self, batches: set[int]) -> list[tuple[int, int, int]]:
        """Compute the rows of a version with these batches by DuckDB: batch, events and total."""
        names = ("id", "batch", "value")
        sent = pa.table([list(column) for column in zip(*self.events, strict=True)], names=names)
        connection = duckdb.connect()
        connection.register("sent", sent)
        connection.register("chosen", pa.table({"batch": sorted(batches)}))
        return connection.execute(
            "SELECT batch, count(*), sum(value)::BIGINT FROM (SELECT DISTINCT * FROM sent) "
            "SEMI JOIN chosen USING (batch) GROUP BY batch ORDER BY batch"
        ).fetchall()


@dataclass(frozen=True)
class Version:
    """A provisional version, as the table has it."""

    attempt: int
    through: datetime
    committed: datetime
    rows: list[tuple[int, int, int]]

    @property
    def batches(self) -> set[int]:
        return {row[0] for row in self.rows}


@dataclass
class Played:
    """What was sent and started, and the versions that came of it."""

    end: datetime
    date: str
    sent: Sent
    starts: list[tuple[datetime, str]]
    """When each run but the first one was started, and its execution."""
    versions: list[Version]
    killed: dict[str, int]


@pytest.fixture(scope="module")
def played(cloud, tmp_path_factory) -> Iterator[Played]:
    """Push the events, start a run every few seconds, and read all versions of the open day."""
    begin = datetime.now(UTC)
    end = (begin + timedelta(seconds=SECONDS) + 4 * MINUTE).replace(minute=0, second=0, microsecond=0)
    end += timedelta(hours=1)
    zone = zone_of(end)
    date = (end - MINUTE).astimezone(ZoneInfo(zone)).date().isoformat()
    define(cloud, zone)
    cloud.slackwater("deploy")
    token = cloud.json("token", "create", NAME, "--source", NAME)["token"]
    url = f"{cloud.outputs()['ApiUrl'].rstrip('/')}/v1/sources/{NAME}/events"
    client = httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60)
    sent, starts = Sent(url, client), list[tuple[datetime, str]]()
    machine = cloud.outputs()["PipelineMachinePrefix"] + NAME

    def run() -> None:
        scheduled_input = scheduled(cloud, ScheduledWork.LIVE, date)
        starts.append((datetime.now(UTC), start(cloud, machine, scheduled_input)))

    count, kills = int(EVENTS // BATCH * SECONDS / 300), None
    # The day is running: its workers are ready, and it has a version.
    sent.batch(count + 1)
    ended(cloud, start(cloud, machine, scheduled(cloud, ScheduledWork.LIVE, date)))
    feed_start = time.monotonic()

    def send(sender: int) -> None:
        for batch in range(sender, count, SENDERS):
            time.sleep(max(0.0, feed_start + SECONDS * batch / count - time.monotonic()))
            if kills and batch % 8 == 0:
                kills.kill_worker()
            sent.batch(batch)

    with ExitStack() as stack:
        died = None
        if KILLS:
            died = stack.enter_context(deaths(cloud, tmp_path_factory.mktemp("deaths")))
            kills = stack.enter_context(RandomKills(cloud, seed=1, share_of_jobs=0.3))
        pool = stack.enter_context(ThreadPoolExecutor(SENDERS))
        senders = [pool.submit(send, number) for number in range(SENDERS)]
        while not all(sender.done() for sender in senders):
            time.sleep(EVERY - (time.monotonic() - feed_start) % EVERY)
            run()
        for sender in senders:
            sender.result()
    states = cloud.client("stepfunctions")
    wait_for(lambda: all(states.describe_execution(executionArn=arn)["status"] != "RUNNING" for _, arn in starts), 600)
    sent.batch(count)  # without new events, a live run that has failed is not repeated
    with counted_requests(cloud) as requests:
        run()
        ended(cloud, starts[-1][1])
    print(json.dumps({"requests of the last version": requests}))
    by_kind = dict(kills.killed) if kills else {}
    by_kind |= {f"at a write of {name}": number for name, number in (died.by_function() if died else {}).items()}
    yield Played(end, date, sent, starts, versions(cloud, date), by_kind)
    client.close()


def define(cloud, zone: str) -> None:
    """Write the source and the pipeline. Its rows are the batches, so that they show which of them a version has."""
    fields = {"id": {"type": "string", "required": True}, "batch": "int64", "value": "int64", "at": "timestamp"}
    source = {"source": NAME, "timestamp": {"field": "at"}, "event_id": "id", "fields": fields, "push": {}}
    source |= {"pack": {"max_objects": 50}} if PACKS else {}
    query = f"SELECT batch, count(*) AS events, sum(value) AS total FROM {NAME} GROUP BY batch"
    pipeline = {
        "pipeline": NAME,
        "timezone": zone,
        "sources": [NAME],
        "steps": {"by_batch": {"step": "sql", "depends_on": [NAME], "with": {"query": query}}},
        "publish": {"step": "by_batch", "key": ["date", "batch"], "metrics": {"events": "sum"}},
        "live": {"every": "5m"},
    }
    (cloud.project / "sources" / f"{NAME}.yaml").write_text(json.dumps(source))
    (cloud.project / "pipelines" / f"{NAME}.yaml").write_text(json.dumps(pipeline))


def scheduled(cloud, work: ScheduledWork, date: str) -> dict[str, Any]:
    """Return the input of a run as the scheduler starts it now, or for the day that has just ended."""
    tasks = schedule_of(load_definitions(cloud.project)).tasks
    [task] = [task for task in tasks if (task.work, task.subject) == (work, NAME)]
    at = datetime.now(UTC) + timedelta(hours=task.buffer_hours)
    found = ScheduledStart(task=task, scheduled_at=at).input
    assert found["date"] == date
    return found


def versions(cloud, date: str) -> list[Version]:
    """Return the provisional versions in the order of their commits, which are readable for an hour."""
    keys = {"s3.endpoint": cloud.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    catalog = GlueCatalog("live", client=cloud.client("glue"), **keys, **{"s3.region": cloud.environment["AWS_REGION"]})
    table, found = catalog.load_table(f"{cloud.outputs()['WarehouseDatabase']}.{NAME}"), []
    for snapshot in table.snapshots():
        if snapshot.summary and "slackwater.through" in snapshot.summary.additional_properties:
            rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
            found.append(
                Version(
                    int(snapshot.summary["slackwater.attempt"] or 0),
                    datetime.fromisoformat(snapshot.summary["slackwater.through"] or ""),
                    datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
                    sorted((row["batch"], row["events"], row["total"]) for row in rows if str(row["date"]) == date),
                )
            )
    return sorted(found, key=lambda version: version.committed)


def listed_by(cloud, execution: str, through: datetime) -> datetime:
    """Return until when an execution had listed the inputs of a version."""
    history = cloud.client("stepfunctions").get_execution_history(executionArn=execution, maxResults=1000)
    left = (e["timestamp"] for e in history["events"] if e.get("stateExitedEventDetails", {}).get("name") == FREEZE)
    return min(at for at in left if at >= through)


def test_each_provisional_version_has_the_events_that_were_stored_before_its_inputs_were_listed(cloud, played):
    runs = cloud.json("runs", NAME, "--date", played.date)["runs"]
    executions = {run["attempt"]: run["execution"] for run in runs}
    sent, before = played.sent, Version(0, datetime.min.replace(tzinfo=UTC), played.end, [])
    assert len(played.versions) >= 3
    for version in played.versions:
        confirmed = {batch for batch, at in sent.confirmed.items() if at < version.through}
        latest = listed_by(cloud, executions[version.attempt], version.through)
        begun = {batch for batch, at in sent.begun.items() if at <= latest}
        assert confirmed <= version.batches <= begun, version.attempt
        assert version.rows == sent.rows(version.batches)
        assert (before.through < version.through, before.batches <= version.batches) == (True, True)
        before = version
    assert before.batches == set(sent.begun)


def test_figures(cloud, played, capsys):
    waited, ages = [], []
    for at, _ in played.starts[:-1]:
        if before := [confirmed for confirmed in played.sent.confirmed.values() if confirmed <= at]:
            waited.append(next(v.committed for v in played.versions if v.through >= at) - max(before))
    for batch, at in played.sent.confirmed.items():
        ages.append(next(v.committed for v in played.versions if batch in v.batches) - at)
    runs = [run for run in cloud.json("runs", NAME, "--date", played.date)["runs"] if run["cost"]]
    usd = [run["cost"]["usd"] for run in runs if run["cost"]["usd"]]
    document = {
        "events": len({event[0] for event in played.sent.events}),
        "sent": len(played.sent.events),
        "requests sent again": played.sent.repeated,
        "versions": len(played.versions),
        "runs": Counter(run["state"] for run in cloud.json("runs", NAME, "--date", played.date)["runs"]),
        "killed": played.killed,
        "window to publication": seconds(waited),
        "event to publication": seconds(ages),
        "in a state": {name: seconds(each) for name, each in state_times(cloud, played).items() if len(each) > 1},
        "USD of a run": {"median": median(usd), "sum": sum(usd), "runs": len(usd)},
    }
    with capsys.disabled():
        print(f"\n{json.dumps(document, indent=2)}")


def state_times(cloud, played: Played) -> dict[str, list[timedelta]]:
    """Return how long the executions were in each of their states."""
    found: dict[str, list[timedelta]] = {}
    for _, execution in played.starts:
        history = cloud.client("stepfunctions").get_execution_history(executionArn=execution, maxResults=1000)
        entered: dict[str, datetime] = {}
        for event in history["events"]:
            if "stateEnteredEventDetails" in event:
                entered[event["stateEnteredEventDetails"]["name"]] = event["timestamp"]
            elif name := event.get("stateExitedEventDetails", {}).get("name"):
                found.setdefault(name, []).append(event["timestamp"] - entered[name])
    return found


def seconds(values: list[timedelta]) -> dict[str, float]:
    """Return the median, the 95th percentile and the largest of these times, in seconds."""
    numbers = sorted(value.total_seconds() for value in values)
    p95 = quantiles(numbers, n=20, method="inclusive")[-1]
    return {name: round(n, 1) for name, n in (("median", median(numbers)), ("p95", p95), ("slowest", numbers[-1]))}


def test_the_last_run_of_the_day_has_all_events(cloud, played):
    wait_for(lambda: datetime.now(UTC) > played.end - MINUTE, 3600)
    last = max(played.sent.begun) + 1
    played.sent.batch(last)  # after the last provisional version
    wait_for(lambda: datetime.now(UTC) > played.end, 120)
    machine = cloud.outputs()["PipelineMachinePrefix"] + NAME
    run = ended(cloud, start(cloud, machine, scheduled(cloud, ScheduledWork.PROCESS, played.date)))
    assert (run["outcome"], run["run"].get("through")) == ("published", None)
    rows = cloud.query(f"SELECT batch, events, total FROM {NAME} WHERE date = '{played.date}' ORDER BY batch")
    assert [tuple(row) for row in rows] == played.sent.rows(set(played.sent.begun))
    assert sum(row[1] for row in rows) == (last + 1) * BATCH
