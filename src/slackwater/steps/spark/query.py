"""A user's query, held to its inputs by Spark itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from slackwater.arrow.session import settings
from slackwater.errors import DefinitionError

_CONFINED = {
    "spark.sql.runSQLOnFiles": "false",
    # ${env:...} in a query would be replaced by the job's environment, its credentials among it.
    "spark.sql.variable.substitute": "false",
}

_PLANS = ("org.apache.spark.sql.catalyst.plans.logical", "org.apache.spark.sql.execution")
"""Where Spark keeps the nodes of plans, commands among them."""
# fmt: off
_QUERY = frozenset({
    "Aggregate", "Deduplicate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
    "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort", "SubqueryAlias", "Union",
    "UnresolvedHint", "UnresolvedWith", "Unpivot", "Window", "WithWindowDefinition",
})
# fmt: on
"""Those that a query may hold: a new one of Spark's is refused until it is known to be harmless."""
_INDIRECT = frozenset({"RelationTimeTravel", "PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier"})
"""Names that are only known later: older versions, `identifier(...)`."""


def run_query(
    frames: Mapping[str, DataFrame], query: str, *, functions: Collection[str], forbidden: Collection[str]
) -> DataFrame:
    """Return the frame that `query` makes of `frames`; views of their names exist during the call only.

    `functions` are the table functions it may read from, `forbidden` the functions it may not call. Raises
    `DefinitionError` for anything but a query over the frames, and for one that Spark cannot resolve.
    """
    spark = next(iter(frames.values())).sparkSession
    with settings(spark, _CONFINED), _views(frames):
        try:
            _check(spark, query, tables=frames.keys(), functions=functions, forbidden=forbidden)
            return spark.sql(query)
        except (ParseException, AnalysisException) as error:
            raise DefinitionError(f"query: {str(error).partition('== SQL')[0].strip()}") from error


@contextmanager
def _views(frames: Mapping[str, DataFrame]) -> Iterator[None]:
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
    """Refuse what Spark's parser finds beside a query over `tables`."""
    session: Any = spark._jsparkSession
    plan: Any = json.loads(session.sessionState().sqlParser().parsePlan(query).toJSON())
    named = {name.lower() for name in (*tables, *_common_tables(plan))}
    for kind, node in _nodes(plan):
        package, _, name = kind.rpartition(".")
        if name == "UnresolvedRelation" and _words(node["multipartIdentifier"]) not in named:
            table = _words(node["multipartIdentifier"])
            raise DefinitionError(f"query: {table} is not an input of the step (they are: {', '.join(tables)})")
        if name == "UnresolvedTableValuedFunction" and _words(node["name"]) not in functions:
            raise DefinitionError(f"query: the table function {_words(node['name'])} is not allowed")
        if name == "UnresolvedFunction" and _words(node["nameParts"]) in forbidden:
            raise DefinitionError(f"query: the function {_words(node['nameParts'])} is not allowed")
        if name in _INDIRECT or (package.startswith(_PLANS) and name not in _QUERY):
            raise DefinitionError(f"query: one SELECT or WITH statement is expected, and {name} is none")


def _nodes(plan: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every plan and expression in Spark's JSON of a plan, those of subqueries among them, with its class."""
    if isinstance(plan, dict):
        if "class" in plan:
            yield plan["class"], plan
        for value in plan.values():
            yield from _nodes(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from _nodes(value)


def _common_tables(plan: Any) -> Iterator[str]:
    for kind, node in _nodes(plan):
        if kind.endswith(".UnresolvedWith"):
            yield from (relation["_1"] for relation in node["cteRelations"])


def _words(parts: str) -> str:
    """Turn Spark's `[a, b]` into `a.b`; a name of several parts is never that of an input."""
    return parts.removeprefix("[").removesuffix("]").replace(", ", ".").lower()
