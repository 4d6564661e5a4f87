"""State: fold the messages of 20 seconds about 10,000 sources with 3 objects and a report in each 5 minutes.

The function's code runs over stores in memory. Each request waits as long as one to S3 or DynamoDB usually takes; its
units and its price in us-east-1 are counted. Each twelfth of the sources is in another five minutes of its hour, and
has three objects and a report of each before.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from rich.console import Console

from slackwater.aws.dynamodb.period_table import DynamoPeriodTable
from slackwater.errors import ObjectMissing
from slackwater.project.project import Project
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.receiver.writing.windows import windows_metadata
from slackwater.runs.period import partition_of
from slackwater.runs.periods.changes import PeriodChanged
from slackwater.runs.periods.fold_periods import PeriodFolder
from slackwater.runs.periods.read_parts import PartReader
from slackwater.runs.periods.state_messages import fold_messages
from slackwater.sources.counts import ALL
from slackwater.sources.definition import Source
from slackwater.sources.partitions import object_uri
from slackwater.state.facts import BINS, Part
from slackwater.state.messages import ObjectWritten, hours_changed
from slackwater.state.reports import new_report
from slackwater.storage import ObjectHead, split_uri

SOURCES = 10_000
_HOUR = datetime(2026, 1, 1, 12, tzinfo=UTC)
_NOW = _HOUR + timedelta(hours=1)
_LATENCY = 0.015
_BINS = {ALL: (1_000,) + (0,) * 11}
# USD for a unit or a request: units of DynamoDB, requests of S3, a custom event, and a message of SQS as it is sent,
# received and deleted.
_PRICES = {
    "write units": 0.625e-6,
    "read units": 0.125e-6,
    "HEAD": 0.4e-6,
    "GET": 0.4e-6,
    "PUT": 5e-6,
    "events": 1e-6,
    "messages": 0.48e-6,
}
_MESSAGES_A_MONTH = (36 + 12) * 24 * 30


class _Requests:
    def __init__(self) -> None:
        self.count: dict[str, float] = defaultdict(float)
        self.waits = False
        self._lock = threading.Lock()

    def send(self, name: str, units: float = 1) -> None:
        with self._lock:
            self.count[name] += units
        if self.waits:
            time.sleep(_LATENCY)


class _Dynamo:
    """The requests that the table makes, over dictionaries."""

    def __init__(self, requests: _Requests) -> None:
        self._requests, self._items = requests, dict[str, dict[str, dict[str, Any]]]()

    def batch_write_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        items = [put["PutRequest"]["Item"] for puts in RequestItems.values() for put in puts]
        self._requests.send("write units", sum(map(_write_units, items)))
        for item in items:
            self._items.setdefault(item["pk"]["S"], {})[item["sk"]["S"]] = item
        return {}

    def put_item(self, *, Item: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        return self.batch_write_item(RequestItems={"": [{"PutRequest": {"Item": Item}}]})

    def update_item(self, **request: Any) -> None:
        self._requests.send("write units")
        key, names = request["Key"], request.get("ExpressionAttributeNames", {})
        found = self._items.setdefault(key["pk"]["S"], {}).setdefault(key["sk"]["S"], {**key})
        for change in re.split(r", (?!:)", request["UpdateExpression"].removeprefix("SET ")):
            name, _, value = change.partition(" = ")
            found[names.get(name, name)] = request["ExpressionAttributeValues"][value[value.index(":") :].rstrip(")")]

    def get_item(self, *, Key: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: N803
        self._requests.send("read units")
        found = self._items.get(Key["pk"]["S"], {}).get(Key["sk"]["S"])
        return {"Item": found} if found else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        [(name, request)] = RequestItems.items()
        self._requests.send("read units", _read_units(len(request["Keys"]), request))
        found = [self._items.get(key["pk"]["S"], {}).get(key["sk"]["S"]) for key in request["Keys"]]
        return {"Responses": {name: [item for item in found if item]}}

    def query(self, *, ExpressionAttributeValues: Any, **options: Any) -> dict[str, Any]:  # noqa: N803
        values = {name: value["S"] for name, value in ExpressionAttributeValues.items()}
        first = values.get(":first", values.get(":prefix", ""))
        last = values.get(":last", f"{values.get(':prefix', '')}~")
        of_key = self._items.get(values[":pk"], {})
        found = [of_key[sk] for sk in sorted(of_key) if first <= sk <= last]
        if not options.get("ScanIndexForward", True):
            found.reverse()
        found = found[: options.get("Limit")]
        self._requests.send("read units", _read_units(max(1, math.ceil(sum(map(_bytes, found)) / 4096)), options))
        return {"Items": found}

    def get_paginator(self, _: str) -> _Dynamo:
        return self

    def paginate(self, **options: Any) -> list[dict[str, Any]]:
        return [self.query(**options)]


class _Store:
    """The raw objects, and the lists."""

    def __init__(self, requests: _Requests) -> None:
        self._requests = requests

    def head(self, _: str) -> ObjectHead:
        self._requests.send("HEAD")
        return ObjectHead("e", windows_metadata(_BINS), 50_000, _NOW)

    def get(self, uri: str) -> bytes:
        self._requests.send("GET")
        raise ObjectMissing(uri)  # no hour is packed

    def put(self, _: str, __: bytes) -> None:
        self._requests.send("PUT")


class _NoFiles:
    def contents(self, _: str, __: Iterable[str]) -> list[Any]:
        return []


def run(rounds: int) -> dict[str, Any]:
    """Return messages a second of one process, the units of each message, and the price of a source and month."""
    sources = {f"s{number:05d}": _source(f"s{number:05d}") for number in range(SOURCES)}
    project, results = Project(sources=sources, pipelines={}), []
    for number in range(rounds):
        requests = _Requests()
        table = DynamoPeriodTable(_Dynamo(requests), "state")
        # A fifteenth of the sources has an object in these 20 s, three times in 5 minutes; a third as many report.
        active = list(sources.values())[number % 15 :: 15][: SOURCES // 45 * 3]
        for index, source in enumerate(active):
            _prepare(table, source, _step(index))
        folder = _folder(project, table, requests)
        fold_messages(_messages(active), folder)  # the process is warm, and the hours are stored
        requests.count.clear()
        for index, source in enumerate(active):
            if index % 4 == 0:
                _report(table, source, _step(index) + 1)
        messages = _messages(active, second=True)
        requests.waits, started = True, time.perf_counter()
        result = fold_messages(messages, folder)
        seconds = time.perf_counter() - started
        if result.failed:
            raise RuntimeError(str(result.failed))
        requests.count["messages"] = len(messages)
        results.append((len(messages) / seconds, dict(requests.count)))
    rate, count = median(rate for rate, _ in results), results[-1][1]
    per_message = {name: value / count["messages"] for name, value in count.items()}
    price = sum(_PRICES[name] * value for name, value in per_message.items()) * _MESSAGES_A_MONTH
    return {
        "sources": SOURCES,
        "messages_per_second": rate,
        "needed_per_second": SOURCES * 4 / 300,
        "per_message": per_message,
        "usd_per_source_and_month": price,
    }


def show(result: dict[str, Any], console: Console) -> None:
    """Print a result."""
    needed = result["needed_per_second"]
    console.print(
        f"state: {result['messages_per_second']:,.0f} messages a second in a process, of {needed:,.0f} that come"
    )
    units = ", ".join(f"{value:.2f} {name}" for name, value in result["per_message"].items() if name != "messages")
    console.print(f"a message: {units}; a source and month: {result['usd_per_source_and_month']:.3f} USD")


def _source(name: str) -> Source:
    fields = {"at": "timestamp", "value": "int64"}
    return Source.model_validate(
        {"source": name, "timestamp": {"field": "at"}, "fields": fields, "push": {}, "counts": {"window": "5m"}}
    )


def _folder(project: Project, table: DynamoPeriodTable, requests: _Requests) -> PeriodFolder:
    def put_changes(changes: Sequence[PeriodChanged]) -> None:
        requests.send("events", len(changes))

    files: FileCache = _NoFiles()
    parts = PartReader(_Store(requests), "raw")
    return PeriodFolder(
        project=project,
        table=table,
        files=files,
        parts=parts,
        exchange_bucket="x",
        put_changes=put_changes,
        on_changed=lambda *_: None,
        on_full=lambda *_: None,
    )


def _step(index: int) -> int:
    """Return how many times five minutes of the hour are over for a source, and for the three beside it."""
    return index // 4 % BINS


def _prepare(table: DynamoPeriodTable, source: Source, step: int) -> None:
    """Store the facts of the hour until now, and the reports of the hour before."""
    names = [f"{number:032x}-1000" for number in range(3 * step)]
    table.put_parts(source.source, {_HOUR: [Part(name, _BINS, 50_000, _NOW) for name in names]})
    for number in range(1 - BINS, step + 1):
        _report(table, source, number)


def _report(table: DynamoPeriodTable, source: Source, number: int) -> None:
    at = _HOUR + timedelta(minutes=5 * number)
    counts = {at - timedelta(minutes=5): 3_000}
    table.put_report(new_report(source, as_of=at, through=at, counts=counts, principal="push:acme"))


def _messages(sources: Sequence[Source], *, second: bool = False) -> dict[str, str]:
    """Three of four messages are about an object, and one is about a report."""
    messages = {}
    for number, source in enumerate(sources):
        name = f"{100 + second:032x}-1000"
        key = split_uri(object_uri("raw", source.source, partition_of(_HOUR), name))[1]
        message = ObjectWritten(id="e", key=key, time=_NOW) if number % 4 else hours_changed(source.source, [_HOUR])
        messages[source.source] = message.model_dump_json()
    return messages


def _bytes(item: Mapping[str, Any]) -> int:
    """Return the size of an item as DynamoDB counts it: https://docs.aws.amazon.com/amazondynamodb/ says how."""
    return sum(len(name) + _value_bytes(*next(iter(value.items()))) for name, value in item.items())


def _value_bytes(kind: str, value: Any) -> int:
    if kind == "N":
        return math.ceil(len(value) / 2) + 1
    if kind == "L":
        return 3 + sum(1 + _value_bytes(*next(iter(each.items()))) for each in value)
    return 3 + len(value) + _bytes(value) if kind == "M" else len(value)


def _write_units(item: Mapping[str, Any]) -> int:
    return math.ceil(_bytes(item) / 1024)


def _read_units(units: int, request: Mapping[str, Any]) -> float:
    return units if request.get("ConsistentRead") else units / 2
