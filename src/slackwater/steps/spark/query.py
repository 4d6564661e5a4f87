"""Run a user's query on its inputs only. Spark's own parser checks that it reaches nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.session import temporary_settings
from slackwater.errors import DefinitionError

_CONFINED = {
    "spark.sql.runSQLOnFiles": "false",
    # Spark would replace ${env:...} in a query by the job's environment, which holds credentials.
    "spark.sql.variable.substitute": "false",
}

# The packages of Spark's plan nodes, commands among them.
_PLAN_PACKAGES = ("org.apache.spark.sql.catalyst.plans.logical", "org.apache.spark.sql.execution")
# fmt: off
# The plan nodes that a query may contain: a node of a later Spark version is refused until it is known to be harmless.
_ALLOWED_NODES = frozenset({
    "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
    "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union",
    "UnresolvedHint", "UnresolvedWith", "Unpivot", "Window", "WithWindowDefinition",
})
# fmt: on
# Nodes whose table or column is only known later, so it cannot be checked here: older versions, `identifier(...)`.
_INDIRECT_NODES = frozenset(
    {"RelationTimeTravel", "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"}
)


def run_query(
    frames: Mapping[str, DataFrame], query: str, *, functions: Collection[str], forbidden: Collection[str]
) -> DataFrame:
    """Return the result of `query` over `frames`, which it reads by their names.

    `functions` are the table functions that it may read from, `forbidden` the functions that it may not call. Temporary
    views with the names of the frames exist only during the call. Raises `DefinitionError` for anything but a query
    over the frames, and for a query that Spark cannot resolve.
    """
    spark = next(iter(frames.values())).sparkSession
    with temporary_settings(spark, _CONFINED), _temporary_views(frames):
        try:
            _check(spark, query, tables=frames.keys(), functions=functions, forbidden=forbidden)
            return spark.sql(query)
        except (ParseException, AnalysisException) as error:
            raise DefinitionError(f"query: {str(error).partition('== SQL')[0].strip()}") from error


@contextmanager
def _temporary_views(frames: Mapping[str, DataFrame]) -> Iterator[None]:
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name, frame in frames.items():
            frame.sparkSession.catalog.dropTempView(name)


def _check(
    spark: SparkSession, query: str, *, tables: Collection[str], functions: Collection[str], forbidden: Collection[str]
) -> None:
    """Raise `DefinitionError` if Spark's parser finds anything but a query over `tables`."""
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
            raise DefinitionError(f"query: {table} is not an input of the step (the inputs are: {', '.join(tables)})")
        if name == "UnresolvedTableValuedFunction" and _dotted(node["name"]) not in functions:
            raise DefinitionError(f"query: the table function {_dotted(node['name'])} is not allowed")
        if name == "UnresolvedFunction" and _dotted(node["nameParts"]) in forbidden:
            raise DefinitionError(f"query: the function {_dotted(node['nameParts'])} is not allowed")
        if name in _INDIRECT_NODES or (package.startswith(_PLAN_PACKAGES) and name not in _ALLOWED_NODES):
            raise DefinitionError(f"query: only a SELECT or WITH statement is allowed; this query contains {name}")


def _plan_nodes(plan: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every plan and expression of a plan in Spark's JSON, with its class name; also those of subqueries."""
    if isinstance(plan, dict):
        if "class" in plan:
            yield plan["class"], plan
        for value in plan.values():
            yield from _plan_nodes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _plan_nodes(value)


def _dotted(parts: str) -> str:
    """Convert Spark's `[a, b]` to `a.b`. A name with several parts is never the name of an input."""
    return parts.removeprefix("[").removesuffix("]").replace(", ", ".").lower()
