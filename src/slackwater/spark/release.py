"""Checks that an EMR release and the roles of a deployment can run a stage: what a stage needs, in one small job."""

from __future__ import annotations

import importlib
import pkgutil
import platform
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.arrow.exchange import StoreFactory, map_in_arrow
from slackwater.errors import AuditFailed
from slackwater.runs.record import Run
from slackwater.spark.commit import commit_day, snapshot_identity
from slackwater.spark.job import log
from slackwater.spark.publish import audit, with_partition
from slackwater.spark.table import (
    create_tag,
    load_table,
    quoted_table,
    retry_on_conflict,
    rows_of_version,
    with_missing_columns,
)
from slackwater.spark.version_retention import remove_tags
from slackwater.storage import ObjectStore

# The packages that jobs use, with all their dependencies in the archive.
_PACKAGES = (
    "slackwater.arrow",
    "slackwater.aws.dynamodb",
    "slackwater.late",
    "slackwater.outbound",
    "slackwater.receiver.connectors",
    "slackwater.receiver.formats",
    "slackwater.receiver.parsing",
    "slackwater.receiver.pull",
    "slackwater.receiver.writing",
    "slackwater.runs",
    "slackwater.spark",
    "slackwater.steps",
)


def check_release(
    spark: SparkSession, run: Run, *, catalog_table: str, stores: StoreFactory, read_item: Callable[[], object]
) -> None:
    """Do what a stage of `run` does: import all modules and use objects on driver and executor, and publish a row.

    `read_item` reads an item of the run table. The row is committed to `catalog.database.table`, tagged and read by its
    tag, which is removed again. Raises the error of an import, of AWS or of Spark, and `AuditFailed` if what is read
    differs from what was written.
    """
    modules, python = import_packages(), platform.python_version()
    use_object(stores(), f"{run.prefix}driver")
    read_item()
    on_executor = partial(_on_executor, stores=stores, uri=f"{run.prefix}executor")
    table = quoted_table(catalog_table)
    rows = with_partition(map_in_arrow(spark.range(1), on_executor, "python string, modules int"), run.date)
    rows = with_missing_columns(spark, table, rows)
    commit = commit_day(spark, rows, table, snapshot_identity(run), audit(rows, ["python"]), min_rows_percent=None)
    create_tag(spark, table, run.tag, commit.snapshot_id)
    found = [(row["python"], row["modules"]) for row in rows_of_version(spark, table, run.tag, run.date).collect()]
    retry_on_conflict(lambda: remove_tags(load_table(spark, table), [run.tag]))
    if found != [(python, modules)]:
        raise AuditFailed(f"{catalog_table} has {found}, and the driver has Python {python} with {modules} modules")
    log("release checked", spark=spark.version, python=python, modules=modules)


def import_packages() -> int:
    """Import all modules that jobs use; return their number. Raises `ImportError`."""
    names = [
        "slackwater.aws.connect",  # of its package, jobs use this module and what it imports
        *(
            module.name
            for package in _PACKAGES
            for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        ),
    ]
    for name in names:
        importlib.import_module(name)
    return len(names)


def use_object(store: ObjectStore, uri: str) -> None:
    """Write, read and delete an object. Raises `CloudError`, and `AuditFailed` if another content is read."""
    content = uri.encode()
    store.put(uri, content)
    if store.get(uri) != content:
        raise AuditFailed(f"{uri} has another content than was written")
    store.delete([uri])


def _on_executor(batches: Iterable[pa.RecordBatch], *, stores: StoreFactory, uri: str) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        use_object(stores(), uri)
        values = {"python": [platform.python_version()], "modules": pa.array([import_packages()], pa.int32())}
        yield pa.RecordBatch.from_pydict(values)
