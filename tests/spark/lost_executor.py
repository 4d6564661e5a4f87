"""A process that test_jobs starts: a stage whose executor ends when it writes, so that all earlier tasks run again."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from slackwater.arrow.exchange import DRIVER_BYTES, read_frame, write_frame
from slackwater.pipeline.definition import StepUse
from slackwater.spark.run_steps import AppliedSteps
from slackwater.steps.step import StepContext
from tests.fakes_spark import PRODUCER, FolderStore
from tests.spark.local_cluster import session_with_executors


class EndingStore(FolderStore):
    """Kills the executor of the worker process that writes first."""

    def put(self, uri, body, *, metadata=None) -> None:
        try:
            self.path("s3://killed/once").touch(exist_ok=False)
        except FileExistsError:
            super().put(uri, body)
        else:
            # The worker's parent is Spark's daemon, whose parent is the executor.
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)


def run(spark: SparkSession, root: Path, steps: dict[str, StepUse], events: Path) -> dict[str, object]:
    """Run the steps over the events, and return the rows of the last step and what each step did."""
    inputs = {"events": spark.read.parquet(str(events))}
    killed = root / "killed"
    killed.mkdir(parents=True)
    applied = AppliedSteps(steps, inputs, StepContext(spark=spark))
    applied.compute_ahead()
    stores, last = partial(EndingStore, root), list(steps)[-1]
    written = write_frame(applied[last], "s3://x/", producer=PRODUCER, stores=stores, input_bytes=DRIVER_BYTES + 1)
    records = applied.records(written.observed, rows={}, seconds=0)
    applied.release()
    rows = read_frame(spark, written.manifest, stores=stores).collect()
    return {
        "rows": sorted(map(list, rows)),
        "records": {record.name: record.model_dump() for record in records},
        "killed": len(list(killed.iterdir())),
    }


def main() -> None:
    root, events, steps = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    # A task for each file.
    spark = session_with_executors(1, {"spark.sql.files.minPartitionNum": "4"})
    uses = {name: StepUse.model_validate(use) for name, use in steps.items()}
    result = run(spark, root, uses, events)
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
