"""One Spark session for all Spark tests, with an Iceberg catalog in a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fakes_spark import FolderStore

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".slackwater" / "jars"
WORKERS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), str(ROOT / "tests" / "spark" / "worker_path"), os.environ.get("PYTHONPATH", "")]
    ),
}
"""The environment of Python workers and jobs. On EMR the job's archive provides it."""


def iceberg_jar() -> Path:
    jars = sorted(JARS.glob("*iceberg-spark-runtime*.jar"))
    assert jars, f"no Iceberg jar in {JARS}: fetch Spark's jars with `python -m slackwater.local.jars`"
    return jars[0]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WORKERS.items():
            patch.setenv(name, value)
        settings = {
            "spark.ui.enabled": "false",
            # Sessions of seconds: the second compiler's threads cost more than its code saves.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
            "spark.jars": str(iceberg_jar()),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.warehouse": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.warehouse.type": "hadoop",
            "spark.sql.catalog.warehouse.cache-enabled": "false",
            "spark.sql.catalog.warehouse.warehouse": str(scratch / "warehouse"),
        }
        builder = SparkSession.builder.master("local[2]").appName("slackwater tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "objects")


@pytest.fixture
def stores(store: FolderStore) -> Callable[[], FolderStore]:
    """A factory of the same store for worker processes."""
    return partial(FolderStore, store.root)
