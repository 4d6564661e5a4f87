"""Push from many clients at once, which lose connections and retry; then compare what was sent and what is stored.

    python -m benchmarks.load --clients 50 --seconds 60

It starts a local cloud of its own. Each client sends batches of new events, some of them invalid, of several hours of
one day. Some connections are closed while the body is sent, some right after it; a client sends the same body again
until it has an answer. Every event must then be stored or rejected exactly once.
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
"""Share of invalid events."""
_CUT = 0.1
"""Share of requests whose connection the client closes early."""
_TIMEOUT = 60.0


@dataclass
class Sent:
    """What one client sent, and the answers."""

    valid: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    batches: int = 0
    requests: int = 0
    cut: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    """Answers that asked for a retry, by status."""
    mismatches: list[str] = field(default_factory=list)
    """Answers whose counts are not those of the batch."""
    seconds: list[float] = field(default_factory=list)
    """Duration of each answered request."""


class Client:
    """A client of the API."""

    def __init__(self, name: int, *, api: str, token: str, until: float) -> None:
        self._name, self._until = name, until
        self._random = random.Random(name)  # noqa: S311 - it decides what is sent, not who may
        self._url = f"{api.rstrip('/')}/v1/sources/{SOURCE}/events"
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}
        self._run = f"{time.time_ns():x}"
        self.sent = Sent()

    def work(self) -> Sent:
        """Send batches until the time is over, and the last one until it is answered."""
        with httpx.Client(timeout=_TIMEOUT) as http:
            while time.monotonic() < self._until:
                self._send(http, self._batch())
        return self.sent

    def _batch(self) -> tuple[bytes, int, int]:
        lines, valid, invalid = [], 0, 0
        for _ in range(self._random.randint(1, 200)):
            number = len(self.sent.valid) + len(self.sent.invalid)
            name = f"{self._run}-{self._name}-{number}"
            event: dict[str, Any] = {"id": name, "value": self._random.random(), "at": self._timestamp()}
            if self._random.random() < _WRONG:
                event["value"] = "much"
                self.sent.invalid.append(name)
                invalid += 1
            else:
                self.sent.valid.append(name)
                valid += 1
            lines.append(json.dumps(event))
        return "\n".join(lines).encode(), valid, invalid

    def _timestamp(self) -> str:
        hour, second = self._random.randrange(_HOURS), self._random.randrange(3600)
        return f"2014-07-01T{hour:02d}:{second // 60:02d}:{second % 60:02d}Z"

    def _send(self, http: httpx.Client, batch: tuple[bytes, int, int]) -> None:
        body, valid, invalid = batch
        self.sent.batches += 1
        while True:
            self.sent.requests += 1
            if self.sent.requests == 1 or self._random.random() < _CUT:
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
                self._compare(answer.json(), valid, invalid)
                return
            self.sent.refused[answer.status_code] += 1
            time.sleep(self._random.random())

    def _compare(self, answer: dict[str, Any], valid: int, invalid: int) -> None:
        if (answer["accepted"] + answer["duplicates"], len(answer["rejected"])) != (valid, invalid):
            self.sent.mismatches.append(json.dumps(answer)[:200])

    def _cut(self, body: bytes) -> None:
        """Send a part of the request, or all of it, and close the connection without waiting for the answer."""
        self.sent.cut += 1
        url = urlsplit(self._url)
        head = {**self._headers, "host": url.netloc, "content-length": str(len(body))}
        lines = [f"POST {url.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        request = "\r\n".join(lines).encode() + body
        length = len(request) if self._random.random() < 1 / 2 else self._random.randrange(1, len(request))
        with socket.create_connection((url.hostname, url.port or 80), timeout=_TIMEOUT) as connection:
            connection.sendall(request[:length])


@dataclass(frozen=True, kw_only=True)
class Load:
    """What all clients sent."""

    clients: list[Sent]
    seconds: float

    @property
    def valid(self) -> Counter[str]:
        """The ids of all valid events."""
        return Counter(name for sent in self.clients for name in sent.valid)

    @property
    def invalid(self) -> Counter[str]:
        """The ids of all invalid events."""
        return Counter(name for sent in self.clients for name in sent.invalid)

    @property
    def mismatches(self) -> list[str]:
        """Answers whose counts are not those of the batch."""
        return [answer for sent in self.clients for answer in sent.mismatches]

    def figures(self) -> dict[str, Any]:
        """Return the totals."""
        waits = sorted(wait for sent in self.clients for wait in sent.seconds)
        events = self.valid.total() + self.invalid.total()
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
    """Let `clients` push for `seconds`, each in a thread."""
    started = time.monotonic()
    workers = [Client(name, api=api, token=token, until=started + seconds) for name in range(clients)]
    with ThreadPoolExecutor(clients) as pool:
        sent = list(pool.map(lambda client: client.work(), workers))
    return Load(clients=sent, seconds=time.monotonic() - started)


def count_stored(s3: Any, bucket: str) -> tuple[Counter[str], Counter[str]]:
    """Return the ids of all stored and of all rejected events; check that each object holds events of its hour only."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="")
    keys = [item["Key"] for page in pages for item in page.get("Contents", []) if f"source={SOURCE}/" in item["Key"]]
    with ThreadPoolExecutor(8) as pool:
        bodies = dict(
            zip(keys, pool.map(lambda key: s3.get_object(Bucket=bucket, Key=key)["Body"].read(), keys), strict=True)
        )
    stored = (_ids(key, body) for key, body in bodies.items() if key.startswith("raw/"))
    lines = [line for key, body in bodies.items() if key.startswith("sideline/") for line in body.splitlines()]
    rejected = Counter(json.loads(json.loads(line)["text"])["id"] for line in lines)
    return sum(stored, Counter()), rejected


def _ids(key: str, body: bytes) -> Counter[str]:
    table = pq.read_table(io.BytesIO(body), columns=["id", "at"])
    hours = {f"date={at:%Y-%m-%d}/hour={at:%H}" for at in table["at"].to_pylist()}
    if any(hour not in key for hour in hours):
        raise AssertionError(f"{key} holds events of {sorted(hours)}")
    return Counter(table["id"].to_pylist())


def read_until_stable(read: Callable[[], Any], *, pause: float = 1.0) -> Any:
    """Read until two results agree: a request may still be in progress after its client has closed the connection."""
    before = read()
    while True:
        time.sleep(pause)
        now = read()
        if now == before:
            return now
        before = now


@contextmanager
def deployed() -> Iterator[dict[str, str]]:
    """Start a local cloud with the project of this benchmark; yield the stacks' outputs and a `Token`."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        up = cloud.up(Path(folder))
        os.environ.update(up.environment())
        try:
            _slackwater("deploy", "--set", "schedule=none")
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
    """Push, count the events, and return 0 when each of them is stored or rejected exactly once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with deployed() as outputs:
        load = push_load(
            api=outputs["ApiUrl"], token=outputs["Token"], clients=options.clients, seconds=options.seconds
        )
        s3 = boto3.client("s3", config=Config(max_pool_connections=16))
        stored, rejected = read_until_stable(lambda: count_stored(s3, outputs["RawBucket"]))
    exact = stored == load.valid and rejected == load.invalid and not load.mismatches
    print(json.dumps({**load.figures(), "stored": stored.total(), "rejected": rejected.total(), "exact": exact}))
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
