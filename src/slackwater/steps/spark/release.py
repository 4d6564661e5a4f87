"""Checks that an EMR release can run the library: imports on driver and executors, and an Iceberg table."""

from __future__ import annotations

import importlib
import pkgutil
import platform
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.errors import AuditFailed
from slackwater.steps.spark.job import log
from slackwater.steps.spark.table import quoted_table

# The packages that jobs use, with all their dependencies in the archive.
_PACKAGES = (
    "slackwater.arrow",
    "slackwater.aws.dynamodb",
    "slackwater.aws.partners",
    "slackwater.late",
    "slackwater.receiver.parsing",
    "slackwater.receiver.partners",
    "slackwater.receiver.pull",
    "slackwater.receiver.writing",
    "slackwater.runs",
    "slackwater.steps",
)


def check_release(spark: SparkSession, table: str) -> None:
    """Import all modules of jobs on driver and executor, replace `catalog.database.table`, and read it.

    Raises the error of an import or of Spark, and `AuditFailed` if the rows differ.
    """
    modules, python = import_packages(), platform.python_version()
    rows = spark.range(1).mapInArrow(_import_on_executor, "python string, modules int")
    rows.writeTo(quoted_table(table)).using("iceberg").createOrReplace()
    found = [(row["python"], row["modules"]) for row in spark.table(quoted_table(table)).collect()]
    if found != [(python, modules)]:
        raise AuditFailed(f"{table} has {found}, and the driver has Python {python} with {modules} modules")
    log("release checked", spark=spark.version, python=python, modules=modules)


def import_packages() -> int:
    """Import all modules that jobs use; return their number. Raises `ImportError`."""
    names = [
        module.name
        for package in _PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    ]
    for name in names:
        importlib.import_module(name)
    return len(names)


def _import_on_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        values = {"python": [platform.python_version()], "modules": pa.array([import_packages()], pa.int32())}
        yield pa.RecordBatch.from_pydict(values)
