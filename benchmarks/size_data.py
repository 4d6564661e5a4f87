"""Generated days of `size_project`, the server that they are pulled from, and DuckDB's computation of a day.

The cost of a click is a multiple of 1/64, so that sums are exact and equal in any order of the rows.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import csv

DAY, HOURS = "2026-03-02", 24
COLUMNS = {
    "at": "TIMESTAMPTZ",
    "campaign": "VARCHAR",
    "country": "VARCHAR",
    "visitor": "BIGINT",
    "clicks": "BIGINT",
    "cost": "DOUBLE",
}
"""The columns of the files, with DuckDB's types."""
_CAMPAIGNS = pa.array([f"c{number:04d}" for number in range(1000)])
_CODES = "ATBEBGCHCYCZDEDKEEESFIFRGBGRHRHUIEISITLTLULVMTNLNOPLPTROSESI"
_COUNTRIES = pa.array([_CODES[first : first + 2] for first in range(0, len(_CODES), 2)])
_BATCH = 1_000_000
# Shares of the rows: clicks that break the rule of severity `reject`, and values that are missing.
_BROKEN, _NO_CLICKS, _NO_COST = 0.002, 0.005, 0.01
_DUCKDB = """
SET TimeZone = 'UTC';
CREATE TABLE counts AS SELECT
  count(*) FILTER (WHERE clicks NOT BETWEEN 0 AND 1000), count(*) FILTER (WHERE cost IS NULL),
  count(*) FILTER (WHERE cost < 0)
FROM {events};
COPY (
  SELECT campaign, country, count(*) AS events, sum(clicks)::BIGINT AS clicks, sum(cost) AS cost, max(cost) AS dearest
  FROM {events}
  WHERE coalesce(clicks BETWEEN 0 AND 1000, true)
  GROUP BY campaign, country
) TO '{result}' (FORMAT parquet);
"""
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="none")


def write_day(folder: Path, events: int, *, day: str = DAY, seed: int = 1) -> int:
    """Write the files of a day, one for each hour and of equal size. Return their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    limits = [events * hour // HOURS for hour in range(HOURS + 1)]
    for hour in range(HOURS):
        rows = limits[hour + 1] - limits[hour]
        times = _times(day, range(hour, hour + 1))
        _write(folder / f"clicks-{day}-{hour:02d}.csv", rows, times, seed=(seed, hour))
    return sum(path.stat().st_size for path in folder.glob(f"clicks-{day}-*.csv"))


def write_late(folder: Path, events: int, *, seed: int = 1) -> int:
    """Write one more file of `DAY`, with events of all hours. Return its bytes."""
    path = folder / f"clicks-{DAY}-late.csv"
    _write(path, events, _times(DAY, range(HOURS)), seed=(seed, HOURS))
    return path.stat().st_size


def _times(day: str, hours: range) -> pa.Array:
    """Return each second of some hours as the files have it."""
    return pa.array(
        f"{day}T{hour:02d}:{second // 60:02d}:{second % 60:02d}Z" for hour in hours for second in range(3600)
    )


def _write(path: Path, rows: int, times: pa.Array, *, seed: tuple[int, ...]) -> None:
    random = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write((",".join(COLUMNS) + "\n").encode())
        for first in range(0, rows, _BATCH):
            csv.write_csv(_batch(random, min(_BATCH, rows - first), times), file, _OPTIONS)


def _batch(random: np.random.Generator, rows: int, times: pa.Array) -> pa.Table:
    clicks = random.geometric(0.5, rows) - 1
    clicks[random.random(rows) < _BROKEN] = -1
    columns = [
        times.take(pa.array(random.integers(len(times), size=rows))),
        _CAMPAIGNS.take(pa.array(random.integers(len(_CAMPAIGNS), size=rows))),
        _COUNTRIES.take(pa.array(random.integers(len(_COUNTRIES), size=rows))),
        pa.array(random.integers(10**9, size=rows)),
        pa.array(clicks, mask=random.random(rows) < _NO_CLICKS),
        pa.array(random.integers(1, 640, size=rows) / 64, mask=random.random(rows) < _NO_COST),
    ]
    return pa.table(columns, names=list(COLUMNS))


def csv_files(folder: Path) -> str:
    """Return the table function with which DuckDB reads the files of `DAY`."""
    return f"read_csv('{folder}/clicks-{DAY}-*.csv', header = true, columns = {COLUMNS})"


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """Serve a folder's files at `/clicks` of a free port of loopback, which is returned.

    The system copies the files to the connections: this process reads none of their bytes.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.path.removeprefix("/clicks").removeprefix("/")
            if not name:
                listing = json.dumps([_entry(path) for path in sorted(folder.glob("*.csv"))]).encode()
                self._send_headers(len(listing), "application/json")
                self.wfile.write(listing)
            elif (path := folder / Path(name).name).is_file():
                self._send_headers(path.stat().st_size, "text/csv")
                with path.open("rb") as file:
                    self.connection.sendfile(file)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send_headers(self, size: int, content_type: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    return Handler


def _entry(path: Path) -> dict[str, str | int]:
    status = path.stat()
    modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat()
    return {"name": path.name, "size": status.st_size, "modified": modified}


def main() -> None:
    """Check and group the events of the table function `EVENTS` into the file `RESULT`, and print what that used."""
    events, result = sys.argv[1:]
    began, before = time.monotonic(), time.process_time()
    duckdb.execute(_DUCKDB.format(events=events, result=result))
    usage = {"seconds": time.monotonic() - began, "cpu": time.process_time() - before}
    # `getrusage` would report the memory of the process that has started this one, if that is larger.
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    print(json.dumps({**usage, "peaks": {"DuckDB": int(peak) * 1024}}))


if __name__ == "__main__":
    main()
