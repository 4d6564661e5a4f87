"""Run a user's query on its inputs only. Spark's own parser checks that it reads nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.session import temporary_settings
from slackwater.errors import DefinitionError
from slackwater.problems import Problems
from slackwater.steps.spark_errors import sql_problem

# Settings while a query is parsed and resolved.
_CONFINED = {
    # Spark would read FROM parquet.`s3://...` as a file.
    "spark.sql.runSQLOnFiles": "false",
    # Spark would replace ${env:...} in a query by the job's environment, which holds credentials.
    "spark.sql.variable.substitute": "false",
}

# The packages of Spark's plan nodes, including commands. Expressions are in other packages.
_PLAN_PACKAGES = ("org.apache.spark.sql.catalyst.plans.logical", "org.apache.spark.sql.execution")
# fmt: off
# The plan nodes that a query may contain. All others are refused, so that a new node of a later Spark version is not
# allowed before someone has checked it.
_ALLOWED_NODES = frozenset({
    "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
    "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union",
    "UnresolvedHint", "UnresolvedWith", "Unpivot", "Window", "WithWindowDefinition",
})
# fmt: on
# Nodes whose table or column Spark resolves only later, so that it cannot be checked here: time travel to an older
# version of a table, and `identifier(...)`.
_INDIRECT_NODES = frozenset(
    {"RelationTimeTravel", "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"}
)


def run_query(
    frames: Mapping[str, DataFrame],
    query: str,
    *,
    functions: Collection[str],
    forbidden: Collection[str],
    field: str = "query",
    written: str | None = None,
) -> DataFrame:
    """Return the result of `query` over `frames`, which it reads by their names.

    `functions` are the table functions that it may read from, `forbidden` the functions that it may not call, `field`
    is the parameter that the query comes from, and `written` the part of the query that is in it; the default is all of
    it. Temporary views with the names of the frames exist only during the call.
    Raises `DefinitionError` for anything but a query over the frames, and for a query that Spark cannot resolve.
    """
    spark = next(iter(frames.values())).sparkSession
    with temporary_settings(spark, _CONFINED), _temporary_views(frames):
        try:
            _check(spark, query, tables=frames.keys(), functions=functions, forbidden=forbidden, field=field)
            return spark.sql(query)
        except (ParseException, AnalysisException) as error:
            sql = query if written is None else written
            raise Problems(sql_problem(error, sql, path=(field,), offset=query.index(sql))) from error


@contextmanager
def _temporary_views(frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Make the frames readable by their names in SQL inside the `with` block."""
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name, frame in frames.items():
            session: Any = frame.sparkSession
            # `Catalog.dropTempView` would also remove the frame from Spark's cache.
            session._jsparkSession.sessionState().catalog().dropTempView(name)


def _check(
    spark: SparkSession,
    query: str,
    *,
    tables: Collection[str],
    functions: Collection[str],
    forbidden: Collection[str],
    field: str,
) -> None:
    """Raise `DefinitionError` if the query is anything but a query over `tables`.

    The other arguments are those of `run_query`.
    """
    # PySpark has no interface to the parser. With the plan as JSON, one call to the JVM is enough for all nodes.
    session: Any = spark._jsparkSession
    plan: Any = json.loads(session.sessionState().sqlParser().parsePlan(query).toJSON())
    nodes = list(_plan_nodes(plan))
    common_tables = [
        relation["_1"] for name, node in nodes if name.endswith(".UnresolvedWith") for relation in node["cteRelations"]
    ]
    known = {name.lower() for name in (*tables, *common_tables)}
    for class_name, node in nodes:
        package, _, name = class_name.rpartition(".")
        if name == "UnresolvedRelation" and _dotted(node["multipartIdentifier"]) not in known:
            table = _dotted(node["multipartIdentifier"])
            raise DefinitionError(f"{field}: {table} is not an input of the step (the inputs are: {', '.join(tables)})")
        if name == "UnresolvedTableValuedFunction" and _dotted(node["name"]) not in functions:
            raise DefinitionError(f"{field}: the table function {_dotted(node['name'])} is not allowed")
        if name == "UnresolvedFunction" and _dotted(node["nameParts"]) in forbidden:
            raise DefinitionError(f"{field}: the function {_dotted(node['nameParts'])} is not allowed")
        if name in _INDIRECT_NODES or (package.startswith(_PLAN_PACKAGES) and name not in _ALLOWED_NODES):
            raise DefinitionError(f"{field}: only a SELECT or WITH statement is allowed; this query contains {name}")


def _plan_nodes(plan: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the class name and the JSON of every node in a plan: plans and expressions, also those of subqueries."""
    if isinstance(plan, dict):
        if "class" in plan:
            yield plan["class"], plan
        for value in plan.values():
            yield from _plan_nodes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _plan_nodes(value)


def _dotted(parts: str) -> str:
    """Convert a name from Spark's `[a, b]` to `a.b` in lower case. No input has a name with several parts."""
    return parts.removeprefix("[").removesuffix("]").replace(", ", ".").lower()
