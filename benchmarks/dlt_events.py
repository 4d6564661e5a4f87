"""Convert NDJSON to Parquet files with dlt, and print the seconds. It runs in .venv-bench, without our library.

    python dlt_events.py EVENTS.ndjson WORK_FOLDER

The time is that of `extract` and `normalize`, which write the Parquet files; `load` would only move them. Each step
has one worker, and dlt's own JSON reader, orjson, parses the lines.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "CRITICAL"}
os.environ |= {"EXTRACT__WORKERS": "1", "NORMALIZE__WORKERS": "1"}

import dlt
from dlt.common import json as dlt_json

_BATCH = 10_000


def main(events: Path, folder: Path) -> None:
    lines = events.read_bytes().splitlines()

    @dlt.resource(name="flights")
    def flights() -> Iterator[list[object]]:
        for start in range(0, len(lines), _BATCH):
            yield [dlt_json.loadb(line) for line in lines[start : start + _BATCH]]

    destination = dlt.destinations.filesystem(bucket_url=str(folder / "out"))
    pipeline = dlt.pipeline("bench", pipelines_dir=str(folder / "work"), destination=destination, dataset_name="raw")
    start = time.perf_counter()
    pipeline.extract(flights(), loader_file_format="parquet")
    pipeline.normalize()
    seconds = time.perf_counter() - start
    rows = pipeline.last_trace.last_normalize_info.row_counts["flights"]
    print(json.dumps({"seconds": seconds, "events": rows}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
