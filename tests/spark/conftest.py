"""One Spark session for all Spark tests, with two Iceberg catalogs: in a folder and in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slackwater.arrow.session import SMALL_WAY, temporary_settings
from slackwater.local.emr.spark import class_archive, job_home
from slackwater.spark.standalone import INTERPRETED
from tests.fakes_spark import FolderStore
from tests.spark.compared_day import Day, a_day

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".slackwater" / "jars"
WORKERS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYTHONPATH": os.pathsep.join(
        [
            *map(str, (ROOT / "src", ROOT, ROOT / "tests" / "spark" / "worker_path")),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
    ),
}
"""The environment of Python workers and jobs. On EMR the job's archive provides it."""


def jvm_variables() -> dict[str, str]:
    """Return the environment in which a process starts a JVM like that of a job of the local cloud.

    This JVM lives for seconds: the second compiler's threads cost more than their code saves. It loads its classes from
    the archive of these jobs, which is bound to their Spark home, empty folder of settings, and class path. With the
    default sizes, the JVM of the tests' session would collect garbage for new classes, and discard compiled code.
    """
    jars = sorted(JARS.glob("*.jar"))
    assert jars, f"no jars in {JARS}: fetch them with `python -m slackwater.local.jars`"
    assert job_home(JARS).exists(), f"no Spark home in {JARS}: make it with `python -m slackwater.local.jars`"
    sizes = "-Xmn512m -XX:MetaspaceSize=400m -XX:ReservedCodeCacheSize=240m"
    archive = f"-XX:SharedArchiveFile={class_archive(JARS)} -Xlog:cds=off -Xlog:cds+dynamic=off"
    return {
        "SPARK_HOME": str(job_home(JARS)),
        "SPARK_CONF_DIR": str(JARS / "conf"),
        "SPARK_SUBMIT_OPTS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {sizes} {archive}",
        "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {os.pathsep.join(map(str, jars))} pyspark-shell",
    }


def catalog(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a catalog of Iceberg."""
    prefix = f"spark.sql.catalog.{name}"
    settings = {f"{prefix}.{key}": value for key, value in {"cache-enabled": "false", **options}.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder. The JVM's connections are closed with the session, and not with a test."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # The defaults, as values: `temporary_settings` cannot restore a setting that has none.
        "spark.sql.optimizer.excludedRules": "",
        SMALL_WAY: "true",
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **catalog("warehouse", {"type": "hadoop", "warehouse": str(scratch / "warehouse")}),
        # Its files are objects in memory: for each file in a folder, Hadoop starts processes.
        **catalog("memory", {"catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog"}),
    }
    builder = SparkSession.builder.master("local[2]").appName("slackwater tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Spark reads them now. Other tests of this process must not find them.
    with pytest.MonkeyPatch.context() as launch:
        for name, value in {**WORKERS, **jvm_variables()}.items():
            launch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Compute as `slackwater step run` does: Spark plans a query once, and interprets its expressions."""
    with temporary_settings(spark, INTERPRETED):
        yield


@pytest.fixture
def generated(spark: SparkSession, interpreted: None) -> Iterator[None]:
    """Compute as jobs do: with generated code, and adaptively.

    Otherwise Spark would evaluate filters and projections of the few rows of a test while it plans the query. So a
    frame without rows that match a filter is empty only at run time here.
    """
    values = {
        "codegen.wholeStage": "true",
        "codegen.factoryMode": "FALLBACK",
        "adaptive.enabled": "true",
        "optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    }
    with temporary_settings(spark, {f"spark.sql.{name}": value for name, value in values.items()}):
        yield


@pytest.fixture(params=["small", "large"])
def way(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """In which of their two ways jobs read and write the few rows of a test."""
    with temporary_settings(spark, {SMALL_WAY: str(request.param == "small").lower()}):
        yield request.param


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "objects")


@pytest.fixture
def stores(store: FolderStore) -> Callable[[], FolderStore]:
    """A factory of the same store for worker processes."""
    return partial(FolderStore, store.root)


@pytest.fixture
def day(spark, store, stores) -> Day:
    """A table without versions."""
    return a_day(spark, store, stores)
