"""Exchange: hand a frame from one stage to the next as Arrow files, compared with Spark's own Parquet files.

Both ways hand on the same frame in the same session, with two cores: Parquet with Spark's defaults (snappy), and
`write_frame` and `read_frame`. Their rounds are interleaved, so that other load on the machine slows both down.

- `narrow` is 20 million rows of 4 columns, `wide` is 2 million rows of 100 columns, 33 of them strings: the time to
  write, less the time to compute the frame (Spark's `noop` format), plus the time to read all of it.
- `two columns` reads the same datasets again, and sums two columns.
- `small` is 1,000 rows, `S3` is 3 million rows of 4 columns in the local cloud.
- `memory` is 50 million rows of 4 columns by one executor with a heap of 2 GB: `exchange_memory.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import boto3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

from slackwater.arrow.dataset import load_manifest, store_dataset
from slackwater.arrow.exchange import StoreFactory, read_frame, write_frame
from slackwater.arrow.reference import Producer
from slackwater.aws.objects import s3_store
from slackwater.local import cloud
from slackwater.local.emr.spark import Image, default_properties
from slackwater.local.unpacked import Unpacked
from tests.fakes_spark import FolderStore

ROOT = Path(__file__).parents[1]
PRODUCER = Producer(pipeline="benchmark", date="2013-03-08", run_id="r", attempt=1, stage="s")
_BUCKET = "exchange-benchmark"
_LARGE = 1 << 40
"""Bytes of inputs for which the executors write."""
_TARGETS = {
    "narrow": 0.55,
    "wide": 0.30,
    "narrow, two columns": 1.2,
    "wide, two columns": 1.5,
    "S3": 1.0,
    "small": 1.0,
}
Seconds = dict[str, list[float]]


def narrow(spark: SparkSession, rows: int) -> DataFrame:
    """Return a frame of a number, a decimal fraction, a code and a timestamp."""
    return spark.range(0, rows, 1, 2).selectExpr(
        "id",
        "id * 0.37D AS amount",
        "cast(id % 1000 AS int) AS code",
        "timestamp_micros(id * 1000003 % 1600000000000000) AS at",
    )


def wide(spark: SparkSession, rows: int) -> DataFrame:
    """Return a frame of 100 columns: whole numbers, fractions and strings."""
    columns = ["id"]
    for n in range(1, 34):
        columns += [
            f"id * {n} % 100003 AS n{n}",
            f"id * {n} * 0.1D AS d{n}",
            f"concat('value ', id * {n} % 5003) AS s{n}",
        ]
    return spark.range(0, rows, 1, 2).selectExpr(*columns)


def run(rounds: int) -> dict[str, Any]:
    """Return the seconds of each way by round, the ratios Arrow / Parquet, and the memory of an executor."""
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    with (
        patch.dict(os.environ, environment),
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        local_cloud(Path(name)) as endpoint,
        _session(Path(name), endpoint) as spark,
    ):
        folder = Path(name)
        stores = partial(FolderStore, folder / "objects")
        seconds: Seconds = {}
        for size, frame, columns in (
            ("narrow", narrow(spark, 20_000_000), ["amount", "code"]),
            ("wide", wide(spark, 2_000_000), ["n4", "d5"]),
        ):
            # The first round only compiles.
            for _ in range(rounds + 1):
                _measure(seconds, size, frame, parquet=folder / "parquet", stores=stores, columns=columns)
            shutil.rmtree(folder / "objects")
        for _ in range(rounds + 1):
            _measure(seconds, "small", narrow(spark, 1000), parquet=folder / "parquet", stores=stores, input_bytes=0)
            _measure(seconds, "S3", narrow(spark, 3_000_000), parquet=f"s3://{_BUCKET}/parquet", stores=s3_store)
        memory = _memory(folder)
    return {
        "rounds": {name: times[1:] for name, times in seconds.items()},
        "seconds": {name: median(times[1:]) for name, times in seconds.items()},
        "ratios": {name: _ratio(seconds, name) for name in _TARGETS},
        "memory": memory,
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(title="Exchange of a frame, seconds")
    for column in ("", "Parquet", "Arrow", "Arrow / Parquet", "target: at most"):
        table.add_column(column, justify="right" if column else "left")
    seconds = result["seconds"]
    for name, target in _TARGETS.items():
        ours, theirs = (_total(seconds, way, name) for way in ("arrow", "parquet"))
        table.add_row(name, f"{theirs:.3f}", f"{ours:.3f}", f"{result['ratios'][name]:.2f}", f"{target:.2f}")
    console.print(table)
    memory = result["memory"]
    console.print(
        f"{memory['rows']:,} rows, {memory['bytes'] / 2**20:,.0f} MB, by one executor with a heap of 2 GB: "
        f"peak memory of its JVM {memory['jvm_bytes'] / 2**20:,.0f} MB, of its largest Python worker "
        f"{memory['worker_bytes'] / 2**20:,.0f} MB, {memory['seconds']:.1f} s"
    )


def _measure(
    seconds: Seconds,
    size: str,
    frame: DataFrame,
    *,
    parquet: Path | str,
    stores: StoreFactory,
    columns: Sequence[str] = (),
    input_bytes: int = _LARGE,
) -> None:
    """Add the seconds of one round, of both ways."""
    spark, path = frame.sparkSession, str(parquet)
    prefix = f"s3://{_BUCKET}/{size}/"

    def write() -> None:
        written = write_frame(frame, prefix, producer=PRODUCER, stores=stores, input_bytes=input_bytes)
        store_dataset(written.manifest, prefix, store=stores(), seconds=0)

    def read(columns: Sequence[str] | None = None) -> DataFrame:
        manifest = load_manifest(f"{prefix}manifest.json", store=stores())
        return read_frame(spark, manifest, stores=stores, columns=columns)

    def record(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        seconds.setdefault(f"{size}: {name}", []).append(time.perf_counter() - began)

    record("compute", lambda: _discard(frame))
    record("parquet write", lambda: frame.write.mode("overwrite").parquet(path))
    record("parquet read", lambda: _discard(spark.read.parquet(path)))
    if columns:
        sums = [sf.sum(column) for column in columns]
        record("parquet two columns", lambda: spark.read.parquet(path).agg(*sums).collect())
    stores().delete([item.uri for item in stores().list(prefix)])
    record("arrow write", write)
    record("arrow read", lambda: _discard(read()))
    if columns:
        record("arrow two columns", lambda: read(columns).agg(*sums).collect())


def _discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _total(seconds: Mapping[str, float], way: str, name: str) -> float:
    """Return the seconds of one way, from those of its parts."""
    size, _, columns = name.partition(", ")
    if columns:
        return seconds[f"{size}: {way} {columns}"]
    return seconds[f"{size}: {way} write"] - seconds[f"{size}: compute"] + seconds[f"{size}: {way} read"]


def _ratio(seconds: Seconds, name: str) -> float:
    """Return the median over the rounds of Arrow's seconds divided by Parquet's."""
    count = min(len(times) for part, times in seconds.items() if part.startswith(f"{name.partition(', ')[0]}:"))
    rounds = [{part: times[n] for part, times in seconds.items() if n < len(times)} for n in range(1, count)]
    return median(_total(one, "arrow", name) / _total(one, "parquet", name) for one in rounds)


@contextmanager
def local_cloud(folder: Path) -> Iterator[str]:
    """Run a local cloud with a bucket, and make it the one that this process uses. The result is its endpoint."""
    running = cloud.up(folder / "cloud")
    try:
        with patch.dict(os.environ, running.environment()):
            boto3.client("s3").create_bucket(Bucket=_BUCKET)
            yield running.endpoint
    finally:
        cloud.down(folder / "cloud")


@contextmanager
def _session(folder: Path, endpoint: str) -> Iterator[SparkSession]:
    """Run Spark with two threads, and with S3 as the local cloud's jobs use it."""
    image = Image(endpoint, ROOT / ".slackwater" / "jars", Unpacked(folder / "archives"))
    settings = default_properties(image) | {
        "spark.driver.memory": "4g",
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
        ),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # By default Spark interprets the query that creates 100 columns: 9 times slower, and not part of an exchange.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.appName("exchange")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _memory(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.exchange_memory", str(folder)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return result
