"""A process that exchange.py starts: the exchange of 50 million rows by one executor with a heap of 2 GB."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.exchange import PRODUCER, narrow
from slackwater.arrow.exchange import read_frame, write_frame
from tests.fakes_spark import FolderStore

_ROWS = 50_000_000


def main() -> None:
    folder = Path(sys.argv[1])
    stores = partial(FolderStore, folder / "memory")
    spark = (
        SparkSession.builder.master("local-cluster[1,2,2048]")
        .config("spark.executor.memory", "2g")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(folder / "scratch"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    peaks = {"jvm_bytes": 0, "worker_bytes": 0}
    threading.Thread(target=_watch, args=(peaks,), daemon=True).start()
    began = time.perf_counter()
    manifest = write_frame(
        narrow(spark, _ROWS), "s3://memory/", producer=PRODUCER, stores=stores, input_bytes=1 << 40
    ).manifest
    frame = read_frame(spark, manifest, stores=stores)
    frame.write.format("noop").mode("overwrite").save()
    result = {"rows": manifest.rows, "bytes": manifest.bytes, "seconds": time.perf_counter() - began, **peaks}
    assert manifest.rows == _ROWS
    spark.stop()
    print(json.dumps(result))


def _watch(peaks: dict[str, int]) -> None:
    """Keep the largest peak of resident memory of the executor's JVM and of each of its Python workers."""
    while True:
        for command, bytes_ in _descendants():
            if "CoarseGrainedExecutorBackend" in command:
                peaks["jvm_bytes"] = max(peaks["jvm_bytes"], bytes_)
            elif "pyspark.daemon" in command:
                peaks["worker_bytes"] = max(peaks["worker_bytes"], bytes_)
        time.sleep(0.2)


def _descendants() -> Iterator[tuple[str, int]]:
    """Yield the command and the peak of resident memory of each process that this one has started, directly or not."""
    children: dict[int, list[tuple[int, str, int]]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "status").read_text(encoding="utf-8")
            command = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:  # the process has ended
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines())
        peak = int(fields.get("VmHWM", "0 kB").split()[0]) * 1024
        children.setdefault(int(fields["PPid"]), []).append((int(process.name), command, peak))
    pending = [os.getpid()]
    while pending:
        for number, command, peak in children.get(pending.pop(), []):
            pending.append(number)
            yield command, peak


if __name__ == "__main__":
    main()
