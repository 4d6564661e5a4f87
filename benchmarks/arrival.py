"""Arrival: from the last late byte to the notification, on the local cloud.

Late events of a published day are pushed, once in each round. Nothing else is started: their objects lead to a check
of that day, a re-run, a comparison and a notification. A round is divided by the executions that it consists of:

- `collection` is from the answer to the push, when the objects are stored, to the start of the monitoring.
- `check` is from there to the start of the day's run, `run` to the start of the comparison, `compare` to its end, and
  `notify` to the end of the monitoring's work on the day, which is when the notification was sent.

The batching window of the queue is `WINDOW_SECONDS` here, where a deployment has `collect_minutes`. Each job
runs in the driver of the job before. The first round is not counted. With eight rounds, p95 is interpolated.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cloud import local_cloud
from slackwater import Client
from slackwater.aws.executions.state_machines import ExecutionView, StateMachines

WINDOW_SECONDS = 5
PIPELINE, SOURCE = "daily_readings", "readings"
_EVENTS = 1000
"""Late events of a round: as many as 10 % of those of the first run."""
_LEAST_ROUNDS = 8
_WAIT_SECONDS = 300
_PARTS = ("collection", "check", "run", "compare", "notify")
_SOURCE = """\
source: readings
timestamp: {field: at}
fields:
  id: {type: string, required: true}
  sensor: {type: int64, required: true}
  value: {type: double, required: true}
  at: timestamp
event_id: id
push: {}
"""
# Each round runs the same day again.
_PIPELINE = """\
pipeline: daily_readings
timezone: UTC
sources: [readings]
steps:
  by_sensor:
    step: sql
    depends_on: [readings]
    with: {query: "SELECT sensor, count(*) AS readings, sum(value) AS total FROM readings GROUP BY sensor"}
publish:
  step: by_sensor
  key: [date, sensor]
  metrics: {readings: sum, total: sum}
late: {window_days: 7, cool_down_hours: 0}
"""


def run(rounds: int) -> dict[str, Any]:
    """Return the seconds of each round by part, and their 50th and 95th percentiles. There are at least 8 rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _deployed(Path(folder)) as client:
        day = (datetime.now(UTC) - timedelta(days=2)).replace(hour=12, minute=0, second=0, microsecond=0)
        _collect_for(client, WINDOW_SECONDS)
        client.push(SOURCE, _events(day, first=0, count=10 * _EVENTS))
        # A message that is received later would lead to a check of the day without any late data.
        _wait_for_empty_queue(client)
        client.run(PIPELINE, day.date()).wait()
        measured = [_round(client, day, number) for number in range(max(rounds, _LEAST_ROUNDS) + 1)][1:]
    seconds = {part: [one[part] for one in measured] for part in (*_PARTS, "total")}
    return {"window": WINDOW_SECONDS, "rounds": seconds, "percentiles": {name: _of(seconds[name]) for name in seconds}}


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    rounds = len(result["rounds"]["total"])
    table = Table(title=f"From the last late byte to the notification, seconds, {rounds} rounds")
    for column in ("", "p50", "p95", "slowest"):
        table.add_column(column, justify="right" if column else "left")
    for name, percentiles in result["percentiles"].items():
        values = (percentiles["p50"], percentiles["p95"], max(result["rounds"][name]))
        table.add_row(name, *(f"{value:.1f}" for value in values))
    console.print(table)
    console.print(f"batching window: {result['window']} s")


@contextmanager
def _deployed(folder: Path) -> Iterator[Client]:
    project = folder / "project"
    for kind, name, text in (("sources", SOURCE, _SOURCE), ("pipelines", PIPELINE, _PIPELINE)):
        (project / kind).mkdir(parents=True)
        (project / kind / f"{name}.yaml").write_text(text, encoding="utf-8")
    with local_cloud(folder, project, {"collect_minutes": "1"}) as client:
        yield client


def _events(day: datetime, *, first: int, count: int) -> list[dict[str, Any]]:
    times = ((day + timedelta(seconds=number % 3600)).isoformat() for number in range(count))
    return [
        {"id": str(first + number), "sensor": number % 50, "value": float(number), "at": at}
        for number, at in enumerate(times)
    ]


def _collect_for(client: Client, seconds: int) -> None:
    """Set the batching window of the mapping from the queue of arrivals to its function."""
    lambdas = client.connection.clients("lambda")
    name = f"{client.connection.workspace.prefix}-check-arrivals"
    [mapping] = lambdas.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    lambdas.update_event_source_mapping(UUID=mapping["UUID"], MaximumBatchingWindowInSeconds=seconds)


def _wait_for_empty_queue(client: Client) -> None:
    """Wait until all messages of the queue of arrivals are handled."""
    queues = client.connection.clients("sqs")
    url = queues.get_queue_url(QueueName=f"{client.connection.workspace.prefix}-arrivals")["QueueUrl"]
    deadline = time.monotonic() + _WAIT_SECONDS
    names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
    while True:
        numbers = queues.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        if not any(int(number) for number in numbers.values()):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the queue of arrivals is not empty after {_WAIT_SECONDS} s: {numbers}")
        time.sleep(0.2)


def _round(client: Client, day: datetime, number: int) -> dict[str, float]:
    """Push late events, and wait for the end of the monitoring that they lead to. Return the seconds of each part."""
    known = set(_monitorings(client))
    client.push(SOURCE, _events(day, first=(10 + number) * _EVENTS, count=_EVENTS))
    pushed = datetime.now(UTC)
    deadline = time.monotonic() + _WAIT_SECONDS
    while not (new := [arn for arn in _monitorings(client) if arn not in known]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no monitoring has started within {_WAIT_SECONDS} s")
        time.sleep(0.1)
    [execution] = new
    *_, view = StateMachines(client.connection.clients("stepfunctions")).follow([execution])
    return _parts(client, view, pushed)


def _monitorings(client: Client) -> list[str]:
    states = client.connection.clients("stepfunctions")
    machine = client.connection.deployment.monitor_machine_arn
    return [item["executionArn"] for item in states.list_executions(stateMachineArn=machine)["executions"]]


def _parts(client: Client, monitoring: ExecutionView, pushed: datetime) -> dict[str, float]:
    """Return the seconds of each part of a round. Raises `RuntimeError` if the monitoring has sent no notification."""
    days = monitoring.output.get("days", [])
    if [day.get("notified") for day in days] != [True]:
        raise RuntimeError(f"{monitoring.arn} has sent no notification: {monitoring.status} {monitoring.cause} {days}")
    deployment = client.connection.deployment
    # The local cloud's history of a monitoring lacks the states that work on a day.
    run = _latest(client, f"{deployment.pipeline_machine_prefix}{PIPELINE}")
    comparison = _latest(client, deployment.compare_machine_arn)
    [handled] = [state.exited for state in monitoring.states if state.name == "Handle the late days"]
    ends = (monitoring.started, run["startDate"], comparison["startDate"], comparison["stopDate"], handled)
    seconds = {
        part: (end - begin).total_seconds() for part, begin, end in zip(_PARTS, (pushed, *ends[:-1]), ends, strict=True)
    }
    return {**seconds, "total": sum(seconds.values())}


def _latest(client: Client, machine: str) -> dict[str, Any]:
    """Return the execution of a state machine that was started last."""
    executions = client.connection.clients("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    return max(executions, key=lambda execution: execution["startDate"])


def _of(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94]}
