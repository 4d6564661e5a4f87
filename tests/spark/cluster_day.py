"""A process that test_jobs starts: the stages of a day on executors in other processes."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.arrow.session import SMALL_WAY
from tests.fakes_spark import FolderStore
from tests.spark.local_cluster import session_with_executors
from tests.spark.nyc import Day
from tests.two_stages import two_stage_project


class SigningStore(FolderStore):
    """Records which process wrote."""

    def put(self, uri, body, *, metadata=None) -> None:
        super().put(uri, body)
        if uri.endswith(".arrow"):
            super().put(f"s3://writers/{os.getppid()}", b"")


def main() -> None:
    root, date = Path(sys.argv[1]), sys.argv[2]
    spark = session_with_executors(2, {"spark.sql.adaptive.enabled": "false", SMALL_WAY: "false"})
    stores = partial(SigningStore, root)
    references = Day(store=stores(), project=two_stage_project(), date=date).run(spark, stores)
    manifest = load_manifest(references["delays_by_carrier"].manifest, store=stores())
    rows = read_frame(spark, manifest, stores=stores).orderBy("origin", "carrier").collect()
    writers = [int(path.name) for path in (root / "writers").iterdir()]
    spark.stop()
    result = {"table": [[date, *row] for row in rows], "files": references["flights_with_weather"].files}
    print(json.dumps({**result, "writers": writers, "driver": os.getpid()}))


if __name__ == "__main__":
    main()
