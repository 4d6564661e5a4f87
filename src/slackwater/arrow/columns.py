"""Which columns of its inputs a query needs: `columns_read`. Spark's optimizer knows, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.schema import spark_schema_of

# Operators whose output is columns of their inputs, by the same id, and columns that their expressions compute. The
# inputs of every other operator, such as a union, count as needed with all their columns.
_PASSING = frozenset(
    {
        "Aggregate", "CollectMetrics", "Expand", "Filter", "Generate", "GlobalLimit", "Join", "LocalLimit", "Offset",
        "Project", "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort", "Window",
        "WindowGroupLimit",
    }
)  # fmt: skip


def columns_read(
    spark: SparkSession,
    build: Callable[[Mapping[str, DataFrame]], Iterable[DataFrame]],
    schemas: Mapping[str, pa.Schema],
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each input that the frames need which `build` returns, in the order of the schema.

    `build` is called once, with frames of the schemas that have no rows; it must not start a Spark job. An input of
    which only the number of rows is needed has no columns here. Raises what `build` raises.
    """
    frames, names = {}, {}
    for name, schema in schemas.items():
        frames[name], relation = _frame(spark, schema)
        names[relation] = name
    needed: dict[str, set[int]] = {name: set() for name in schemas}
    for result in build(frames):
        inner: Any = result
        _collect(inner._jdf.queryExecution().optimizedPlan(), names, needed)
    return {name: tuple(schemas[name].names[index] for index in sorted(needed[name])) for name in schemas}


def _frame(spark: SparkSession, schema: pa.Schema) -> tuple[DataFrame, int]:
    """Return a frame of an RDD, and the id of this RDD in plans.

    Spark would replace a frame that is known to have no rows, and with it every operator over the frame.
    """
    session: Any = spark
    rows = session.sparkContext._jsc.emptyRDD()
    spark_schema = session._jsparkSession.parseDataType(spark_schema_of(schema).json())
    frame = session._jsparkSession.createDataFrame(rows, spark_schema)
    return DataFrame(frame, spark), int(frame.queryExecution().analyzed().rdd().id())


def _collect(plan: Any, names: Mapping[int, str], needed: Mapping[str, set[int]]) -> None:
    """Add to `needed` the positions of the columns that the plan needs of each input, by the id of its RDD."""
    used = _ids(plan.outputSet())
    leaves = []
    pending = [plan]
    while pending:
        node = pending.pop()
        children = _sequence(node.children())
        operator = node.getClass().getSimpleName()
        if operator == "LogicalRDD":
            leaves.append(node)
        elif operator in _PASSING:
            used |= _ids(node.references())
        else:
            for child in children:
                used |= _ids(child.outputSet())
        pending += children
        for query in _sequence(node.subqueries()):
            used |= _ids(query.outputSet())
            pending.append(query)
    for leaf in leaves:
        name = names.get(int(leaf.rdd().id()))
        if name is not None:
            output = _sequence(leaf.output())
            needed[name].update(index for index, column in enumerate(output) if column.exprId().id() in used)


def _ids(columns: Any) -> set[int]:
    """Return the ids of a set of columns."""
    return {column.exprId().id() for column in _sequence(columns.toSeq())}


def _sequence(values: Any) -> list[Any]:
    """Return a Scala sequence as a list."""
    return [values.apply(index) for index in range(values.size())]
