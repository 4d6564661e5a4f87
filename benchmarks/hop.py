"""Hop: how large rows are that pass from one step to the next, and how long it takes until the next step has them.

- `size` is the Arrow files of a stage, uncompressed as they are written and with each codec, divided by CSV and by JSON
  (one object in each line) of the same rows: flights of the example (19 columns) and generated clicks (6 columns).
- A hop of 500 and of 500,000 clicks, without Spark: read the reference, the manifest and the file, verify it, and
  decode the first batch of 10,000 rows; then all of them. Beside it, a request over HTTP, on a connection that is kept,
  whose response has the same batches as an Arrow IPC stream. Both servers are processes of their own on loopback: the
  S3 of the local cloud, and Python's `http.server`. `files` is the hop with a folder instead of S3.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv
from rich.console import Console
from rich.table import Table

from benchmarks.data import source
from benchmarks.exchange import PRODUCER, ROOT, local_cloud
from slackwater.arrow.dataset import find_reference, load_manifest, store_dataset
from slackwater.arrow.files import read_batches, write_files
from slackwater.arrow.messages import decode_schema, encode_schema
from slackwater.arrow.reference import ArrowManifest, Codec
from slackwater.aws.objects import s3_store
from slackwater.sources.event_schema import ARROW_TYPES
from slackwater.storage import ObjectStore
from tests.fakes_spark import FolderStore
from tests.independent import database

HOPS = (500, 500_000)
"""Rows of a hop."""
_HOPS_OF_ROUND = 5
_BATCH = 10_000
_CLICKS = 500_000
_BUCKET = "exchange-benchmark"
_DAY = "month = 3 AND day = 8"
_CODECS: dict[str, Codec | None] = {"Arrow": None, "lz4": "lz4", "zstd": "zstd"}
_OTHERS = ("csv", "json")
_CLAIM = (0.3, 0.6)
# Shares of the clicks with a missing value.
_NO_CLICKS, _NO_COST = 0.005, 0.01


def clicks(rows: int) -> pa.Table:
    """Return generated clicks of a day: a timestamp, three codes, a number and a fraction with some nulls."""
    random = np.random.default_rng(1)
    seconds = random.integers(86_400, size=rows) + int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    return pa.table(
        {
            "at": pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC")),
            "campaign": pa.array([f"c{number:04d}" for number in random.integers(1000, size=rows)]),
            "country": pa.array([("DE", "FR", "GB", "IT", "PL")[number] for number in random.integers(5, size=rows)]),
            "visitor": pa.array(random.integers(10**9, size=rows)),
            "clicks": pa.array(random.geometric(0.5, rows) - 1, mask=random.random(rows) < _NO_CLICKS),
            "cost": pa.array(random.integers(1, 640, size=rows) / 64, mask=random.random(rows) < _NO_COST),
        }
    )


def flights(folder: Path, where: str = "true") -> pa.Table:
    """Return flights of the example, with the types of its source."""
    types = {name: ARROW_TYPES[data_type] for name, data_type in source().columns.items()}
    table = database(folder).sql(f"SELECT {', '.join(types)} FROM flights WHERE {where}").to_arrow_table()  # noqa: S608
    return table.cast(pa.schema(list(types.items())))


def run(rounds: int) -> dict[str, Any]:
    """Return the bytes of each format, their ratios, and the median, fastest and slowest seconds of each hop."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, local_cloud(Path(name)):
        folder = Path(name)
        tables = {
            "flights, one day": flights(folder, _DAY),
            "flights, one year": flights(folder),
            "clicks": clicks(_CLICKS),
        }
        sizes = {name: _sizes(table, folder) for name, table in tables.items()}
        seconds: dict[str, list[float]] = {}
        stores: dict[str, ObjectStore] = {"S3": s3_store(), "files": FolderStore(folder / "objects")}
        served = folder / "served"
        served.mkdir()
        for rows in HOPS:
            table = tables["clicks"].slice(0, rows)
            (served / str(rows)).write_bytes(_stream(table))
            for store in stores.values():
                _store(table, rows, store)
        with _server(served) as port:
            connection = HTTPConnection("127.0.0.1", port)
            hops: dict[str, Callable[[int], Iterator[pa.RecordBatch]]] = {
                **{name: lambda rows, store=store: _read(rows, store) for name, store in stores.items()},
                "HTTP": lambda rows: _request(rows, connection),
            }
            # The first round only opens connections.
            for number in range(1 + rounds * _HOPS_OF_ROUND):
                for rows in HOPS:
                    for way, hop in hops.items():
                        first, whole = _timed(hop(rows), rows)
                        if number:
                            seconds.setdefault(f"{way}, {rows} rows: first batch", []).append(first)
                            seconds.setdefault(f"{way}, {rows} rows: all rows", []).append(whole)
            connection.close()
    return {
        "sizes": sizes,
        "seconds": {
            name: {"median": median(times), "fastest": min(times), "slowest": max(times)}
            for name, times in seconds.items()
        },
        "hops": rounds * _HOPS_OF_ROUND,
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    low, high = _CLAIM
    table = Table(title=f"Size of the same rows (claim: Arrow has {low} to {high} of CSV and of JSON)")
    for column in ("", "rows", "CSV MB", "JSON MB", "", "MB", "of CSV", "of JSON"):
        table.add_column(column, justify="right" if column else "left")
    for name, sizes in result["sizes"].items():
        size = sizes["bytes"]
        described = [name, f"{sizes['rows']:,}", *(f"{size[other] / 1e6:.1f}" for other in _OTHERS)]
        for form in _CODECS:
            ratios = (f"{size[form] / size[other]:.2f}" for other in _OTHERS)
            table.add_row(*described, form, f"{size[form] / 1e6:.1f}", *ratios)
            described = [""] * len(described)
    console.print(table)
    table = Table(title=f"One hop, milliseconds, of {result['hops']}")
    for column in ("", "median", "fastest", "slowest"):
        table.add_column(column, justify="right" if column else "left")
    for name, times in sorted(result["seconds"].items()):
        table.add_row(name, *(f"{1000 * times[key]:.1f}" for key in ("median", "fastest", "slowest")))
    console.print(table)


def _sizes(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Return the rows of a table, and their bytes in each format."""
    store, written = FolderStore(folder / "sizes"), io.BytesIO()
    csv.write_csv(table, written)
    rows = table.to_pylist()
    sizes = {"csv": len(written.getvalue()), "json": sum(len(orjson.dumps(row)) + 1 for row in rows)}
    for name, codec in _CODECS.items():
        batches = table.to_batches(max_chunksize=_BATCH)
        files = write_files(batches, prefix="s3://sizes/", schema=table.schema, store=store, codec=codec)
        sizes[name] = sum(file.bytes for file in files)
    return {"rows": table.num_rows, "bytes": sizes}


def _prefix(rows: int) -> str:
    return f"s3://{_BUCKET}/hop/{rows}/"


def _store(table: pa.Table, rows: int, store: ObjectStore) -> None:
    batches, schema = table.combine_chunks().to_batches(max_chunksize=_BATCH), table.schema
    files = tuple(write_files(batches, prefix=_prefix(rows), schema=schema, store=store))
    manifest = ArrowManifest(
        producer=PRODUCER, created_at=datetime.now(UTC), arrow_schema=encode_schema(schema), files=files
    )
    store_dataset(manifest, _prefix(rows), store=store, seconds=0)


def _stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH):
            writer.write_batch(batch)
    return sink.getvalue()


def _read(rows: int, store: ObjectStore) -> Iterator[pa.RecordBatch]:
    """Yield the batches behind a reference, as a step reads them."""
    reference = find_reference(_prefix(rows), store=store)
    assert reference
    manifest = load_manifest(reference.manifest, store=store)
    schema = decode_schema(manifest.arrow_schema)
    for file in manifest.files:
        yield from read_batches(file, schema=schema, store=store)


def _request(rows: int, connection: HTTPConnection) -> Iterator[pa.RecordBatch]:
    connection.request("GET", f"/{rows}")
    with connection.getresponse() as response, pa.ipc.open_stream(response) as reader:
        yield from reader
        response.read()  # the end of the response, or the connection cannot be used again


def _timed(batches: Iterator[pa.RecordBatch], rows: int) -> tuple[float, float]:
    """Return the seconds until the first batch, and until all of them."""
    began = time.perf_counter()
    count = next(batches).num_rows
    first = time.perf_counter() - began
    count += sum(batch.num_rows for batch in batches)
    whole = time.perf_counter() - began
    assert count == rows
    return first, whole


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.hop_server", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()
