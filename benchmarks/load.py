"""Many clients push at once, lose connections and try again; then sent = stored + side-lined, event for event.

    python -m benchmarks.load --clients 50 --seconds 60

It starts a local cloud of its own. Each client sends batches of new events, some of them wrong, over hours of one day.
Some requests are cut off while the body is under way, some right after it; a client tries a batch again, the same
bytes, until it has an answer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import httpx
import pyarrow.parquet as pq
from botocore.config import Config

from slackwater.local import cloud

SOURCE = "readings"
PROJECT = Path(__file__).parent / "load_project"
_HOURS = 6
_WRONG = 0.05
"""Share of events that cannot be used."""
_CUT = 0.1
"""Share of requests whose connection the client cuts."""
_TIMEOUT = 60.0


@dataclass
class Sent:
    """What one client sent and was told."""

    good: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    batches: int = 0
    requests: int = 0
    cut: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """Answers that asked for another attempt, by status."""
    disagreed: list[str] = field(default_factory=list)
    """Answers whose counts were not those of the batch."""
    seconds: list[float] = field(default_factory=list)
    """How long each answered request took."""


class Client:
    """One partner's process."""

    def __init__(self, name: int, *, api: str, token: str, until: float) -> None:
        self._name, self._until = name, until
        self._random = random.Random(name)  # noqa: S311 - it decides what is sent, not who may
        self._url = f"{api.rstrip('/')}/v1/sources/{SOURCE}/events"
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
        self._run = f"{time.time_ns():x}"
        self.sent = Sent()

    def work(self) -> Sent:
        """Send batches until the time is over; the last one until it is answered."""
        with httpx.Client(timeout=_TIMEOUT) as http:
            while time.monotonic() < self._until:
                self._send(http, self._batch())
        return self.sent

    def _batch(self) -> tuple[bytes, int, int]:
        lines, good, wrong = [], 0, 0
        for _ in range(self._random.randint(1, 200)):
            number = len(self.sent.good) + len(self.sent.wrong)
            name = f"{self._run}-{self._name}-{number}"
            event: dict[str, Any] = {"id": name, "value": self._random.random(), "at": self._moment()}
            if self._random.random() < _WRONG:
                event["value"] = "much"
                self.sent.wrong.append(name)
                wrong += 1
            else:
                self.sent.good.append(name)
                good += 1
            lines.append(json.dumps(event))
        return "\n".join(lines).encode(), good, wrong

    def _moment(self) -> str:
        hour, second = self._random.randrange(_HOURS), self._random.randrange(3600)
        return f"2014-07-01T{hour:02d}:{second // 60:02d}:{second % 60:02d}Z"

    def _send(self, http: httpx.Client, batch: tuple[bytes, int, int]) -> None:
        body, good, wrong = batch
        self.sent.batches += 1
        while True:
            self.sent.requests += 1
            if self._random.random() < _CUT:
                self._cut(body)
                continue
            started = time.monotonic()
            try:
                answer = http.post(self._url, content=body, headers=self._headers)
            except httpx.TransportError as error:
                self.sent.refused[type(error).__name__] += 1
                continue
            self.sent.seconds.append(time.monotonic() - started)
            if answer.status_code in {202, 422}:
                self._compare(answer.json(), good, wrong)
                return
            self.sent.refused[answer.status_code] += 1
            time.sleep(self._random.random())

    def _compare(self, told: dict[str, Any], good: int, wrong: int) -> None:
        if (told["accepted"] + told["duplicates"], len(told["rejected"])) != (good, wrong):
            self.sent.disagreed.append(json.dumps(told)[:200])

    def _cut(self, body: bytes) -> None:
        """Send a part of the request, or all of it, and hang up without waiting for the answer."""
        self.sent.cut += 1
        address = urlsplit(self._url)
        head = {**self._headers, "host": address.netloc, "content-length": str(len(body))}
        lines = [f"POST {address.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        request = "\r\n".join(lines).encode() + body
        length = len(request) if self._random.random() < 1 / 2 else self._random.randrange(1, len(request))
        with socket.create_connection((address.hostname, address.port or 80), timeout=_TIMEOUT) as connection:
            connection.sendall(request[:length])


@dataclass(frozen=True, kw_only=True)
class Load:
    """What all clients sent."""

    clients: list[Sent]
    seconds: float

    @property
    def good(self) -> Counter[str]:
        """Every usable event's id."""
        return Counter(name for sent in self.clients for name in sent.good)

    @property
    def wrong(self) -> Counter[str]:
        """Every other event's id."""
        return Counter(name for sent in self.clients for name in sent.wrong)

    @property
    def disagreed(self) -> list[str]:
        """Answers whose counts were not those of the batch."""
        return [text for sent in self.clients for text in sent.disagreed]

    def figures(self) -> dict[str, Any]:
        """Return the totals."""
        waits = sorted(wait for sent in self.clients for wait in sent.seconds)
        events = self.good.total() + self.wrong.total()
        return {
            "clients": len(self.clients),
            "seconds": round(self.seconds, 1),
            "batches": sum(sent.batches for sent in self.clients),
            "requests": sum(sent.requests for sent in self.clients),
            "cut": sum(sent.cut for sent in self.clients),
            "refused": dict(sum((sent.refused for sent in self.clients), Counter())),
            "events": events,
            "events_per_second": round(events / self.seconds),
            "median_ms": round(1000 * waits[len(waits) // 2]) if waits else None,
            "p99_ms": round(1000 * waits[len(waits) * 99 // 100]) if waits else None,
        }


def push_load(*, api: str, token: str, clients: int, seconds: float) -> Load:
    """Let so many clients push for so long, each in a thread."""
    started = time.monotonic()
    makers = [Client(name, api=api, token=token, until=started + seconds) for name in range(clients)]
    with ThreadPoolExecutor(clients) as pool:
        sent = list(pool.map(lambda client: client.work(), makers))
    return Load(clients=sent, seconds=time.monotonic() - started)


def count_stored(s3: Any, bucket: str) -> tuple[Counter[str], Counter[str]]:
    """Read back the ids of all stored and of all side-lined events, each object of a partition with its own hour."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="")
    keys = [item["Key"] for page in pages for item in page.get("Contents", []) if f"source={SOURCE}/" in item["Key"]]
    with ThreadPoolExecutor(8) as pool:
        bodies = dict(
            zip(keys, pool.map(lambda key: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), keys), strict=True)
        )
    stored = (_ids(key, body) for key, body in bodies.items() if key.startswith("raw/"))
    lines = [line for key, body in bodies.items() if key.startswith("sideline/") for line in body.splitlines()]
    sidelined = Counter(json.loads(json.loads(line)["text"])["id"] for line in lines)
    return sum(stored, Counter()), sidelined


def _ids(key: str, body: bytes) -> Counter[str]:
    table = pq.read_table(io.BytesIO(body), columns=["id", "at"])
    hours = {f"date={at:%Y-%m-%d}/hour={at:%H}" for at in table["at"].to_pylist()}
    if any(hour not in key for hour in hours):
        raise AssertionError(f"{key} holds events of {sorted(hours)}")
    return Counter(table["id"].to_pylist())


def settled(read: Callable[[], Any], *, pause: float = 1.0) -> Any:
    """Read until two readings agree: a request that was cut off may still be under way when its client has gone."""
    before = read()
    while True:
        time.sleep(pause)
        now = read()
        if now == before:
            return now
        before = now


@contextmanager
def deployed() -> Iterator[dict[str, str]]:
    """A local cloud of its own with the project of this benchmark; gives the stacks' outputs, and a `Token`."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        up = cloud.up(Path(folder))
        os.environ.update(up.environment())
        try:
            _slackwater("deploy")
            token = json.loads(_slackwater("token", "create", "load", "--source", SOURCE, "--json"))["token"]
            stacks = boto3.client("cloudformation").describe_stacks()["Stacks"]
            yield {o["OutputKey"]: o["OutputValue"] for stack in stacks for o in stack.get("Outputs", [])} | {
                "Token": token
            }
        finally:
            cloud.down(Path(folder))


def _slackwater(*words: str) -> str:
    command = [sys.executable, "-m", "slackwater.cli", *words, "--project", str(PROJECT)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    """Push, count, and say whether every event is where it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with deployed() as outputs:
        load = push_load(
            api=outputs["ApiUrl"], token=outputs["Token"], clients=options.clients, seconds=options.seconds
        )
        s3 = boto3.client("s3", config=Config(max_pool_connections=16))
        stored, sidelined = settled(lambda: count_stored(s3, outputs["RawBucket"]))
    exact = stored == load.good and sidelined == load.wrong and not load.disagreed
    print(json.dumps({**load.figures(), "stored": stored.total(), "sidelined": sidelined.total(), "exact": exact}))
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
